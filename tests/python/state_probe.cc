// The probe's part for tests of python_hooks/state: what the guards are called with by Grape itself, called by ctypes
// with the GIL held.
#include <chrono>
#include <string>

#include "python_hooks/state/executed_code.h"
#include "python_hooks/state/torch_api.h"

using grape::python::state::ExecutedCode;

#define PROBE extern "C" __attribute__((visibility("default")))

PROBE int probe_load_torch() { return grape::python::state::load_torch_api() ? 1 : 0; }
PROBE void* probe_code_new() { return new ExecutedCode; }
PROBE void probe_code_delete(void* code) { delete static_cast<ExecutedCode*>(code); }
PROBE int probe_code_begin(void* code) { return static_cast<ExecutedCode*>(code)->begin() ? 1 : 0; }
PROBE int probe_code_end(void* code) { return static_cast<ExecutedCode*>(code)->end() ? 1 : 0; }
PROBE const char* probe_code_reason(void* code) { return static_cast<ExecutedCode*>(code)->reason().c_str(); }

using grape::python::state::GlobalsGuard;

namespace {
std::string g_reason;
}

PROBE void* probe_globals_take(void* code) {
  g_reason.clear();
  return GlobalsGuard::take(*static_cast<ExecutedCode*>(code), g_reason).release();
}
PROBE const char* probe_globals_reason() { return g_reason.c_str(); }
PROBE void probe_globals_delete(void* guard) { delete static_cast<GlobalsGuard*>(guard); }
PROBE int probe_globals_holds(void* guard) { return static_cast<GlobalsGuard*>(guard)->holds() ? 1 : 0; }
PROBE const char* probe_globals_change(void* guard) { return static_cast<GlobalsGuard*>(guard)->change().c_str(); }
// Microseconds that a holds() takes, on average.
PROBE double probe_globals_time(void* guard, int calls) {
  const auto start = std::chrono::steady_clock::now();
  bool all = true;
  for (int i = 0; i < calls; ++i) all = static_cast<GlobalsGuard*>(guard)->holds() && all;
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
  return all ? time.count() / calls : -1;
}
