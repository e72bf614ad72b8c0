#include "compressor/program/symbolise.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "compressor/program/live_memory.h"
#include "compressor/program/prove.h"

namespace grape::program {
namespace {

constexpr std::uint32_t kMostNumber = 1u << 26;         // lower halves of addresses that are taken for numbers,
constexpr std::uint32_t kMostNumberAlone = 1u << 24;    // where nothing else tells,
constexpr std::uint32_t kMostNumberAtStart = 1u << 16;  // and a block begins there
constexpr std::size_t kRandomWords = 3;                 // of at::PhiloxCudaState that are looked at
constexpr std::uint64_t kNotCapturedMask = (std::uint64_t{1} << 40) - 1;

constexpr std::size_t kValueAt = 8;  // after the id and four bytes of padding

// Bytes of the value, by CUlaunchAttributeID (the driver's ABI, so that no header of CUDA's is needed); 0: not known.
constexpr std::uint8_t kValueBytes[] = {
    0,   // IGNORE: nothing to be cleaned for
    28,  // ACCESS_POLICY_WINDOW
    4,   // COOPERATIVE
    4,   // SYNCHRONIZATION_POLICY
    12,  // CLUSTER_DIMENSION
    4,   // CLUSTER_SCHEDULING_POLICY_PREFERENCE
    4,   // PROGRAMMATIC_STREAM_SERIALIZATION
    16,  // PROGRAMMATIC_EVENT
    4,   // PRIORITY
    2,   // MEM_SYNC_DOMAIN_MAP
    4,   // MEM_SYNC_DOMAIN
    12,  // PREFERRED_CLUSTER_DIMENSION
    12,  // LAUNCH_COMPLETION_EVENT
    0,   // DEVICE_UPDATABLE_KERNEL_NODE: has an out-field
    4,   // PREFERRED_SHARED_MEMORY_CARVEOUT
};

// Zeroes the bytes of a CUlaunchAttribute beyond its value: they are whatever the caller had on its stack. Attributes
// that are not known here are left as they are.
void clean_attribute(std::uint8_t* attribute) {
  std::uint32_t id = 0;
  std::memcpy(&id, attribute, sizeof id);
  const std::size_t bytes = id < sizeof kValueBytes ? kValueBytes[id] : 0;
  if (bytes == 0) return;
  std::memset(attribute + sizeof id, 0, kValueAt - sizeof id);
  std::memset(attribute + kValueAt + bytes, 0, kAttributeBytes - kValueAt - bytes);
}

class Symboliser {
 public:
  Symboliser(RegionRecord& record, const IsPointer& is_pointer)
      : record_(record), is_pointer_(is_pointer), memory_(record), static_of_(record.before.size(), kNever) {
    const RandomState& random = record.random;
    draws_ = random.known && random.offset_after > random.offset_before;
  }

  Program run() {
    take_nodes();
    for (std::uint32_t i = 0; i < program_.nodes.size(); ++i) {
      memory_.advance_to(i);
      symbolise_node(program_.nodes[i]);
    }
    memory_.advance_to(static_cast<std::uint32_t>(program_.nodes.size()));
    take_births();
    take_random();
    take_handles();
    for (const Extent& input : record_.inputs) program_.input_bytes.push_back(input.bytes);
    // Layouts ascend, so this is so but for a driver that lists parameters in another order.
    const auto by_word = [](const Reference& a, const Reference& b) { return a.word < b.word; };
    if (!std::is_sorted(program_.references.begin(), program_.references.end(), by_word)) {
      std::sort(program_.references.begin(), program_.references.end(), by_word);
      program_.lows.clear();
    }
    if (!doubtful_.empty()) settle_doubts();
    std::sort(program_.strays.begin(), program_.strays.end());
    return std::move(program_);
  }

 private:
  void take_nodes() {
    program_.nodes = std::move(record_.nodes);
    take_items(record_.words, program_.words, &RecordedNode::words_at, &RecordedNode::word_count, 1);
    take_items(record_.attributes, program_.attributes, &RecordedNode::attributes_at, &RecordedNode::attribute_count,
               kAttributeBytes);
    take_items(record_.after, program_.after, &RecordedNode::after_at, &RecordedNode::after_count, 1);
    for (std::size_t at = 0; at + kAttributeBytes <= program_.attributes.size(); at += kAttributeBytes) {
      clean_attribute(program_.attributes.data() + at);
    }
    for (const RecordedNode& node : program_.nodes) {
      const auto begin = program_.after.begin() + node.after_at;
      std::sort(begin, begin + node.after_count);
    }
    take_functions_and_streams();
  }

