#include "python_hooks/interpreter/observers.h"

#include <cstdio>
#include <string_view>

#include "python_hooks/interpreter/code_origin.h"
#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/texts.h"

namespace grape::python {
namespace {

constexpr std::size_t kTools = 6, kCoverageTool = 1;  // of sys.monitoring, from 3.12

// What is asked, references held for good; null: this interpreter has none.
struct Getters {
  Object *trace = nullptr, *profile = nullptr;     // sys.gettrace, sys.getprofile
  Object *tool = nullptr, *tool_events = nullptr;  // sys.monitoring.get_tool, get_events
  Object* tools[kTools] = {};                      // their argument
};

Getters make_getters() noexcept {
  Getters getters;
  Object* const sys = imported_module("sys");
  if (sys == nullptr) return getters;
  getters.trace = g_api.PyObject_GetAttrString(sys, "gettrace");
  getters.profile = g_api.PyObject_GetAttrString(sys, "getprofile");
  const Reference monitoring(g_api.PyObject_GetAttrString(sys, "monitoring"));
  if (monitoring) {
    getters.tool = g_api.PyObject_GetAttrString(monitoring.get(), "get_tool");
    getters.tool_events = g_api.PyObject_GetAttrString(monitoring.get(), "get_events");
    for (std::size_t i = 0; i < kTools; ++i) getters.tools[i] = g_api.PyLong_FromLong(static_cast<long>(i));
  }
  g_api.PyErr_Clear();
  return getters;
}

const Getters& getters() noexcept {
  static const Getters made = make_getters();
  return made;
}

bool gives_none(Object* getter, Object* argument = nullptr) noexcept {
  const Reference answer(g_api.PyObject_CallFunctionObjArgs(getter, argument, nullptr));
  return answer.get() == g_api._Py_NoneStruct;
}

// A debugger or a coverage tool may watch single functions, which cannot be asked for; others count while they watch
// all code.
bool is_monitored(const Getters& get) noexcept {
  for (std::size_t i = 0; get.tool != nullptr && get.tool_events != nullptr && i < kTools; ++i) {
    if (gives_none(get.tool, get.tools[i])) continue;
    if (i <= kCoverageTool) return true;
    const Reference events(g_api.PyObject_CallFunctionObjArgs(get.tool_events, get.tools[i], nullptr));
    if (!events || g_api.PyLong_AsLong(events.get()) != 0) return true;
  }
  return false;
}

std::string place_of(Object* frame, Object* code) {
  char path[1024], line[16];
  Object* file = field<Object*>(code, g_layout.code_file);
  const std::string_view name(path, copy_text(file, path, sizeof(path)));
  std::snprintf(line, sizeof(line), ":%d", g_api.PyFrame_GetLineNumber(frame));
  return std::string(last_two_parts(name)).append(line);
}

}  // namespace

Observer observer_of_thread() noexcept {
  const Getters& get = getters();
  if (get.trace == nullptr || !gives_none(get.trace)) return Observer::kTracer;
  if (get.profile == nullptr || !gives_none(get.profile)) return Observer::kProfiler;
  return is_monitored(get) ? Observer::kMonitor : Observer::kNone;
}

bool others_observe() noexcept {
  if (observer_of_thread() != Observer::kNone) return true;
  for (const char* name : {"_trace_hook", "_profile_hook"}) {
    Object* hook = module_member("threading", name);
    if (hook != nullptr && hook != g_api._Py_NoneStruct) return true;
  }
  return false;
}

bool other_threads() noexcept {
  return g_api.PyThreadState_Next(g_api.PyInterpreterState_ThreadHead(g_api.PyInterpreterState_Get())) != nullptr;
}

std::string current_place() {
  std::string place;
  Object* caller = nullptr;
  for (Object* frame = g_api.PyThreadState_GetFrame(g_api.PyThreadState_Get()); frame != nullptr; frame = caller) {
    const Reference held(frame);
    const Reference code(g_api.PyFrame_GetCode(frame));
    const bool standard = origin_of(code.get(), nullptr) == CodeOrigin::kStandard;
    if (place.empty() || !standard) place = place_of(frame, code.get());
    caller = standard ? g_api.PyFrame_GetBack(frame) : nullptr;
  }
  return place;
}

}  // namespace grape::python
