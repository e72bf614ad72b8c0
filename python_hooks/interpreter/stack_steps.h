// What single instructions of a code object do with local variables and with the top of the interpreter's stack. With
// the GIL.
#pragma once

#include <cstddef>
#include <cstdint>

#include "python_hooks/interpreter/cpython.h"

namespace grape::python {

struct StackStep {
  enum class Kind : std::uint8_t {
    kUnknown,   // anything, but it neither reads nor sets a local variable
    kAnyLocal,  // anything, with a local variable
    kLocals,    // what `locals` say, in their order
    kMoves,     // takes `pops` values, and leaves `pushes` others
    kCopy,      // pushes what is `depth` values down: 1 is the top
    kSwap,      // the top changes places with that
    kDrop,      // gives the top up
    kCompare,   // takes two values, and leaves the outcome, or only whether it is true (`asks`)
    kTruth,     // takes the top, and leaves whether it is true, or whether it is not
    kBranch,    // takes the top, and goes on at `target` or at `next`, as it is true or not
  };
  struct Local {
    enum class Use : std::uint8_t { kNone, kReads, kSets, kDeletes };  // kSets: takes the top
    Use use = Use::kNone;
    std::uint16_t variable = 0;
  };

  Kind kind = Kind::kUnknown;
  bool asks = false;
  std::uint32_t pops = 0, pushes = 0, depth = 0;
  Local locals[2];
  std::size_t next = 0, target = 0;  // bytes of the code, past prefixes
};

// Are the interpreter's instructions known (module `opcode`)? Precondition of the following.
bool stack_steps_known() noexcept;
// Of the instruction at so many bytes of `instructions`, a code object's co_code. False: a prefix of one stands there.
bool stack_step_at(Object* instructions, std::size_t offset, StackStep& out) noexcept;

}  // namespace grape::python
