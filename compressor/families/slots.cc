#include "compressor/families/slots.h"

#include <algorithm>

#include "compressor/program/prove.h"

namespace grape::families {
namespace {

using program::NodeKind;
using program::Program;
using program::RecordedNode;
using program::Reference;
using program::Role;

constexpr std::uint32_t kLaunchSlots = 4;

template <typename Node>
auto& launch_number(Node& node, std::uint32_t index) noexcept {
  const decltype(&node.grid.x) numbers[kLaunchSlots] = {&node.grid.x, &node.grid.y, &node.grid.z, &node.shared_bytes};
  return *numbers[index];
}

bool same_kernel(const program::FunctionInfo& a, const program::FunctionInfo& b, const KernelIdentity& identity) {
  return a.name == b.name && (identity ? identity(a) == identity(b) : a.handle == b.handle);
}

bool same_node(const RecordedNode& a, const RecordedNode& b) {
  return a.kind == b.kind && a.block == b.block && a.cooperative == b.cooperative && a.packed == b.packed &&
         a.stream == b.stream && a.parameter_bytes == b.parameter_bytes && a.words_at == b.words_at &&
         a.word_count == b.word_count && a.attributes_at == b.attributes_at && a.attribute_count == b.attribute_count &&
         a.after_at == b.after_at && a.after_count == b.after_count;
}

bool same_life(const program::BornBlock& a, const program::BornBlock& b) {
  return a.birth == b.birth && a.born == b.born && a.died == b.died;
}

bool same_lives(const std::vector<program::BornBlock>& a, const std::vector<program::BornBlock>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_life);
}

bool same_memory(const Program& in_a, const Reference& a, const Program& in_b, const Reference& b) {
  if (a.role != b.role) return false;
  if (a.role != Role::kStatic) return a.block == b.block;
  const program::StaticBlock &one = in_a.statics[a.block], &other = in_b.statics[b.block];
  return one.address == other.address && one.serial == other.serial;
}

// Words that refer to different memory, or of which one refers to none. False: one cannot be padding.
bool same_references(const Program& a, const Program& b, std::vector<std::uint32_t>* noise) {
  auto next_a = a.references.begin();
  auto next_b = b.references.begin();
  while (next_a != a.references.end() || next_b != b.references.end()) {
    const bool only_a = next_b == b.references.end() || (next_a != a.references.end() && next_a->word < next_b->word);
    const bool only_b = next_a == a.references.end() || (next_b != b.references.end() && next_b->word < next_a->word);
    const std::uint32_t word = only_b ? next_b->word : next_a->word;
    const bool same = !only_a && !only_b && same_memory(a, *next_a, b, *next_b);
    if (!same && !program::may_be_noise(a, b, word, ~std::uint64_t{0}, false)) return false;
    if (!same && noise != nullptr) noise->push_back(word);
    if (!only_b) ++next_a;
    if (!only_a) ++next_b;
  }
  return true;
}

}  // namespace

const std::vector<std::int64_t>& Observed::nothing() {
  static const std::vector<std::int64_t> none;
  return none;
}

std::uint32_t word_of(const Slot& slot) noexcept {
  return slot.kind == Slot::Kind::kLane ? slot.index / 2 : slot.index;
}

unsigned shift_of(const Slot& slot) noexcept { return slot.kind == Slot::Kind::kLane ? (slot.index & 1U) * 32 : 0; }

std::vector<Slot> slots_of(const Observed& observed) {
  const Program& program = observed.program;
  std::vector<Slot> slots;
  auto reference = program.references.begin();
  for (std::uint32_t i = 0; i < program.nodes.size(); ++i) {
    const RecordedNode& node = program.nodes[i];
    const bool kernel = node.kind == NodeKind::kKernel;
    for (std::uint32_t k = 0; kernel && k < kLaunchSlots; ++k) slots.push_back({Slot::Kind::kLaunch, i, k});
    for (std::uint32_t word = node.words_at; word < node.words_at + node.word_count; ++word) {
      while (reference != program.references.end() && reference->word < word) ++reference;
      const bool refers = reference != program.references.end() && reference->word == word;
      if (refers || !kernel) {
        slots.push_back({Slot::Kind::kWord, i, word});
      } else {
        slots.push_back({Slot::Kind::kLane, i, 2 * word});
        slots.push_back({Slot::Kind::kLane, i, 2 * word + 1});
      }
    }
  }
  const auto add = [&slots](Slot::Kind kind, std::size_t count) {
    for (std::uint32_t i = 0; i < count; ++i) slots.push_back({kind, 0, i});
  };
  add(Slot::Kind::kTemp, program.temps.size());
  add(Slot::Kind::kOutput, program.outputs.size());
  add(Slot::Kind::kInput, program.input_bytes.size());
  add(Slot::Kind::kIncrement, 1);
  add(Slot::Kind::kBeside, observed.beside.size());
  return slots;
}

