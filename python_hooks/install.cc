// When the hooks are installed: from the first driver call on, by a pending call in the interpreter's main thread.
#include <atomic>
#include <cerrno>

#include "python_hooks/code_deaths.h"
#include "python_hooks/cpython.h"
#include "python_hooks/frames.h"
#include "python_hooks/python_hooks.h"
#include "python_hooks/regions.h"
#include "python_hooks/replay/report.h"
#include "shim/lifecycle/clock.h"
#include "shim/lifecycle/config.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/lifecycle/log.h"

namespace grape::python {

std::atomic<bool> g_settled{false};

namespace {

constexpr std::int64_t kLookEvery = 100;         // milliseconds, while there is something left to install
constexpr std::int64_t kLookAtMostEvery = 3200;  // where there is no interpreter

std::atomic<bool> g_looking{false};
std::atomic<bool> g_requested{false};  // the pending call is on its way
std::atomic<std::int64_t> g_next_look{0};

// Only the thread that holds g_looking.
bool g_loaded = false;
std::int64_t g_pause = kLookEvery;

// Only with the GIL.
bool g_watching_exit = false;
bool g_frames_settled = false;
bool g_said_version = false;

Object* note_shutdown(Object*, Object*) {
  if (!g_shutdown.exchange(true) && config().mode == Mode::kReplay) replay::write_report();
  g_api.Py_IncRef(g_api._Py_NoneStruct);
  return g_api._Py_NoneStruct;
}

// Thread states are torn down while other threads may still be in a driver call: stop well before, at exit.
void watch_exit() noexcept {
  static MethodDefinition definition = {"grape_note_shutdown", reinterpret_cast<void*>(note_shutdown), 4, nullptr};
  Object* module = imported_module("atexit");
  if (module == nullptr) return;
  const Reference enlist(g_api.PyObject_GetAttrString(module, "register"));
  const Reference function(g_api.PyCFunction_NewEx(&definition, nullptr, nullptr));
  const Reference arguments(g_api.PyTuple_New(1));
  if (!enlist || !function || !arguments) return;
  g_api.Py_IncRef(function.get());  // the tuple takes it
  g_api.PyTuple_SetItem(arguments.get(), 0, function.get());
  const Reference result(g_api.PyObject_CallObject(enlist.get(), arguments.get()));
  g_watching_exit = static_cast<bool>(result);
}

// False: the program's exception is set and must go on.
bool install_frames() noexcept {
  if (config().stacks == Stacks::kOff) {
    g_frames_settled = true;
    return true;
  }
  const FrameCheck check = check_frames();
  if (check == FrameCheck::kPassed) {
    watch_code_deaths();
    g_frames_checked.store(true, std::memory_order_release);
    log_line(LogLevel::kDebug, "Python positions: on");
  } else if (check == FrameCheck::kDiffers) {
    notice("no Python positions: the frames of Python %.40s are not as expected", g_api.Py_GetVersion());
  }
  g_frames_settled = check == FrameCheck::kPassed || check == FrameCheck::kDiffers;
  return check != FrameCheck::kRaised;
}

bool ready() noexcept {
  return lifecycle::active() && !shutting_down() && g_api.PyInterpreterState_Get() == g_api.PyInterpreterState_Main();
}

// False: the program's exception is set and must go on.
bool install_all() noexcept {
  // Nobody has asked for anything, and there is nothing to replay.
  if (!config().asked && imported_module("torch") == nullptr) return true;
  if (!g_said_version) {
    g_said_version = true;
    record::set_python_version(g_api.Py_GetVersion());
    if (!check_text()) notice("Python: names cannot be read");
  }
  if (!g_watching_exit) watch_exit();
  if (!g_frames_settled && !install_frames()) return false;
  const bool complete = install_regions();
  if (complete && g_frames_settled) g_settled.store(true, std::memory_order_relaxed);
  return true;
}

// The pending call: main thread, GIL held, between two instructions of some Python code.
int install(void*) {
  g_requested.store(false);
  if (!ready()) return 0;
  Object *type, *value, *traceback;
  g_api.PyErr_Fetch(&type, &value, &traceback);
  bool raised = !install_all();
  if (type != nullptr) {
    g_api.PyErr_Restore(type, value, traceback);
    raised = false;
  }
  return raised ? -1 : 0;
}

void look(std::int64_t time) noexcept {
  if (!g_loaded) {
    bool permanent = false;
    if (load_api(permanent)) {
      g_loaded = true;
      g_pause = kLookEvery;
    } else if (permanent) {
      g_settled.store(true, std::memory_order_relaxed);
    } else if (g_pause < kLookAtMostEvery) {
      g_pause *= 2;
    }
  }
  if (g_loaded && g_api.Py_IsInitialized() != 0) {
    if (shutting_down()) {
      g_settled.store(true, std::memory_order_relaxed);
    } else if (!g_requested.exchange(true) && g_api.Py_AddPendingCall(install, nullptr) != 0) {
      g_requested.store(false);
    }
  }
  g_next_look.store(time + g_pause, std::memory_order_relaxed);
}

}  // namespace

void look_if_due() noexcept {
  const std::int64_t time = coarse_milliseconds();
  if (time < g_next_look.load(std::memory_order_relaxed) || !lifecycle::active()) return;
  if (g_looking.exchange(true, std::memory_order_acquire)) return;
  const int saved = errno;
  look(time);
  errno = saved;
  g_looking.store(false, std::memory_order_release);
}

}  // namespace grape::python
