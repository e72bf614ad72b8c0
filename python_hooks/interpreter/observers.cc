#include "python_hooks/interpreter/observers.h"

#include <cstdio>
#include <string_view>

#include "python_hooks/interpreter/code_origin.h"
#include "python_hooks/interpreter/cpython.h"

namespace grape::python::state {
namespace {

// Is `module.name()`, with `argument` if it is one, something else than None and 0?
bool answers(Object* module, const char* name, long argument = -1) {
  const Reference function(g_api.PyObject_GetAttrString(module, name));
  if (!function) return false;
  const Reference arguments(g_api.PyTuple_New(argument >= 0 ? 1 : 0));
  if (!arguments) return true;
  if (argument >= 0) g_api.PyTuple_SetItem(arguments.get(), 0, g_api.PyLong_FromLong(argument));
  const Reference answer(g_api.PyObject_CallObject(function.get(), arguments.get()));
  if (!answer) return true;
  if (answer.get() == g_api._Py_NoneStruct) return false;
  const bool zero = g_api.PyLong_AsLong(answer.get()) == 0;
  g_api.PyErr_Clear();
  return !zero;
}

// sys.monitoring's tools, from 3.12. A debugger or a coverage tool may watch single functions, which cannot be asked
// for; others count while they watch all code.
bool monitored(Object* sys) {
  constexpr long kTools = 6, kCoverage = 1;
  const Reference monitoring(g_api.PyObject_GetAttrString(sys, "monitoring"));
  if (!monitoring) return false;
  for (long tool = 0; tool < kTools; ++tool) {
    if (!answers(monitoring.get(), "get_tool", tool)) continue;
    if (tool <= kCoverage || answers(monitoring.get(), "get_events", tool)) return true;
  }
  return false;
}

// "a/b/c.py" -> "b/c.py"
std::string_view last_two_parts(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos || slash == 0) return path;
  const std::size_t before = path.rfind('/', slash - 1);
  return before == std::string_view::npos ? path : path.substr(before + 1);
}

std::string place_of(Object* frame, Object* code) {
  char path[1024], line[16];
  Object* file = field<Object*>(code, g_layout.code_file);
  const std::string_view name(path, copy_text(file, path, sizeof(path)));
  std::snprintf(line, sizeof(line), ":%d", g_api.PyFrame_GetLineNumber(frame));
  return std::string(last_two_parts(name)).append(line);
}

}  // namespace

bool others_observe() noexcept {
  Object* sys = imported_module("sys");
  if (sys == nullptr || answers(sys, "gettrace") || answers(sys, "getprofile")) return true;
  Object* threading = imported_module("threading");
  Object* dict = threading != nullptr ? module_dict(threading) : nullptr;
  for (const char* name : {"_trace_hook", "_profile_hook"}) {
    Object* hook = dict != nullptr ? dict_item(dict, name) : nullptr;
    if (hook != nullptr && hook != g_api._Py_NoneStruct) return true;
  }
  return monitored(sys);
}

bool other_threads() noexcept {
  return g_api.PyThreadState_Next(g_api.PyInterpreterState_ThreadHead(g_api.PyInterpreterState_Get())) != nullptr;
}

std::string current_place() {
  std::string place;
  Object* frame = g_api.PyThreadState_GetFrame(g_api.PyThreadState_Get());
  while (frame != nullptr) {
    const Reference code(g_api.PyFrame_GetCode(frame));
    const bool standard = origin_of(code.get(), nullptr) == CodeOrigin::kStandard;
    if (place.empty() || !standard) place = place_of(frame, code.get());
    Object* caller = standard ? g_api.PyFrame_GetBack(frame) : nullptr;
    g_api.Py_DecRef(frame);
    frame = caller;
  }
  return place;
}

}  // namespace grape::python::state
