// Which local variables the instructions of a code object read and set. With the GIL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "python_hooks/interpreter/cpython.h"

namespace grape::python::state {

// Of one instruction.
struct LocalUse {
  static constexpr std::uint16_t kNone = 0xffff, kAny = 0xfffe;
  std::uint16_t sets = kNone;               // what is on top of the stack goes there
  std::uint16_t reads[2] = {kNone, kNone};  // kAny in the first: not known which
  bool drops = false;                       // what is on top of the stack is given up
};

class LocalUses {
 public:
  // False: no memory, or this interpreter's instructions are not known (module `opcode`).
  bool read(Object* code) noexcept;
  // Of the instruction at so many bytes; null: there is none.
  const LocalUse* at(std::size_t offset) const noexcept {
    return offset / 2 < uses_.size() ? &uses_[offset / 2] : nullptr;
  }
  // Where the instruction behind the one at `offset` begins, past its caches.
  std::size_t behind(std::size_t offset) const noexcept;

 private:
  std::vector<LocalUse> uses_;  // for each two bytes
  std::vector<bool> begins_;    // of these: does an instruction?
};

}  // namespace grape::python::state
