#include "tools/views/store_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tools/inputs/attributes.h"

namespace grape::tools {
namespace {

using program::BornBlock;
using program::LiveHandle;
using program::NodeKind;
using program::Program;
using program::RecordedNode;
using program::Reference;
using program::Role;

constexpr const char* kKeys[kStoredChanges] = {"only_in_a", "only_in_b",  "kernel",        "dimensions",   "stream",
                                               "edges",     "attributes", "moved_pointer", "moved_static", "pointer",
                                               "role",      "plain",      "padding",       "host_data",    "blocks",
                                               "events",    "random"};
constexpr const char* kTitles[kStoredChanges] = {"nodes only in A",
                                                 "nodes only in B",
                                                 "other kernels of the same name",
                                                 "grids, blocks, shared memory or sizes",
                                                 "streams",
                                                 "edges",
                                                 "attributes",
                                                 "pointers into blocks with other numbers",
                                                 "static blocks at another address",
                                                 "pointers to another place",
                                                 "words with another role",
                                                 "plain words",
                                                 "plain words that are padding",
                                                 "data of the host's",
                                                 "blocks",
                                                 "events and waits",
                                                 "random numbers drawn"};
constexpr std::size_t kShownHostBytes = 8;

std::string size_text(const Program& program, const RecordedNode& node) {
  if (node.kind != NodeKind::kKernel) return fmt::format("{} B, {} words", moved_bytes(program, node), node.word_count);
  return fmt::format("grid {} block {} shared {}, {} B of parameters", dimensions_text(node.grid),
                     dimensions_text(node.block), node.shared_bytes, node.parameter_bytes);
}

std::string edges_text(const Program& program, const RecordedNode& node) {
  const auto begin = program.after.begin() + node.after_at;
  return node.after_count == 0 ? "nothing" : fmt::format("#{}", fmt::join(begin, begin + node.after_count, " #"));
}

bool same_attributes(const Program& a, const RecordedNode& node_a, const Program& b, const RecordedNode& node_b) {
  if (node_a.cooperative != node_b.cooperative || node_a.packed != node_b.packed) return false;
  const auto bytes = [](const Program& program, const RecordedNode& node) {
    const auto* at = program.attributes.data() + std::size_t{node.attributes_at} * program::kAttributeBytes;
    return std::vector<std::uint8_t>(at, at + std::size_t{node.attribute_count} * program::kAttributeBytes);
  };
  return bytes(a, node_a) == bytes(b, node_b);
}

// What a copy from the host copies; empty where the program contradicts itself.
std::vector<std::uint8_t> host_bytes(const Program& program, const RecordedNode& node) {
  if (node.word_count < 3) return {};
  const std::uint64_t at = program.words[node.words_at + 1], bytes = program.words[node.words_at + 2];
  if (at > program.host_data.size() || bytes > program.host_data.size() - at) return {};
  return {program.host_data.data() + at, program.host_data.data() + at + bytes};
}

std::string host_text(const std::vector<std::uint8_t>& bytes, std::size_t from) {
  std::string text;
  for (std::size_t i = from; i < std::min(bytes.size(), from + kShownHostBytes); ++i) {
    text += fmt::format("{:02x}", bytes[i]);
  }
  return text + (bytes.size() > from + kShownHostBytes ? "…" : text.empty() ? "nothing" : "");
}

std::string born_text(const BornBlock& block) {
  const std::string end = block.died == program::kNever ? "the end" : fmt::format("before #{}", block.died);
  return fmt::format("{} B, from before #{} to {}", block.bytes, block.born, end);
}

bool same_born(const BornBlock& a, const BornBlock& b) {
  return a.bytes == b.bytes && a.birth == b.birth && a.born == b.born && a.died == b.died;
}

std::string handles_text(const std::vector<LiveHandle>& handles) {
  std::string text;
  for (const LiveHandle& one : handles) text += fmt::format("{}{:#x}", text.empty() ? "" : " ", one.handle);
  return text.empty() ? "none" : text;
}

}  // namespace

const char* change_key(StoredChange change) { return kKeys[static_cast<std::size_t>(change)]; }
const char* change_title(StoredChange change) { return kTitles[static_cast<std::size_t>(change)]; }

void StoredComparison::run() {
  has_partner_.assign(b_.nodes.size(), false);
  const auto pairs = align(keys(a_), keys(b_));
  for (const auto& [i, j] : pairs) {
    if (i == kNoPartner || j == kNoPartner) continue;
    partner_[i] = j;
    has_partner_[j] = true;
  }
  aligned_ = partner_.size();
  for (const auto& [i, j] : pairs) {
    if (j == kNoPartner) {
      add(StoredChange::kOnlyA, i, j, "only in A", size_text(a_, a_.nodes[i]), "-");
    } else if (i == kNoPartner) {
      add(StoredChange::kOnlyB, i, j, "only in B", "-", size_text(b_, b_.nodes[j]));
    } else {
      compare_nodes(i, j);
    }
  }
  compare_blocks();
  compare_rest();
}

std::vector<std::uint32_t> StoredComparison::keys(const Program& program) {
  std::vector<std::uint32_t> list;
  for (const RecordedNode& node : program.nodes) {
    // Of kernels the name: one that nobody could mistake for a kind.
    const std::string key = (node.kind == NodeKind::kKernel ? "kernel " : "") + node_key(program, node);
    list.push_back(ids_.emplace(key, static_cast<std::uint32_t>(ids_.size())).first->second);
  }
  return list;
}

void StoredComparison::add(StoredChange change, std::size_t a, std::size_t b, std::string place, std::string left,
                           std::string right) {
  StoredDifference difference;
  difference.change = change;
  difference.a = a;
  difference.b = b;
  difference.place = std::move(place);
  difference.left = std::move(left);
  difference.right = std::move(right);
  differences_.push_back(std::move(difference));
  ++counts_[static_cast<std::size_t>(change)];
}

void StoredComparison::compare_nodes(std::size_t i, std::size_t j) {
  const Node& a = a_.nodes[i];
  const Node& b = b_.nodes[j];
  if (a.kind == NodeKind::kKernel) {
    const std::uint64_t kernel_a = a_.functions[a.function].handle, kernel_b = b_.functions[b.function].handle;
    if (kernel_a != kernel_b) {
      add(StoredChange::kKernel, i, j, "kernel", fmt::format("{:016x}", kernel_a), fmt::format("{:016x}", kernel_b));
    }
  }
  if (a.grid != b.grid || a.block != b.block || a.shared_bytes != b.shared_bytes ||
      a.parameter_bytes != b.parameter_bytes || a.word_count != b.word_count) {
    add(StoredChange::kDimensions, i, j, "dimensions", size_text(a_, a), size_text(b_, b));
  }
  // Streams are told apart by what they are to each other.
  if (!streams_.pair(a.stream, b.stream)) {
    add(StoredChange::kStream, i, j, "stream", std::to_string(a.stream), std::to_string(b.stream));
  }
  if (!same_attributes(a_, a, b_, b)) {
    add(StoredChange::kAttributes, i, j, "attributes", attributes_text(attributes_of(a_, a)),
        attributes_text(attributes_of(b_, b)));
  }
  if (!same_edges(a, b)) add(StoredChange::kEdges, i, j, "edges", edges_text(a_, a), edges_text(b_, b));
  if (a.word_count == b.word_count) compare_words(i, j);
  if (a.kind == NodeKind::kHostCopy) compare_host_data(i, j);
}

bool StoredComparison::same_edges(const Node& a, const Node& b) const {
  const auto begin = b_.after.begin() + b.after_at, end = begin + b.after_count;
  const auto alone = [this](std::uint32_t from) { return !has_partner_[from]; };
  // What is before a node in one program only is told as such.
  if (std::any_of(begin, end, alone)) return true;
  std::vector<std::size_t> from_a;
  for (std::uint32_t i = 0; i < a.after_count; ++i) {
    const auto found = partner_.find(a_.after[a.after_at + i]);
    if (found == partner_.end()) return true;
    from_a.push_back(found->second);
  }
  std::sort(from_a.begin(), from_a.end());
  return std::equal(from_a.begin(), from_a.end(), begin, end);
}

void StoredComparison::compare_words(std::size_t i, std::size_t j) {
  const Node& node = a_.nodes[i];
  for (const auto& [a, b] : word_pairs(a_, node, b_, b_.nodes[j])) {
    ++words_;
    const StoredChange change = change_of(node, a, b);
    if (change == StoredChange::kNone) continue;
    add(change, i, j, word_place(node, a), value_text(a_, a), value_text(b_, b));
    StoredDifference& difference = differences_.back();
    difference.has_words = true;
    difference.word_a = a;
    difference.word_b = b;
  }
}

StoredChange StoredComparison::change_of(const Node& node, const StoredWord& a, const StoredWord& b) {
  const bool plain = a.reference == nullptr && b.reference == nullptr;
  if (plain && a.value == b.value) return StoredChange::kNone;
  StoredChange change = plain ? StoredChange::kPlain : StoredChange::kRole;
  if (a.reference != nullptr && b.reference != nullptr && a.reference->role == b.reference->role) {
    change = pointer_change(*a.reference, *b.reference, a.value == b.value);
    if (change == StoredChange::kNone) return change;
  }
  const std::uint64_t bits = plain ? (a.value ^ b.value) << (a.offset % 8 * 8) : ~std::uint64_t{0};
  const bool padding =
      node.kind == NodeKind::kKernel && input_.is_padding(a_.functions[node.function].handle, a.offset / 8, bits);
  return padding ? StoredChange::kPadding : change;
}

StoredChange StoredComparison::pointer_change(const Reference& a, const Reference& b, bool same_offset) {
  if (!same_offset) return StoredChange::kPointer;
  bool fresh = false;
  const bool paired = blocks_.pair({a.role, a.block}, {b.role, b.block}, fresh);
  if (same_block(a, b)) return StoredChange::kNone;
  if (!paired) return StoredChange::kPointer;
  if (a.role != Role::kStatic) return StoredChange::kMoved;
  if (a_.statics[a.block].bytes != b_.statics[b.block].bytes) return StoredChange::kPointer;
  return fresh ? StoredChange::kStatics : StoredChange::kNone;
}

bool StoredComparison::same_block(const Reference& a, const Reference& b) const {
  if (a.role != b.role) return false;
  if (a.role != Role::kStatic) return a.block == b.block;
  const program::StaticBlock& one = a_.statics[a.block];
  const program::StaticBlock& other = b_.statics[b.block];
  return one.address == other.address && one.serial == other.serial;
}

void StoredComparison::compare_host_data(std::size_t i, std::size_t j) {
  const std::vector<std::uint8_t> a = host_bytes(a_, a_.nodes[i]), b = host_bytes(b_, b_.nodes[j]);
  if (a == b) return;
  std::size_t first = 0;
  while (first < a.size() && first < b.size() && a[first] == b[first]) ++first;
  add(StoredChange::kHostData, i, j, fmt::format("data, byte {:#x}", first), host_text(a, first), host_text(b, first));
}

void StoredComparison::compare_blocks() {
  for (std::size_t i = 0; i < std::min(a_.input_bytes.size(), b_.input_bytes.size()); ++i) {
    if (a_.input_bytes[i] == b_.input_bytes[i]) continue;
    add(StoredChange::kBlocks, kNoPartner, kNoPartner, fmt::format("input #{}", i),
        fmt::format("{} B", a_.input_bytes[i]), fmt::format("{} B", b_.input_bytes[i]));
  }
  if (a_.input_bytes.size() != b_.input_bytes.size()) {
    add(StoredChange::kBlocks, kNoPartner, kNoPartner, "inputs", std::to_string(a_.input_bytes.size()),
        std::to_string(b_.input_bytes.size()));
  }
  compare_born("temp", a_.temps, b_.temps);
  compare_born("output", a_.outputs, b_.outputs);
}

void StoredComparison::compare_born(const char* name, const std::vector<BornBlock>& a,
                                    const std::vector<BornBlock>& b) {
  if (a.size() != b.size()) {
    add(StoredChange::kBlocks, kNoPartner, kNoPartner, fmt::format("{}s", name), std::to_string(a.size()),
        std::to_string(b.size()));
  }
  // Lives are told by nodes' numbers, which mean the same only where no node is in one of them alone.
  if (a.size() != b.size() || aligned_ != a_.nodes.size() || aligned_ != b_.nodes.size()) return;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (same_born(a[i], b[i])) continue;
    add(StoredChange::kBlocks, kNoPartner, kNoPartner, fmt::format("{} #{}", name, i), born_text(a[i]),
        born_text(b[i]));
  }
}

void StoredComparison::compare_rest() {
  const auto handles = [this](const char* place, const std::vector<LiveHandle>& a, const std::vector<LiveHandle>& b) {
    if (a == b) return;
    add(StoredChange::kEvents, kNoPartner, kNoPartner, place, handles_text(a), handles_text(b));
  };
  handles("waits for events", a_.waited_events, b_.waited_events);
  handles("records events", a_.recorded_events, b_.recorded_events);
  if (a_.waited_streams.size() != b_.waited_streams.size()) {
    add(StoredChange::kEvents, kNoPartner, kNoPartner, "host waits for streams",
        std::to_string(a_.waited_streams.size()), std::to_string(b_.waited_streams.size()));
  }
  if (a_.random_increment != b_.random_increment) {
    add(StoredChange::kRandom, kNoPartner, kNoPartner, "generator's offset moves by",
        std::to_string(a_.random_increment), std::to_string(b_.random_increment));
  }
}

}  // namespace grape::tools
