// The interpreter's own reports of instructions and calls (sys.monitoring, from Python 3.12), of single code objects.
// By one of the two tool numbers that no kind of tool has by custom. With the GIL.
#pragma once

#include "python_hooks/interpreter/cpython.h"

namespace grape::python::state {

// A function of Python's: (code, offset, ...) as the event has it. It returns None.
using MonitoringFunction = Object* (*)(Object* self, Object* arguments);

// Takes a tool number, and calls these at each instruction and at each call of the code that is monitored, on whichever
// thread. False: this interpreter has no such reports, or all numbers are taken.
bool begin_monitoring(MonitoringFunction on_instruction, MonitoringFunction on_call) noexcept;
// Of this code from now on, also of its frames that run already; or no longer. False: not done.
bool monitor(Object* code, bool on) noexcept;
// Gives the number back. Precondition: no code is monitored.
void end_monitoring() noexcept;

}  // namespace grape::python::state