  // The items of all nodes, in node order and without gaps: then programs are equal where their items are.
  template <typename Item>
  void take_items(std::vector<Item>& from, std::vector<Item>& to, std::uint32_t RecordedNode::*at,
                  std::uint32_t RecordedNode::*count, std::size_t unit) {
    bool in_order = true;
    std::size_t next = 0;
    for (const RecordedNode& node : program_.nodes) {
      in_order = in_order && node.*at * unit == next;
      next += node.*count * unit;
    }
    if (in_order && next == from.size()) {
      to = std::move(from);
      return;
    }
    to.reserve(next);
    for (RecordedNode& node : program_.nodes) {
      const auto begin = from.begin() + static_cast<std::ptrdiff_t>(node.*at * unit);
      node.*at = static_cast<std::uint32_t>(to.size() / unit);
      to.insert(to.end(), begin, begin + static_cast<std::ptrdiff_t>(node.*count * unit));
    }
  }

  // Only what is used, in the order of first use; a function that several threads defined is one function.
  void take_functions_and_streams() {
    std::vector<std::uint32_t> function_of(record_.functions.size(), kNever), stream_of;
    std::unordered_multimap<std::uint64_t, std::uint32_t> by_handle;
    const auto number_of = [&](FunctionInfo& function) {
      const auto same = by_handle.equal_range(function.handle);
      for (auto each = same.first; each != same.second; ++each) {
        if (program_.functions[each->second].name == function.name) return each->second;
      }
      const auto number = static_cast<std::uint32_t>(program_.functions.size());
      by_handle.emplace(function.handle, number);
      program_.functions.push_back(std::move(function));
      return number;
    };
    for (RecordedNode& node : program_.nodes) {
      if (node.stream >= stream_of.size()) stream_of.resize(node.stream + std::size_t{1}, kNever);
      std::uint32_t& stream = stream_of[node.stream];
      if (stream == kNever) stream = program_.stream_count++;
      node.stream = stream;
      if (node.kind != NodeKind::kKernel) {
        node.function = 0;
        continue;
      }
      std::uint32_t& function = function_of[node.function];
      if (function == kNever) function = number_of(record_.functions[node.function]);
      node.function = function;
    }
  }

  void symbolise_node(const RecordedNode& node) {
    const std::uint32_t begin = node.words_at;
    switch (node.kind) {
      case NodeKind::kCopy:
        symbolise_words(begin, begin + std::min(node.word_count, 2u), false);
        return;
      case NodeKind::kHostCopy:
        symbolise_words(begin, begin + std::min(node.word_count, 1u), false);
        if (node.word_count > 1) refer({begin + 1, Role::kHostData, 0}, 0);
        return;
      case NodeKind::kMemset:
      case NodeKind::kHostRead:
        symbolise_words(begin, begin + std::min(node.word_count, 1u), false);
        return;
      case NodeKind::kKernel:
        break;
    }
    const FunctionInfo& function = program_.functions[node.function];
    if (function.has_layout) {
      symbolise_parameters(node, function);
    } else {
      // The padding of the last word makes no pointer of what is shorter than one.
      symbolise_words(begin, begin + std::min(node.word_count, node.parameter_bytes / 8), false);
    }
  }

  void symbolise_parameters(const RecordedNode& node, const FunctionInfo& function) {
    for (const Parameter& parameter : function.parameters) {
      if (parameter.bytes < 8) continue;
      const std::uint32_t whole = std::min(node.word_count, node.parameter_bytes / 8);
      const std::uint32_t begin = (parameter.offset + 7) / 8;
      const std::uint32_t end = std::min((parameter.offset + parameter.bytes) / 8, whole);
      if (begin < end) symbolise_words(node.words_at + begin, node.words_at + end, draws_);
    }
  }

  void symbolise_words(std::uint32_t begin, std::uint32_t end, bool random_too) {
    for (std::uint32_t word = begin; word < end; ++word) {
      if (random_too && end - word >= kRandomWords && take_random_words(word)) {
        ++word;
      } else {
        symbolise_word(word);
      }
    }
  }

