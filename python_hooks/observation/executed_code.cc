#include "python_hooks/observation/executed_code.h"

#include <algorithm>

#include "python_hooks/bridge/loaded.h"
#include "python_hooks/interpreter/call_hook.h"
#include "python_hooks/interpreter/code_origin.h"
#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/observers.h"
#include "python_hooks/interpreter/texts.h"
#include "python_hooks/observation/executed_code_state.h"
#include "python_hooks/observation/host_effects.h"
#include "python_hooks/torch/autograd_state.h"
#include "python_hooks/torch/torch_api.h"
#include "python_hooks/walk/instance.h"
#include "python_hooks/walk/portable.h"
#include "shim/observation/dead_stack.h"

namespace grape::python::observation {
namespace {

using State = ExecutedCode::State;

__thread State* t_state __attribute__((tls_model("initial-exec")));

void keep(std::vector<Object*>& list, Object* object) {
  list.push_back(object);
  g_api.Py_IncRef(object);
}

template <std::size_t count, typename... Parts>
void refuse(State& state, refusal::Form<count> form, const Parts&... parts) {
  if (state.refusal) return;
  refusal::Refusal refusal = refusal::make(form, parts...);
  refusal.place = current_place();
  state.refusal = std::move(refusal);
}

// Does the thread, which is attached to the call, run another call's backward pass in between?
bool works_for_others(State& state) {
  if (grape::observation::CallScope::works_now()) return false;
  state.refuse_pass();
  refuse(state, refusal::pass_interrupted);
  return true;
}

bool called_by_user() noexcept {
  const Reference frame(g_api.PyThreadState_GetFrame(g_api.PyThreadState_Get()));
  const Reference code(frame ? g_api.PyFrame_GetCode(frame.get()) : nullptr);
  return !code || origin_of(code.get(), nullptr) == CodeOrigin::kUser;
}

// Is a hash of it, or of a part of it, made of its address?
bool hashed_by_address(Object* object) noexcept {
  if (walk::is_plain_value(object)) return false;
  if (is_exactly(object, g_api.PyTuple_Type)) {
    Object* const* items = tuple_data(object);
    return std::any_of(items, items + item_count(object), hashed_by_address);
  }
  return type::hash(type_of(object)) == type::hash(g_api.PyBaseObject_Type) ||
         torch::torch_type(type_of(object)) == torch::TorchType::kTensor;
}

// Each thread has its own, and guards look at those of the one that makes the call.
bool is_of_thread(EffectKind kind) noexcept {
  return kind == EffectKind::kContext || kind == EffectKind::kThread || kind == EffectKind::kHandled;
}

void take_effect(State& state, const HostEffect& effect, Object* first, Object* second) {
  if (is_of_thread(effect.kind) && grape::observation::CallScope::is_attached())
    return refuse(state, effect.attribute ? refusal::reads_hidden : refusal::calls_hidden, effect.name);
  state.met |= State::bit(effect.kind);
  switch (effect.kind) {
    case EffectKind::kRefused:
    case EffectKind::kPool:
    case EffectKind::kSetting:
      refuse(state, effect.attribute ? refusal::uses_gradient : refusal::calls, effect.name);
      break;
    case EffectKind::kRandom:
      refuse(state, refusal::calls_generator, effect.name);
      break;
    case EffectKind::kBackward:
      state.refuse_pass();
      state.pass = refusal::make(refusal::calls_backward, effect.name);
      state.pass.place = current_place();
      break;
    case EffectKind::kProfile:
      leave_profile();
      refuse(state, refusal::calls, effect.name);
      break;
    case EffectKind::kSwitches:
      refuse(state, refusal::calls, effect.name);
      if (auto* call = grape::observation::CallScope::current()) call->leave();
      break;
    case EffectKind::kImport:
      // First of importlib._bootstrap._find_and_load(name, import_).
      refuse(state, refusal::imports, first != nullptr && is_text(first) ? text_value(first) : std::string());
      break;
    case EffectKind::kFromUsers:
      if (called_by_user()) {
        refuse(state, effect.attribute ? refusal::reads_hidden : refusal::calls_hidden, effect.name);
      }
      break;
    case EffectKind::kHash:
      if (second != nullptr && hashed_by_address(second) && called_by_user()) refuse(state, refusal::hashes_object);
      break;
    case EffectKind::kLocals:
      state.draws.locals_seen();
      break;
    case EffectKind::kContext:
      if (std::find(state.contexts.begin(), state.contexts.end(), first) != state.contexts.end()) break;
      if (first != nullptr) keep(state.contexts, first);
      break;
    case EffectKind::kLogger:
      if (first != nullptr && state.loggers.size() < State::kMostLoggers) keep(state.loggers, first);
      break;
    default:  // that it was met is enough; for the last three see on_result()
      break;
  }
}

const State::Note* note_code(State& state, const void* frame) {
  const CodeKey key{frame_code(frame), frame_globals(frame)};
  if (const State::Note* known = state.code_notes.find(key)) return known;
  const KeepException exception;
  State::Note note{};
  const Reference arguments(g_api.PyObject_GetAttrString(key.code, "co_argcount"));
  note.takes_arguments = arguments && g_api.PyLong_AsLong(arguments.get()) > 0;
  note.effect = effect_of(key.code);
  if (!state.code_notes.put(key, note)) return nullptr;
  state.codes.push_back({key.code, key.globals});
  g_api.Py_IncRef(key.code);
  g_api.Py_IncRef(key.globals);
  state.draws.meet(key.code);
  return state.code_notes.find(key);
}

// The class of a method's object, or the class itself: what its other attributes are, is part of what was read.
void note_class(State& state, Object* first) {
  Object* type = is_type(first) ? first : type_of(first);
  if (state.type_notes.find({type}) != nullptr || !type::is_heap(type)) return;
  keep(state.types, type);
  state.lost = !state.type_notes.put({type}, 1) || state.lost;
}

void note_function(State& state, Object* function) {
  Object* const* known = state.function_notes.find({function});
  if (known != nullptr && referent(*known) == function) return;
  const KeepException exception;
  // May collect garbage, whose finalisers come back here: nothing of `state` is held meanwhile.
  Object* reference = g_api.PyWeakref_NewRef(function, nullptr);
  if (reference == nullptr) {
    g_api.PyErr_Clear();
    state.lost = true;
    return;
  }
  state.functions.push_back(reference);
  state.lost = !state.function_notes.put({function}, reference) || state.lost;
}

void note_frame(void* context, const void* frame) {
  State& state = *static_cast<State*>(context);
  state.draws.frame_began();
  grape::observation::clear_dead_stack();  // operators that this code calls begin here
  try {
    if (works_for_others(state)) return;
    const State::Note* found = note_code(state, frame);
    if (found == nullptr) {
      state.lost = true;
      return;
    }
    const State::Note note = *found;
    Object* first = note.takes_arguments ? frame_local(frame, 0) : nullptr;
    if (first != nullptr) note_class(state, first);
    if (Object* function = frame_function(frame)) note_function(state, function);
    if (note.effect != nullptr) {
      const KeepException exception;
      take_effect(state, *note.effect, first, nullptr);
    }
  } catch (...) {  // no memory
    state.lost = true;
  }
}

}  // namespace

void on_effect(const HostEffect& effect, void* first, void* second) noexcept {
  State* state = t_state;
  if (state == nullptr) return;
  const KeepException exception;
  try {
    if (!works_for_others(*state))
      take_effect(*state, effect, static_cast<Object*>(first), static_cast<Object*>(second));
  } catch (...) {
    state->lost = true;
  }
}

void on_result(const HostEffect& effect, const void* place, void* first, void* second, void* third,
               void* result) noexcept {
  State* const state = t_state;
  if (state == nullptr) return;
  auto *const object = static_cast<Object*>(first), *const arguments = static_cast<Object*>(second),
              *const given = static_cast<Object*>(result);
  if (effect.kind == EffectKind::kDraws)
    state->draws.drew(place, arguments, static_cast<Object*>(third), given);
  else if (effect.kind == EffectKind::kCompares)
    state->draws.compared(effect.name, object, arguments, given);
  else
    state->draws.asked(object, given);
}

void State::follow(const std::vector<Object*>& inputs) {
  differentiated.insert(differentiated.end(), inputs.begin(), inputs.end());
  if (!followed) followed = pass ? std::move(pass) : refusal::make(refusal::calls_backward, "backward()");
  pass = {};
}

void State::refuse_pass() {
  if (pass && !refusal) {
    backward = pass.id == refusal::RefusalId::calls_backward;
    refusal = std::move(pass);
  }
  pass = {};
}

void State::clear() noexcept {
  for (const CodeKey& code : codes) {
    g_api.Py_DecRef(code.code);
    g_api.Py_DecRef(code.globals);
  }
  for (auto* list : {&functions, &types, &loggers, &contexts}) {
    for (Object* object : *list) g_api.Py_DecRef(object);
    list->clear();
  }
  codes.clear();
  code_notes.clear();
  function_notes.clear();
  type_notes.clear();
  refusal = pass = followed = {};
  differentiated.clear();
  if (ran != nullptr) bridge::loaded()->free_inner_nodes(ran);
  ran = nullptr;
  met = 0;
  backward = lost = false;
}

ExecutedCode::ExecutedCode() : state_(new State) {}
ExecutedCode::~ExecutedCode() {
  const KeepException exception;
  state_.reset();
}

bool ExecutedCode::listen() noexcept {
  if (t_state != nullptr || others_observe() || !hook_calls(note_frame, state_.get())) return false;
  t_state = state_.get();
  t_observing = true;
  return true;
}

bool ExecutedCode::attached() noexcept {
  const KeepException exception;
  state_->draws.locals_seen();  // who looks at what was drawn is known of one thread alone
  return listen();
}

void ExecutedCode::detached() noexcept {
  if (t_state != state_.get()) return;  // the thread has left the call
  t_observing = false;
  t_state = nullptr;
  undisturbed_ = unhook_calls() && undisturbed_;
}

bool ExecutedCode::begin() noexcept {
  if (t_state != nullptr) return false;
  const KeepException exception;
  state_->clear();
  undisturbed_ = true;
  if (others_observe() || !find_effects() || !listen()) return false;
  arm_traps();
  state_->draws.begin();
  state_->first_node = torch::autograd_nodes();
  call_ = grape::observation::CallScope::current();
  if (call_ == nullptr || call_->follow(*this)) return true;
  call_ = nullptr;
  end();
  return false;
}

bool ExecutedCode::end() noexcept {
  if (call_ != nullptr) call_->unfollow(*this);
  call_ = nullptr;
  detached();
  disarm_traps();
  {
    const KeepException exception;
    state_->draws.end();
  }
  try {
    state_->refuse_pass();
    refusal::Refusal& refusal = state_->refusal;
    if (!undisturbed_ && !refusal) refusal = refusal::make(refusal::compiled_code);
    if (state_->lost && !refusal) refusal = refusal::out_of_memory();
    return !refusal;
  } catch (...) {
    return false;
  }
}

cache::Digest ExecutedCode::digest() const {
  std::vector<cache::Digest> digests;
  for (const CodeKey& key : state_->codes) digests.push_back(walk::digest_of_code(key.code));
  return walk::digest_of_all(std::move(digests));
}

const refusal::Refusal& ExecutedCode::refusal() const noexcept { return state_->refusal; }
bool ExecutedCode::is_librarys() const noexcept {
  return std::all_of(state_->codes.begin(), state_->codes.end(), [](const CodeKey& key) {
    return is_torch_code(key.code) || origin_of(key.code, key.globals) == CodeOrigin::kStandard;
  });
}

bool ExecutedCode::makes_weak_references() const noexcept { return state_->has_met(EffectKind::kWeak); }
host_draws::HostDraws* ExecutedCode::followed_draws() const noexcept { return state_->draws.followed(); }
bool ExecutedCode::looks_at_draws() const noexcept { return state_->draws.seen(); }
bool ExecutedCode::ran_backward() const noexcept { return state_->backward; }
const refusal::Refusal& ExecutedCode::followed_pass() const noexcept { return state_->followed; }
const std::vector<const Object*>& ExecutedCode::differentiated() const noexcept { return state_->differentiated; }
const bridge::InnerNodes* ExecutedCode::nodes_of_passes() const noexcept { return state_->ran; }
State* ExecutedCode::of_thread() noexcept { return t_state; }

}  // namespace grape::python::observation
