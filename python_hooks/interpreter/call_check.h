// Checks that the interpreter reports all calls, and that its frames are laid out as the table says. With the GIL, no
// exception set.
#pragma once

namespace grape::python {

enum class CallCheck { kPassed, kFailed, kLater };  // kLater: not possible now

// Runs some code under hook_calls().
CallCheck check_calls() noexcept;

}  // namespace grape::python
