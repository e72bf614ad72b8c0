// The numbers of a program, in one order: what differs between members of a family. All else is its skeleton.
// Core: no CUDA, no Python. Throws std::bad_alloc only.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "compressor/program/program.h"

namespace grape::families {

// One observed call: borrowed, for the time of a call.
struct Observed {
  // NOLINTNEXTLINE(google-explicit-constructor): a program is what most calls are
  Observed(const program::Program& its_program, const std::vector<std::int64_t>& its_beside = nothing(),
           std::uint64_t its_outside = 0)
      : program(its_program), beside(its_beside), outside(its_outside) {}
  static const std::vector<std::int64_t>& nothing();

  const program::Program& program;
  const std::vector<std::int64_t>& beside;  // numbers that are in no program: sizes of results
  std::uint64_t outside = 0;                // hash of all else that members of a regime have in common
};

// Where a number of a call stands.
struct Slot {
  enum class Kind : std::uint8_t {
    kLaunch,     // of a node: 0 to 2 the grid, 3 the shared bytes
    kLane,       // four bytes of a plain word: 2 * word + (0 lower, 1 upper)
    kWord,       // eight bytes: an offset in a block, bytes of a copy, width or pitch of a memset
    kTemp,       // bytes of a block that is born inside
    kOutput,     // the same of one that is alive after
    kInput,      // bytes of an argument's memory
    kIncrement,  // of the generator's offset
    kBeside,     // Observed::beside
  };
  Kind kind = Kind::kLane;
  std::uint32_t node = 0;   // kLaunch, kLane, kWord; else 0
  std::uint32_t index = 0;  // which: see there; of a word in Program::words, of a block in its list
};

// Of a lane or a word: its word in Program::words, and at which bit of that it begins.
std::uint32_t word_of(const Slot& slot) noexcept;
unsigned shift_of(const Slot& slot) noexcept;

// Of one call. They are places in all calls with the same skeleton.
std::vector<Slot> slots_of(const Observed& observed);

std::int64_t value_at(const Observed& observed, const Slot& slot) noexcept;
void set_value(program::Program& program, const Slot& slot, std::int64_t value) noexcept;  // not of kBeside

// Kernels with the same number are the same code. cuDNN loads a kernel anew for each shape, with another handle.
using KernelIdentity = std::function<std::uint64_t(const program::FunctionInfo&)>;

// Do both refer to the same memory in this word?
bool same_reference(const program::Program& a, const program::Program& b, std::uint32_t word) noexcept;

// The same but for the values in slots: kernels and their order, launches' kinds, blocks and attributes, which words
// refer to which blocks, births and deaths, statics, events, host data. Blocks of threads are no slots: their size is a
// power of two mostly, and other values follow from it. Words that random state stands in are references as well.
// `noise`: words that may be padding, where the programs refer to different memory, or one to none; null: nobody asks.
// Ascending. `identity`: null: the handle.
bool same_skeleton(const program::Program& a, const program::Program& b, const KernelIdentity& identity = nullptr,
                   std::vector<std::uint32_t>* noise = nullptr);

}  // namespace grape::families
