// Does this interpreter tell of all calls, and are its frames laid out as the table says? With the GIL, no exception
// set.
#pragma once

namespace grape::python::state {

enum class CallCheck { kPassed, kFailed, kLater };

// Runs some code under hook_calls().
CallCheck check_calls() noexcept;

}  // namespace grape::python::state