  void symbolise_word(std::uint32_t word) {
    std::uint64_t& value = program_.words[word];
    LiveMemory::Place place;
    if (!memory_.find(value, place)) {
      if (in_segment(value)) program_.strays.push_back(word);
      return;
    }
    if (place.role == Role::kStatic) {
      std::uint32_t& number = static_of_[place.block];
      if (number == kNever) {
        number = static_cast<std::uint32_t>(program_.statics.size());
        const LiveBlock& block = record_.before[place.block];
        program_.statics.push_back({block.address, block.bytes, block.serial});
      }
      place.block = number;
    }
    const bool moves = place.role == Role::kInput || place.role == Role::kTemp;  // outputs are temps so far
    if (moves && static_cast<std::uint32_t>(value) < kMostNumber) doubtful_.emplace_back(word, value);
    refer({word, place.role, place.block}, value);
    value -= place.address;
  }

  void refer(const Reference& reference, std::uint64_t raw) {
    program_.references.push_back(reference);
    program_.lows.push_back(static_cast<std::uint32_t>(raw));
  }

  // The number would move with the block. As a stray it stays, and a shadow replay tells whether it is one.
  void settle_doubts() {
    std::vector<bool> gone(program_.references.size(), false);
    launches_.resize(program_.functions.size());
    for (const RecordedNode& node : program_.nodes) {
      if (node.kind == NodeKind::kKernel) launches_[node.function].push_back(&node);
    }
    for (const auto& [word, raw] : doubtful_) {
      if (!may_be_number(word, static_cast<std::uint32_t>(raw))) continue;
      program_.words[word] = raw;
      program_.strays.push_back(word);
      gone[static_cast<std::size_t>(reference_at(program_, word) - program_.references.data())] = true;
    }
    drop_references(program_, gone);
  }

  // In a struct, and another launch of the kernel has a number in its place, or all that have what looks like an
  // address have one with a small lower half. Where there is no other launch, small numbers are doubted.
  bool may_be_number(std::uint32_t word, std::uint32_t low) const {
    const RecordedNode& node = node_of(program_, word);
    if (node.kind != NodeKind::kKernel || !program_.functions[node.function].has_layout) return false;
    const std::uint32_t place = word - node.words_at;
    const auto& parameters = program_.functions[node.function].parameters;
    const bool in_struct = std::any_of(parameters.begin(), parameters.end(), [place](const Parameter& p) {
      return p.bytes > kMostWithoutPadding && p.offset <= place * 8 && place * 8 < p.offset + p.bytes;
    });
    if (!in_struct || (is_pointer_ && is_pointer_(program_.functions[node.function], place))) return false;
    const std::vector<const RecordedNode*>& launches = launches_[node.function];
    bool small_elsewhere = false, large = false;
    for (const RecordedNode* other : launches) {
      if (other == &node || place >= other->word_count) continue;
      const std::uint32_t there = other->words_at + place;
      if (is_number(there)) return true;
      if (!is_address(there)) continue;
      (lower_half(there) < kMostNumber ? small_elsewhere : large) = true;
    }
    if (large) return false;
    const bool at_start = program_.words[word] == 0, alone = launches.size() == 1;  // words are offsets by now
    return (small_elsewhere && !at_start) || (alone && low < (at_start ? kMostNumberAtStart : kMostNumberAlone));
  }

  bool is_address(std::uint32_t word) const {
    return reference_at(program_, word) != nullptr || in_segment(program_.words[word]);
  }

  // Of an address; as of a large one where it is not known.
  std::uint32_t lower_half(std::uint32_t word) const {
    const Reference* const reference = reference_at(program_, word);
    if (reference == nullptr) return static_cast<std::uint32_t>(program_.words[word]);
    if (program_.lows.size() != program_.references.size()) return kMostNumber;
    return program_.lows[static_cast<std::size_t>(reference - program_.references.data())];
  }

  bool is_number(std::uint32_t word) const {
    return reference_at(program_, word) == nullptr && program_.words[word] != 0 && !in_segment(program_.words[word]);
  }

  bool in_segment(std::uint64_t address) const {
    const auto next = std::upper_bound(record_.segments.begin(), record_.segments.end(), address,
                                       [](std::uint64_t at, const Extent& segment) { return at < segment.address; });
    return next != record_.segments.begin() && address - (next - 1)->address < (next - 1)->bytes;
  }

