// The probe's part for tests of python_hooks/state: what the guards are called with by Grape itself, called by ctypes
// with the GIL held.
#include "python_hooks/state/executed_code.h"

using grape::python::state::ExecutedCode;

#define PROBE extern "C" __attribute__((visibility("default")))

PROBE void* probe_code_new() { return new ExecutedCode; }
PROBE void probe_code_delete(void* code) { delete static_cast<ExecutedCode*>(code); }
PROBE int probe_code_begin(void* code) { return static_cast<ExecutedCode*>(code)->begin() ? 1 : 0; }
PROBE int probe_code_end(void* code) { return static_cast<ExecutedCode*>(code)->end() ? 1 : 0; }
PROBE const char* probe_code_reason(void* code) { return static_cast<ExecutedCode*>(code)->reason().c_str(); }
