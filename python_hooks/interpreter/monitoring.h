// The interpreter's reports of instructions and calls in single code objects (sys.monitoring, from Python 3.12). Uses
// one of the two tool numbers that are not reserved for a kind of tool. With the GIL.
#pragma once

#include "python_hooks/interpreter/cpython.h"

namespace grape::python {

// A function of Python's: (code, offset, ...) as the event has it. It returns None.
using MonitoringFunction = Object* (*)(Object* self, Object* arguments);

// Takes a tool number, and calls these functions at each instruction and each call of monitored code, on any thread.
// False: this interpreter has no such reports, or both numbers are taken.
bool begin_monitoring(MonitoringFunction on_instruction, MonitoringFunction on_call) noexcept;
// Starts or stops monitoring of `code`, frames that run already included. False: not done.
bool monitor(Object* code, bool on) noexcept;
// Gives the number back. Precondition: no code is monitored.
void end_monitoring() noexcept;

}  // namespace grape::python