  bool take_random_words(std::uint32_t word) {
    std::uint64_t* words = program_.words.data() + word;
    const RandomState& random = record_.random;
    if (words[0] != random.seed || words[1] < random.offset_before || words[1] >= random.offset_after) return false;
    if ((words[2] & kNotCapturedMask) != 0) return false;
    refer({word, Role::kRandomSeed, 0}, words[0]);
    refer({word + 1, Role::kRandomOffset, 0}, words[1]);
    words[0] = 0;
    words[1] -= random.offset_before;
    return true;
  }

  // Whether a block was a temp or an output is known at the end only.
  void take_births() {
    const std::vector<BornBlock>& births = memory_.births();
    std::vector<std::uint32_t> number_of(births.size());
    for (const BornBlock& block : births) {
      std::vector<BornBlock>& list = block.died == kNever ? program_.outputs : program_.temps;
      number_of[block.birth] = static_cast<std::uint32_t>(list.size());
      list.push_back(block);
    }
    for (Reference& reference : program_.references) {
      if (reference.role != Role::kTemp) continue;
      if (births[reference.block].died == kNever) reference.role = Role::kOutput;
      reference.block = number_of[reference.block];
    }
  }

  void take_random() {
    if (!record_.random.known) return;
    program_.observed_seed = record_.random.seed;
    program_.observed_offset = record_.random.offset_before;
    program_.random_increment = record_.random.offset_after - record_.random.offset_before;
  }

  void take_handles() {
    program_.waited_events = std::move(record_.waited_events);
    program_.recorded_events = std::move(record_.recorded_events);
    program_.waited_streams = std::move(record_.waited_streams);
    program_.host_data = std::move(record_.host_data);
    const std::size_t known = std::min(record_.streams.size(), record_.stream_serials.size());
    for (std::size_t i = 0; i < known; ++i) {
      if (record_.stream_serials[i] != 0) program_.streams.push_back({record_.streams[i], record_.stream_serials[i]});
    }
  }

  RegionRecord& record_;
  const IsPointer& is_pointer_;
  LiveMemory memory_;
  Program program_;
  std::vector<std::uint32_t> static_of_;                           // by block of RegionRecord::before
  std::vector<std::pair<std::uint32_t, std::uint64_t>> doubtful_;  // symbols, and what the words were
  std::vector<std::vector<const RecordedNode*>> launches_;         // by function
  bool draws_ = false;
};

}  // namespace

const Reference* reference_at(const Program& program, std::uint32_t word) noexcept {
  const auto at = std::lower_bound(program.references.begin(), program.references.end(), word,
                                   [](const Reference& reference, std::uint32_t w) { return reference.word < w; });
  return at != program.references.end() && at->word == word ? &*at : nullptr;
}

const RecordedNode& node_of(const Program& program, std::uint32_t word) noexcept {
  const auto next = std::upper_bound(program.nodes.begin(), program.nodes.end(), word,
                                     [](std::uint32_t w, const RecordedNode& node) { return w < node.words_at; });
  return *(next - 1);
}

void drop_references(Program& program, const std::vector<bool>& gone) {
  const bool has_lows = program.lows.size() == gone.size();
  std::size_t kept = 0;
  for (std::size_t i = 0; i < gone.size(); ++i) {
    if (gone[i]) continue;
    if (has_lows) program.lows[kept] = program.lows[i];
    program.references[kept++] = program.references[i];
  }
  program.references.resize(kept);
  if (has_lows) program.lows.resize(kept);
}

void drop_unused_statics(Program& program) {
  std::vector<StaticBlock> statics;
  std::vector<std::uint32_t> numbers(program.statics.size(), kNever);
  for (Reference& reference : program.references) {
    if (reference.role != Role::kStatic) continue;
    std::uint32_t& number = numbers[reference.block];
    if (number == kNever) {
      number = static_cast<std::uint32_t>(statics.size());
      statics.push_back(program.statics[reference.block]);
    }
    reference.block = number;
  }
  program.statics = std::move(statics);
}

std::vector<Segment> segments(const Program& program) {
  std::vector<Segment> parts(1);
  for (std::uint32_t i = 0; i < program.nodes.size(); ++i) {
    if (program.nodes[i].kind == NodeKind::kHostRead) {
      parts.back().read = i;
      parts.push_back({i + 1, 0, kNever});
    } else {
      ++parts.back().count;
    }
  }
  return parts;
}

Program symbolise(RegionRecord record, const IsPointer& is_pointer) { return Symboliser(record, is_pointer).run(); }

}  // namespace grape::program
