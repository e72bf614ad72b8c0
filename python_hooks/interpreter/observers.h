// Who else watches Python code run: tracers, profilers, debuggers, coverage tools, other threads. With the GIL.
#pragma once

#include <string>

namespace grape::python {

// Who traces or profiles this thread; kMonitor: a debugger or a coverage tool is registered, or another tool watches
// all code (sys.monitoring). Calls into `sys`.
enum class Observer { kNone, kTracer, kProfiler, kMonitor };
Observer observer_of_thread() noexcept;

// Is there one, or will threads that start be traced or profiled?
bool others_observe() noexcept;

// Are there other threads of Python's? They may run Python code whenever a call releases the GIL.
bool other_threads() noexcept;

// "net/model.py:12": the place of the innermost code outside of the standard library; empty: there is none.
std::string current_place();

}  // namespace grape::python
