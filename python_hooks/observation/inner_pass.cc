#include "python_hooks/observation/inner_pass.h"

#include <chrono>
#include <new>
#include <thread>
#include <vector>

#include "python_hooks/bridge/loaded.h"
#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/observation/executed_code_state.h"
#include "python_hooks/torch/autograd_state.h"
#include "python_hooks/torch/torch_api.h"
#include "shim/lifecycle/config.h"
#include "shim/observation/call_scope.h"

namespace grape::python::observation {
namespace {

using grape::observation::CallScope;

// What run_backward() is given.
struct Pass {
  std::vector<bridge::Tensor> roots, handles;
  std::vector<Object*> inputs;  // with these handles
  bool keeps_graph = false;
};

Object* argument(Object* arguments, Object* keywords, std::size_t place, const char* name) noexcept {
  if (place < item_count(arguments)) return tuple_item(arguments, place);
  return keywords != nullptr ? dict_item(keywords, name) : nullptr;
}

// Tensors of torch's own kind, or, where that is allowed, None.
bool read_tensors(Object* tuple, bool may_be_none, std::vector<Object*>& tensors,
                  std::vector<bridge::Tensor>& handles) {
  if (tuple == nullptr || !is_exactly(tuple, g_api.PyTuple_Type)) return false;
  for (std::size_t i = 0; i < item_count(tuple); ++i) {
    Object* const item = tuple_item(tuple, i);
    if (may_be_none && item == g_api._Py_NoneStruct) continue;
    torch::TensorView view;
    if (!torch::is_plain_tensor(item) || !torch::view_tensor(item, view)) return false;
    tensors.push_back(item);
    handles.push_back(view.handle);
  }
  return true;
}

// False: gradients are added up in leaves, the pass may be differentiated itself, or its arguments are of another kind.
bool read_pass(Object* arguments, Object* keywords, Pass& pass) {
  constexpr std::size_t kRoots = 0, kGradients = 1, kKeepGraph = 2, kCreateGraph = 3, kInputs = 4, kAccumulate = 6;
  const auto is_false = [&](std::size_t place, const char* name) {
    return argument(arguments, keywords, place, name) == g_api._Py_FalseStruct;
  };
  pass.keeps_graph = argument(arguments, keywords, kKeepGraph, "keep_graph") == g_api._Py_TrueStruct;
  if (!pass.keeps_graph && !is_false(kKeepGraph, "keep_graph")) return false;
  if (!is_false(kCreateGraph, "create_graph") || !is_false(kAccumulate, "accumulate_grad")) return false;
  std::vector<Object*> ignored;
  std::vector<bridge::Tensor> unused;
  return read_tensors(argument(arguments, keywords, kRoots, "tensors"), false, ignored, pass.roots) &&
         read_tensors(argument(arguments, keywords, kGradients, "grad_tensors"), true, ignored, unused) &&
         read_tensors(argument(arguments, keywords, kInputs, "inputs"), false, pass.inputs, pass.handles) &&
         !pass.inputs.empty();
}

struct Attachment {
  CallScope* call;
  const std::thread::id caller = std::this_thread::get_id();
  const void* who_waits = nullptr;
  bool attached = false;
  std::uint64_t nodes = 0;  // torch::autograd_nodes() of the attached thread
  bool made_nodes = false;  // it made some, which a replay does not count
};

bool is_for(const void* who) noexcept { return bridge::loaded()->who_waits() == who; }

void attach(void* of) noexcept {
  auto& attachment = *static_cast<Attachment*>(of);
  const WithGil gil;
  attachment.who_waits = bridge::loaded()->who_waits();
  attachment.nodes = torch::autograd_nodes();
  attachment.attached = attachment.who_waits != nullptr && std::this_thread::get_id() != attachment.caller &&
                        attachment.call->attach(is_for, attachment.who_waits);
}

void detach(void* of) noexcept {
  auto& attachment = *static_cast<Attachment*>(of);
  const WithGil gil;
  attachment.made_nodes = torch::autograd_nodes() != attachment.nodes;
  attachment.call->detach();
}

bool do_beside(bridge::Tensor on, void (*work)(void*) noexcept, Attachment& attachment) {
  ThreadState* const state = g_api.PyEval_SaveThread();
  const bool done = bridge::loaded()->do_beside(on, work, &attachment);
  g_api.PyEval_RestoreThread(state);
  return done;
}

// Is the pass the call's alone?
bool can_be_followed(Object* arguments, Object* keywords, ExecutedCode::State& state, Pass& pass) {
  const bridge::Bridge* const bridge = config().autograd ? bridge::loaded() : nullptr;
  if (bridge == nullptr || bridge->looks_for_anomalies() || !read_pass(arguments, keywords, pass)) return false;
  if (state.ran == nullptr) state.ran = bridge->make_inner_nodes();
  if (state.ran == nullptr) return false;
  return bridge->is_inner_pass({pass.roots.data(), pass.roots.size(), pass.handles.data(), pass.handles.size(),
                                pass.keeps_graph, state.first_node},
                               state.ran);
}

bool begin_to_follow(Object* arguments, Object* keywords, Pass& pass, Attachment& attachment) noexcept {
  const KeepException exception;
  ExecutedCode::State& state = *ExecutedCode::of_thread();
  try {
    if (can_be_followed(arguments, keywords, state, pass)) {
      state.follow(pass.inputs);
      do_beside(pass.roots.front(), attach, attachment);
      if (attachment.attached) return true;
      state.pass = refusal::make(refusal::pass_interrupted);
    }
    state.refuse_pass();
  } catch (const std::bad_alloc&) {
    state.lost = true;
  }
  return attachment.attached;
}

// Until it is done, the thread would go on to work for a call that has ended.
void stop_following(const Pass& pass, bool failed, Attachment& attachment) noexcept {
  constexpr std::chrono::milliseconds kPause{1};
  const KeepException exception;
  while (!do_beside(pass.roots.front(), detach, attachment)) std::this_thread::sleep_for(kPause);
  ExecutedCode::State* const state = ExecutedCode::of_thread();
  if (state == nullptr) return;  // the thread has left the call
  try {
    if ((attachment.made_nodes || failed) && !state->pass) state->pass = state->followed;
  } catch (const std::bad_alloc&) {
    state->lost = true;
  }
}

}  // namespace

bool code_is_followed() noexcept { return ExecutedCode::of_thread() != nullptr; }

Object* run_inner_pass(MethodWithKeywords run, Object* engine, Object* arguments, Object* keywords) {
  Pass pass;
  Attachment attachment{CallScope::current()};
  if (!begin_to_follow(arguments, keywords, pass, attachment)) return run(engine, arguments, keywords);
  attachment.call->set_waits(true);
  Object* const result = run(engine, arguments, keywords);
  attachment.call->set_waits(false);
  stop_following(pass, result == nullptr, attachment);
  return result;
}

}  // namespace grape::python::observation
