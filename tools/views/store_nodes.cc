#include "tools/views/store_nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tools/inputs/attributes.h"

namespace grape::tools {
namespace {

using program::FunctionInfo;
using program::NodeKind;
using program::Program;
using program::RecordedNode;
using program::Reference;
using program::Role;
using Place = StoredWord::Place;
using Roles = std::vector<const Reference*>;  // per word of a node; null: a plain number

constexpr std::uint64_t kMostInDecimal = 1'000'000;  // beyond it is more likely a float or a mask

Roles roles_of(const Program& program, const RecordedNode& node) {
  Roles roles(node.word_count);
  const auto by_word = [](const Reference& reference, std::uint32_t word) { return reference.word < word; };
  auto at = std::lower_bound(program.references.begin(), program.references.end(), node.words_at, by_word);
  for (; at != program.references.end() && at->word < node.words_at + node.word_count; ++at) {
    roles[at->word - node.words_at] = &*at;
  }
  return roles;
}

// Null: it has none, or nobody knows it.
const FunctionInfo* layout_of(const Program& program, const RecordedNode& node) {
  if (node.kind != NodeKind::kKernel) return nullptr;
  const FunctionInfo& function = program.functions[node.function];
  return function.has_layout ? &function : nullptr;
}

// Cuts `total` bytes of parameters at the ends of words and of parameters. Layouts are not trusted: what overlaps
// belongs to the first.
class Cutter {
 public:
  std::vector<StoredWord> run(const FunctionInfo* layout, std::size_t total) {
    for (std::uint32_t i = 0; layout != nullptr && i < layout->parameters.size(); ++i) {
      const std::uint64_t first = layout->parameters[i].offset, last = first + layout->parameters[i].bytes;
      if (first >= total || last <= at_) continue;
      cut(Place::kBetween, 0, at_, first);
      cut(Place::kParameter, i, first, std::min<std::uint64_t>(last, total));
    }
    cut(layout != nullptr ? Place::kBetween : Place::kWord, 0, at_, total);
    return std::move(words_);
  }

 private:
  void cut(Place place, std::uint32_t parameter, std::uint64_t begin, std::uint64_t end) {
    while (at_ < end) {
      const std::uint64_t next = std::min(end, (at_ / 8 + 1) * 8);
      StoredWord word;
      word.place = place;
      word.parameter = parameter;
      word.in_parameter = static_cast<std::uint32_t>(at_ - begin);
      word.offset = static_cast<std::uint32_t>(at_);
      word.bytes = static_cast<std::uint32_t>(next - at_);
      words_.push_back(word);
      at_ = next;
    }
  }

  std::uint64_t at_ = 0;
  std::vector<StoredWord> words_;
};

// A word that has a role is no part of two parameters.
void join(std::vector<StoredWord>& words, const Roles& roles) {
  std::vector<StoredWord> joined;
  for (const StoredWord& word : words) {
    const std::size_t number = word.offset / 8;
    if (roles[number] != nullptr && !joined.empty() && joined.back().offset / 8 == number) {
      joined.back().bytes = 8;
    } else {
      joined.push_back(word);
    }
  }
  words = std::move(joined);
}

void fill(std::vector<StoredWord>& words, const Program& program, const RecordedNode& node, const Roles& roles) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(program.words.data() + node.words_at);
  for (StoredWord& word : words) {
    std::memcpy(&word.value, bytes + word.offset, word.bytes);
    word.reference = roles[word.offset / 8];
  }
}

// Of a node that is no kernel; null: the word has no name.
const char* word_name(NodeKind kind, std::size_t word) {
  constexpr const char* kNames[][6] = {{},
                                       {"destination", "source", "bytes"},
                                       {"destination", "value", "element bytes", "width", "height", "pitch"},
                                       {"source", "bytes"},
                                       {"destination", "place in host data", "bytes"}};
  if (kind == NodeKind::kHostRead && word > 1) return "value";
  return word < 6 ? kNames[static_cast<std::size_t>(kind)][word] : nullptr;
}

// Of a role with blocks: the bytes of this one.
std::uint64_t block_bytes(const Program& program, const Reference& reference) {
  switch (reference.role) {
    case Role::kStatic:
      return program.statics[reference.block].bytes;
    case Role::kInput:
      return program.input_bytes[reference.block];
    case Role::kTemp:
      return program.temps[reference.block].bytes;
    case Role::kOutput:
      return program.outputs[reference.block].bytes;
    case Role::kHostData:
      return program.host_data.size();
    default:
      return 0;
  }
}

}  // namespace

std::vector<StoredWord> words_of(const Program& program, const RecordedNode& node) {
  const Roles roles = roles_of(program, node);
  std::vector<StoredWord> words = Cutter().run(layout_of(program, node), std::size_t{node.word_count} * 8);
  join(words, roles);
  fill(words, program, node, roles);
  return words;
}

std::vector<std::pair<StoredWord, StoredWord>> word_pairs(const Program& a, const RecordedNode& node_a,
                                                          const Program& b, const RecordedNode& node_b) {
  const FunctionInfo* layout = layout_of(a, node_a);
  const FunctionInfo* other = layout_of(b, node_b);
  if (layout != nullptr && (other == nullptr || layout->parameters != other->parameters)) layout = nullptr;
  const Roles roles_a = roles_of(a, node_a), roles_b = roles_of(b, node_b);
  std::vector<StoredWord> words_a = Cutter().run(layout, std::size_t{node_a.word_count} * 8);
  join(words_a, roles_a);
  join(words_a, roles_b);
  std::vector<StoredWord> words_b = words_a;
  fill(words_a, a, node_a, roles_a);
  fill(words_b, b, node_b, roles_b);
  std::vector<std::pair<StoredWord, StoredWord>> pairs;
  for (std::size_t i = 0; i < words_a.size(); ++i) pairs.emplace_back(words_a[i], words_b[i]);
  return pairs;
}

