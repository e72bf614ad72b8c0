// Keeps sampled Python stacks of all threads as a tree of functions. Names are copied while the function's frame runs,
// so no object of the interpreter is kept.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "python_hooks/discovery/outside_choice.h"
#include "python_hooks/interpreter/flat_map.h"
#include "python_hooks/scopes/stack_tree.h"

namespace grape::python::discovery {

// By what it is told from others, since addresses are used again.
struct SampledCode : CalledCode {
  std::string file, name;  // the name is qualified from Python 3.11 on
  int line = 0;            // the first one
  std::uint64_t hash = 0;  // of all three
  bool calls_itself = false;
  // Of a candidate, see name_codes():
  std::string region;          // "package.module:Qualified.name"
  Object* function = nullptr;  // of that name, borrowed from its module or class
};

// The same of a code object that is alive; without the texts, those are not set.
void read_code(const Object* code, SampledCode& out, bool with_texts);

// Finds out which of them are candidates, and which train. A candidate is only a function that is found by its name, as
// those in GRAPE_REGIONS are; none is PyTorch's or the standard library's, cannot be replayed, or is a region. With the
// GIL. Runs no code of the program's, leaves no exception; may throw std::bad_alloc.
void name_codes(std::vector<SampledCode>& codes);

// What there is no room for counts where it was called from.
class SampledStacks {
 public:
  static constexpr std::size_t kMostCodes = 4096, kMostNodes = 4096;

  // Adds the calling thread's stack as it is now, unless another thread is at it. With or without the GIL; may throw
  // std::bad_alloc. Precondition: frames were checked (frames.h).
  void add(std::uint64_t weight, bool gradients);
  // All functions of that stack call modules. The same.
  void add_callers();

  void copy(std::vector<SampledCode>& codes, std::vector<CallNode>& nodes);

 private:
  static constexpr std::uint32_t kNone = ~0u;
  static constexpr std::size_t kMostAddresses = 4 * kMostCodes;
  struct ChildKey {
    std::uint32_t parent, code_and_one;
    bool empty() const noexcept { return code_and_one == 0; }
    std::uint64_t hash() const noexcept { return mix(std::uint64_t{parent} << 32 | code_and_one); }
    bool operator==(const ChildKey& other) const noexcept {
      return parent == other.parent && code_and_one == other.code_and_one;
    }
  };

  void forget_dead_codes() noexcept;
  std::uint32_t code_at(std::uintptr_t address);
  std::uint32_t child_of(std::uint32_t node, std::uint32_t code, std::uintptr_t instruction);

  std::mutex mutex_;
  std::uint32_t epoch_ = 0;
  std::vector<SampledCode> codes_;
  std::vector<CallNode> nodes_;
  std::vector<std::uint32_t> met_;                 // by code: in which stack last
  std::uint32_t stacks_ = 0;                       // that were added
  std::vector<std::uintptr_t> instructions_;       // by node: where it was seen first, from its code's begin
  std::size_t addresses_ = 0;                      // in by_address_
  FlatMap<AddressKey, std::uint32_t> by_address_;  // void when a code object has died
  FlatMap<HashKey, std::uint32_t> by_hash_;
  FlatMap<ChildKey, std::uint32_t> by_parent_;
  scopes::RawFrame frames_[scopes::kMaxDepth];
};

}  // namespace grape::python::discovery
