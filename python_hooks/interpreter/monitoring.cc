#include "python_hooks/interpreter/monitoring.h"

#include <initializer_list>

#include "python_hooks/interpreter/cpython_objects.h"

namespace grape::python {
namespace {

constexpr long kMethodVarargs = 1;
constexpr char kToolName[] = "grape";

struct Monitoring {
  Object* module = nullptr;  // a reference, for good; null: this interpreter has none
  long instruction = 0, call = 0;
  long tool = -1;  // ours; -1: none
};
Monitoring g_monitoring;

// Calls the module's function with arguments by `format` (Py_BuildValue). False: it raised, which is cleared.
template <typename... Arguments>
bool done(const char* function, const char* format, Arguments... arguments) noexcept {
  const Reference result(g_api.PyObject_CallMethod(g_monitoring.module, function, format, arguments...));
  return static_cast<bool>(result);
}

long event(Object* events, const char* name) noexcept {
  const Reference value(g_api.PyObject_GetAttrString(events, name));
  return value ? g_api.PyLong_AsLong(value.get()) : 0;
}

bool find_module() noexcept {
  if (g_monitoring.module != nullptr) return true;
  Object* sys = imported_module("sys");
  if (sys == nullptr || g_layout.minor < 12) return false;
  const Reference module(g_api.PyObject_GetAttrString(sys, "monitoring"));
  const Reference events(module ? g_api.PyObject_GetAttrString(module.get(), "events") : nullptr);
  if (events) {
    g_monitoring.instruction = event(events.get(), "INSTRUCTION");
    g_monitoring.call = event(events.get(), "CALL");
  }
  g_api.PyErr_Clear();
  if (g_monitoring.instruction <= 0 || g_monitoring.call <= 0) return false;
  g_monitoring.module = new_reference(module.get());
  return true;
}

bool take_tool() noexcept {
  for (const long tool : {4L, 3L}) {
    const Reference taken_by(g_api.PyObject_CallMethod(g_monitoring.module, "get_tool", "l", tool));
    if (taken_by.get() != g_api._Py_NoneStruct || !done("use_tool_id", "ls", tool, kToolName)) continue;
    g_monitoring.tool = tool;
    return true;
  }
  return false;
}

Object* function_of(MethodDefinition& definition, MonitoringFunction function) noexcept {
  definition = {kToolName, reinterpret_cast<void*>(function), kMethodVarargs, nullptr};
  return g_api.PyCFunction_NewEx(&definition, nullptr, nullptr);
}

}  // namespace

bool begin_monitoring(MonitoringFunction on_instruction, MonitoringFunction on_call) noexcept {
  static MethodDefinition instruction, call;
  const KeepException keep;
  if (g_monitoring.tool >= 0 || !find_module() || !take_tool()) return false;
  const long tool = g_monitoring.tool;
  if (done("register_callback", "llN", tool, g_monitoring.instruction, function_of(instruction, on_instruction)) &&
      done("register_callback", "llN", tool, g_monitoring.call, function_of(call, on_call))) {
    return true;
  }
  end_monitoring();
  return false;
}

bool monitor(Object* code, bool on) noexcept {
  const KeepException keep;
  if (g_monitoring.tool < 0) return false;
  const long events = on ? g_monitoring.instruction | g_monitoring.call : 0;
  return done("set_local_events", "lOl", g_monitoring.tool, code, events);
}

void end_monitoring() noexcept {
  const KeepException keep;
  const long tool = g_monitoring.tool;
  if (tool < 0) return;
  for (const long event : {g_monitoring.instruction, g_monitoring.call}) {
    done("register_callback", "llO", tool, event, g_api._Py_NoneStruct);
  }
  done("free_tool_id", "l", tool);
  g_monitoring.tool = -1;
}

}  // namespace grape::python