const char* kind_name(NodeKind kind) {
  constexpr const char* kNames[] = {"kernel", "copy", "memset", "host read", "copy from host"};
  return kNames[static_cast<std::size_t>(kind)];
}

const char* role_name(Role role) {
  constexpr const char* kNames[] = {"static",    "input",       "temp",          "output",
                                    "host data", "random seed", "random offset", "number"};
  return kNames[static_cast<std::size_t>(role)];
}

std::string node_key(const Program& program, const RecordedNode& node) {
  return node.kind == NodeKind::kKernel ? program.functions[node.function].name : kind_name(node.kind);
}

std::string node_name(StoreInput& input, const Program& program, const RecordedNode& node) {
  return node.kind == NodeKind::kKernel ? input.shown(program.functions[node.function].name) : kind_name(node.kind);
}

std::vector<std::string> attributes_of(const Program& program, const RecordedNode& node) {
  // As a launch in a trace, which has its words for them.
  const std::size_t bytes = std::size_t{node.attribute_count} * program::kAttributeBytes;
  const std::size_t words = trace::kLaunchFixed + trace::words_for(bytes);
  std::vector<std::uint64_t> event((sizeof(trace::EventHeader) / 8) + words);
  trace::EventHeader header{};
  header.kind = trace::EventKind::kLaunch;
  if (node.cooperative) header.flags |= trace::kFlagCooperative;
  if (node.packed) header.flags |= trace::kFlagPackedExtra;
  std::memcpy(event.data(), &header, sizeof header);
  std::uint64_t* payload = event.data() + sizeof(trace::EventHeader) / 8;
  payload[trace::kLaunchSizes] = trace::pack(node.attribute_count, 0);
  const std::uint8_t* from = program.attributes.data() + std::size_t{node.attributes_at} * program::kAttributeBytes;
  if (bytes != 0) std::memcpy(payload + trace::kLaunchFixed, from, bytes);
  trace::EventView view;
  view.header = reinterpret_cast<const trace::EventHeader*>(event.data());
  std::vector<std::string> list = launch_attributes(trace::LaunchView(view));
  for (std::string& note : flag_notes(header.flags)) list.push_back(std::move(note));
  return list;
}

std::uint64_t moved_bytes(const Program& program, const RecordedNode& node) {
  const auto word = [&](std::uint32_t i) { return i < node.word_count ? program.words[node.words_at + i] : 0; };
  switch (node.kind) {
    case NodeKind::kCopy:
    case NodeKind::kHostCopy:
      return word(2);
    case NodeKind::kHostRead:
      return word(1);
    case NodeKind::kMemset:
      return word(2) * word(3) * word(4);
    default:
      return 0;
  }
}

std::string dimensions_text(const program::Dimensions& size) { return fmt::format("{}x{}x{}", size.x, size.y, size.z); }

std::string word_place(const RecordedNode& node, const StoredWord& word) {
  if (word.place == Place::kParameter) return fmt::format("p{}+{:#x}", word.parameter, word.in_parameter);
  if (word.place == Place::kBetween) return fmt::format("between parameters, byte {:#x}", word.offset);
  const char* name = word_name(node.kind, word.offset / 8);
  return name != nullptr ? name : fmt::format("word {}", word.offset / 8);
}

std::string value_text(const Program& program, const StoredWord& word) {
  if (word.reference == nullptr) {
    const std::string hex = fmt::format("{:#0{}x}", word.value, 2 + 2 * word.bytes);
    return word.value >= 10 && word.value < kMostInDecimal ? fmt::format("{} ({})", hex, word.value) : hex;
  }
  const Reference& reference = *word.reference;
  const char* role = role_name(reference.role);
  switch (reference.role) {
    case Role::kRandomSeed:
      return role;
    case Role::kNumber:
      return fmt::format("{} form {:#x} + {:#x}", role, reference.block, word.value);
    case Role::kRandomOffset:
      return fmt::format("{} + {}", role, word.value);
    case Role::kHostData:
      return fmt::format("{} + {:#x} of {} B", role, word.value, block_bytes(program, reference));
    case Role::kStatic:
      return fmt::format("{} #{} + {:#x} of {} B at {:#x}", role, reference.block, word.value,
                         block_bytes(program, reference), program.statics[reference.block].address);
    default:
      return fmt::format("{} #{} + {:#x} of {} B", role, reference.block, word.value, block_bytes(program, reference));
  }
}

Json value_json(const Program& program, const StoredWord& word) {
  Json json;
  if (word.reference == nullptr) {
    json["role"] = "plain";
    json["value"] = hex_value(word.value);
    return json;
  }
  json["role"] = role_name(word.reference->role);
  json["block"] = word.reference->block;
  json["offset"] = word.value;
  json["block_bytes"] = block_bytes(program, *word.reference);
  if (word.reference->role == Role::kStatic) {
    json["address"] = hex_value(program.statics[word.reference->block].address);
  }
  return json;
}

}  // namespace grape::tools
