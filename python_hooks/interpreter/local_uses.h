// Which local variables an instruction of a code object reads and sets. With the GIL.
#pragma once

#include <cstddef>
#include <cstdint>

#include "python_hooks/interpreter/cpython.h"

namespace grape::python {

struct LocalUse {
  static constexpr std::uint16_t kNone = 0xffff, kAny = 0xfffe;
  std::uint16_t sets = kNone;               // what is on top of the stack goes there
  std::uint16_t reads[2] = {kNone, kNone};  // kAny in the first: not known which
  bool drops = false;                       // what is on top of the stack is given up
};

// Are the interpreter's instructions known (module `opcode`)? Precondition of the following.
bool local_uses_known() noexcept;
// Of the instruction at so many bytes of `instructions`, a code object's co_code.
LocalUse local_use_at(Object* instructions, std::size_t offset) noexcept;
// Where the instruction behind that one begins, past its caches.
std::size_t next_instruction(Object* instructions, std::size_t offset) noexcept;

}  // namespace grape::python
