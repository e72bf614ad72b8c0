// Changes of functions: from 3.12 on the interpreter calls a function before one gets other code or other defaults
// (PyFunction_AddWatcher). While nothing was reported none of them needs to be looked at, but for what their closures
// hold. With the GIL.
#pragma once

#include <cstdint>

namespace grape::python::state {

// Are such changes reported? Not before 3.12, nor where the last watcher is taken, nor once there was a second
// interpreter. Runs code of Grape's when it is asked for the first time: to be asked before anything is looked at.
bool functions_report() noexcept;
// How many were, of all functions of the process.
std::uint64_t function_changes() noexcept;

}  // namespace grape::python::state
