// Who else looks on as Python code runs? With the GIL.
#pragma once

#include <string>

namespace grape::python::state {

// Who traces or profiles this thread; kMonitor: a debugger or a coverage tool is registered, or another tool watches
// all code (sys.monitoring). Calls into `sys`.
enum class Observer { kNone, kTracer, kProfiler, kMonitor };
Observer observer_of_thread() noexcept;

// Is there one, or will threads that start be traced or profiled?
bool others_observe() noexcept;

// Are there other threads that run Python code? They may have, while a call gave the interpreter's lock away.
bool other_threads() noexcept;

// "model.py:12": where the innermost code that is not the standard library's stands; empty: nowhere.
std::string current_place();

}  // namespace grape::python::state