std::int64_t value_at(const Observed& observed, const Slot& slot) noexcept {
  const Program& program = observed.program;
  const auto is = [](std::uint64_t value) { return static_cast<std::int64_t>(value); };
  switch (slot.kind) {
    case Slot::Kind::kLaunch:
      return launch_number(program.nodes[slot.node], slot.index);
    case Slot::Kind::kLane:
      return is(program.words[word_of(slot)] >> shift_of(slot) & UINT32_MAX);
    case Slot::Kind::kWord:
      return is(program.words[slot.index]);
    case Slot::Kind::kTemp:
      return is(program.temps[slot.index].bytes);
    case Slot::Kind::kOutput:
      return is(program.outputs[slot.index].bytes);
    case Slot::Kind::kInput:
      return is(program.input_bytes[slot.index]);
    case Slot::Kind::kBeside:
      return observed.beside[slot.index];
    case Slot::Kind::kIncrement:
      break;
  }
  return is(program.random_increment);
}

void set_value(Program& program, const Slot& slot, std::int64_t value) noexcept {
  const auto bits = static_cast<std::uint64_t>(value);
  switch (slot.kind) {
    case Slot::Kind::kLaunch:
      launch_number(program.nodes[slot.node], slot.index) = static_cast<std::uint32_t>(bits);
      return;
    case Slot::Kind::kLane: {
      std::uint64_t& word = program.words[word_of(slot)];
      const std::uint64_t mask = std::uint64_t{UINT32_MAX} << shift_of(slot);
      word = (word & ~mask) | (bits << shift_of(slot) & mask);
      return;
    }
    case Slot::Kind::kWord:
      program.words[slot.index] = bits;
      return;
    case Slot::Kind::kTemp:
      program.temps[slot.index].bytes = bits;
      return;
    case Slot::Kind::kOutput:
      program.outputs[slot.index].bytes = bits;
      return;
    case Slot::Kind::kInput:
      program.input_bytes[slot.index] = bits;
      return;
    case Slot::Kind::kIncrement:
      program.random_increment = bits;
      return;
    case Slot::Kind::kBeside:
      return;
  }
}

bool same_reference(const Program& a, const Program& b, std::uint32_t word) noexcept {
  const Reference *in_a = program::reference_at(a, word), *in_b = program::reference_at(b, word);
  return in_a != nullptr && in_b != nullptr && same_memory(a, *in_a, b, *in_b);
}

bool same_skeleton(const Program& a, const Program& b, const KernelIdentity& identity,
                   std::vector<std::uint32_t>* noise) {
  if (a.nodes.size() != b.nodes.size() || a.words.size() != b.words.size()) return false;
  for (std::size_t i = 0; i < a.nodes.size(); ++i) {
    const RecordedNode &node = a.nodes[i], &other = b.nodes[i];
    if (!same_node(node, other)) return false;
    if (node.kind == NodeKind::kKernel &&
        !same_kernel(a.functions[node.function], b.functions[other.function], identity)) {
      return false;
    }
  }
  return same_references(a, b, noise) && a.attributes == b.attributes && a.after == b.after &&
         a.host_data == b.host_data && same_lives(a.temps, b.temps) && same_lives(a.outputs, b.outputs) &&
         a.input_bytes.size() == b.input_bytes.size() && a.waited_events == b.waited_events &&
         a.recorded_events == b.recorded_events && a.waited_streams.size() == b.waited_streams.size();
}

}  // namespace grape::families
