#include "python_hooks/interpreter/call_hook.h"

#include <cstdint>
#include <initializer_list>

#include "python_hooks/interpreter/call_check.h"
#include "python_hooks/interpreter/cpython.h"
#include "shim/lifecycle/log.h"

namespace grape::python {
namespace {

struct Listener {
  OnFrame on_frame = nullptr;  // null: this thread is not listened to
  void* context = nullptr;
  bool profiles = false;  // our profile function is set
  bool displaced = false;
  int depth = 0;           // calls that wait for others
  std::uint32_t gaps = 0;  // g_gaps as it began
};

// From 3.11 calls between Python functions take no room on the C stack, and those that are listened to do: code that
// nests deeper than this goes on unheard.
constexpr int kDeepest = 300;
__thread Listener t_listener __attribute__((tls_model("initial-exec")));

unsigned g_hooked = 0;     // listeners on all threads
std::uint32_t g_gaps = 0;  // times at which some of them heard nothing for a while
enum class Check { kOpen, kPassed, kFailed } g_check = Check::kOpen;
bool g_profile_too = false;

// For versions that begin some frames without asking how to evaluate them: 3.11.2 does so for __getitem__, 3.13.0 for
// __init__, once specialised.
int on_profile(Object*, Object* frame_object, int event, Object*) {
  constexpr int kCall = 0;
  if (event == kCall && t_listener.on_frame != nullptr) {
    t_listener.on_frame(t_listener.context, frame_of(frame_object));
  }
  return 0;
}

Object* evaluate(ThreadState* thread, void* frame, int thrown);

void* current() noexcept { return g_api._PyInterpreterState_GetEvalFrameFunc(g_api.PyInterpreterState_Get()); }
void* ours() noexcept { return reinterpret_cast<void*>(evaluate); }
void* default_evaluation() noexcept { return reinterpret_cast<void*>(g_api._PyEval_EvalFrameDefault); }

void set_evaluation(void* function) noexcept {
  g_api._PyInterpreterState_SetEvalFrameFunc(g_api.PyInterpreterState_Get(), function);
}

Object* evaluate(ThreadState* thread, void* frame, int thrown) {
  Listener& listener = t_listener;
  if (listener.on_frame != nullptr) {
    if (current() != ours()) listener.displaced = true;
    listener.on_frame(listener.context, frame);
    if (listener.depth >= kDeepest && !g_layout.frame_objects) {
      ++g_gaps;
      if (current() == ours()) set_evaluation(default_evaluation());
    }
    ++listener.depth;
    Object* result = g_api._PyEval_EvalFrameDefault(thread, frame, thrown);
    --listener.depth;  // of no meaning where the listener has gone meanwhile
    return result;
  }
  if (g_hooked == 0 && current() == ours()) {
    set_evaluation(default_evaluation());  // somebody has put ours back, who found it there
  }
  return g_api._PyEval_EvalFrameDefault(thread, frame, thrown);
}

void start(OnFrame on_frame, void* context) noexcept {
  if (current() != ours()) {
    if (g_hooked != 0) ++g_gaps;
    set_evaluation(ours());
  }
  ++g_hooked;
  t_listener = {on_frame, context, false, false, 0, g_gaps};
  if (!g_profile_too) return;
  g_api.PyEval_SetProfile(on_profile, nullptr);
  t_listener.profiles = true;
}

// Once: frames are told, each, and are laid out as expected.
void check() noexcept {
  for (const bool profile_too : {false, true}) {
    if (profile_too && g_layout.frame_objects) break;
    g_profile_too = profile_too;
    const CallCheck result = check_calls();
    if (result == CallCheck::kLater) {
      g_profile_too = false;
      g_check = Check::kOpen;
      return;
    }
    if (result == CallCheck::kPassed) {
      g_check = Check::kPassed;
      return;
    }
  }
  g_check = Check::kFailed;
  notice("no replay: the calls of Python %.40s are not as expected", g_api.Py_GetVersion());
}

}  // namespace

bool hook_calls(OnFrame on_frame, void* context) noexcept {
  if (g_api._PyInterpreterState_SetEvalFrameFunc == nullptr || g_api._PyInterpreterState_GetEvalFrameFunc == nullptr ||
      g_api._PyEval_EvalFrameDefault == nullptr) {
    return false;
  }
  if (g_check == Check::kFailed || t_listener.on_frame != nullptr) return false;
  if (current() != ours() && !runs_plainly()) return false;
  if (g_check == Check::kOpen) {
    g_check = Check::kPassed;  // for the check's own calls
    check();
    if (g_check != Check::kPassed) return false;
  }
  start(on_frame, context);
  return true;
}

bool unhook_calls() noexcept {
  const Listener listener = t_listener;
  t_listener = {};
  if (listener.profiles) g_api.PyEval_SetProfile(nullptr, nullptr);
  const bool replaced = current() != ours();
  // A function that has taken our place may still call ours, which then just goes on.
  if (--g_hooked == 0 && !replaced) set_evaluation(default_evaluation());
  return !replaced && !listener.displaced && listener.gaps == g_gaps;
}

void leave_profile() noexcept { t_listener.profiles = false; }

}  // namespace grape::python
