#include "python_hooks/install/install.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "python_hooks/control/controller.h"
#include "python_hooks/interpreter/code_deaths.h"
#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/dict_versions.h"
#include "python_hooks/observation/host_effects.h"
#include "python_hooks/scopes/frames.h"
#include "shim/lifecycle/blocked_signals.h"
#include "shim/lifecycle/clock.h"
#include "shim/lifecycle/config.h"
#include "shim/lifecycle/hot.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/lifecycle/log.h"

namespace grape::python::install {

GRAPE_HOT std::atomic<bool> g_settled{false};

namespace {

constexpr std::int64_t kLookEvery = 100;         // milliseconds, while there is something left to install
constexpr std::int64_t kLookAtMostEvery = 3200;  // where there is no interpreter
constexpr std::int64_t kFirstPatience = 200;     // with the main thread, while others call the driver
constexpr std::int64_t kMostPatience = 3200;

std::atomic<bool> g_looking{false};
std::atomic<bool> g_requested{false};  // the pending call is on its way
std::atomic<std::int64_t> g_next_look{0};
std::atomic<bool> g_thread_runs{false};  // the one that installs

// Only the thread that holds g_looking.
bool g_loaded = false;
std::int64_t g_pause = kLookEvery;
std::int64_t g_patience_ends = 0, g_patience = kFirstPatience;

// Only with the GIL.
bool g_watching_exit = false;
bool g_frames_settled = false;
bool g_said_version = false;
bool g_installing = false;

// Python ends the threads that want the GIL when it has begun to finalize; ours is not to be in the midst of things
// then.
void wait_for_thread() noexcept {
  constexpr int kMostWaits = 5000;
  for (int i = 0; i < kMostWaits && g_thread_runs.load() && lifecycle::active(); ++i) {
    ThreadState* state = g_api.PyEval_SaveThread();
    usleep(1000);
    g_api.PyEval_RestoreThread(state);
  }
}

Object* note_shutdown(Object*, Object*) {
  wait_for_thread();
  if (!g_shutdown.exchange(true) && config().mode == Mode::kReplay) control::write_report();
  return new_reference(g_api._Py_NoneStruct);
}

// Thread states are torn down while other threads may still be in a driver call: stop well before, at exit.
void watch_exit() noexcept {
  static MethodDefinition definition = {"grape_note_shutdown", reinterpret_cast<void*>(note_shutdown), 4, nullptr};
  Object* module = imported_module("atexit");
  if (module == nullptr) return;
  Object* function = g_api.PyCFunction_NewEx(&definition, nullptr, nullptr);
  const Reference result(function != nullptr ? g_api.PyObject_CallMethod(module, "register", "N", function) : nullptr);
  g_watching_exit = static_cast<bool>(result);
}

// False: the program's exception is set and must go on.
bool install_frames() noexcept {
  if (config().stacks == Stacks::kOff) {
    g_frames_settled = true;
    return true;
  }
  const scopes::FrameCheck check = scopes::check_frames();
  if (check == scopes::FrameCheck::kPassed) {
    watch_code_deaths();
    scopes::allow_frames();
    log_line(LogLevel::kDebug, "Python positions: on");
  } else if (check == scopes::FrameCheck::kDiffers) {
    notice("no Python positions: the frames of Python %.40s are not as expected", g_api.Py_GetVersion());
  }
  g_frames_settled = check == scopes::FrameCheck::kPassed || check == scopes::FrameCheck::kDiffers;
  return check != scopes::FrameCheck::kRaised;
}

// What the first call would have to make otherwise: as the program loads, not in its first step.
void prepare() noexcept {
  ask_dictionaries();
  static_cast<void>(observation::find_effects());
}

bool ready() noexcept {
  return lifecycle::active() && !shutting_down() && g_api.PyInterpreterState_Get() == g_api.PyInterpreterState_Main();
}

// False: the program's exception is set and must go on.
bool install_all() noexcept {
  // Nobody has asked for anything, and there is nothing to replay.
  if (!config().asked && imported_module("torch") == nullptr) return true;
  lifecycle::begin();
  if (!g_said_version) {
    g_said_version = true;
    record::set_python_version(g_api.Py_GetVersion());
    if (!check_text()) notice("Python: names cannot be read");
  }
  if (!g_watching_exit) watch_exit();
  if (!g_frames_settled && !install_frames()) return false;
  const bool complete = install_regions();
  if (config().mode == Mode::kReplay) prepare();
  if (complete && g_frames_settled) g_settled.store(true, std::memory_order_relaxed);
  return true;
}

// With the GIL, between two instructions of some Python code. False: the program's exception is set and must go on.
bool install() noexcept {
  if (!ready() || g_installing) return true;
  Object *type, *value, *traceback;
  g_api.PyErr_Fetch(&type, &value, &traceback);
  g_installing = true;  // it runs Python code, and another thread may come here meanwhile
  bool raised = !install_all();
  g_installing = false;
  if (type != nullptr) {
    g_api.PyErr_Restore(type, value, traceback);
    raised = false;
  }
  return !raised;
}

int on_pending_call(void*) {
  g_requested.store(false);
  return install() ? 0 : -1;
}

// Python may end this thread (pthread_exit) while it waits for the GIL: nothing here must mind.
extern "C" void* install_in_a_thread(void*) {
  const int state = g_api.PyGILState_Ensure();
  if (!install()) g_api.PyErr_Clear();
  g_thread_runs.store(false);
  g_api.PyGILState_Release(state);
  return nullptr;
}

bool is_main_thread() noexcept { return syscall(SYS_gettid) == getpid(); }

void start_thread() noexcept {
  g_thread_runs.store(true);
  const BlockedSignals blocked;
  pthread_t thread;
  if (pthread_create(&thread, nullptr, install_in_a_thread, nullptr) == 0) {
    pthread_detach(thread);
  } else {
    g_thread_runs.store(false);
  }
}

void request(std::int64_t time) noexcept {
  if (!g_requested.exchange(true)) {
    g_patience_ends = time + g_patience;
    if (g_api.Py_AddPendingCall(on_pending_call, nullptr) != 0) g_requested.store(false);
  } else if (time >= g_patience_ends && !g_thread_runs.load() && !is_main_thread()) {
    g_patience = std::min(2 * g_patience, kMostPatience);
    g_patience_ends = time + g_patience;
    start_thread();
  }
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
    } else {
      request(time);
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

}  // namespace grape::python::install
