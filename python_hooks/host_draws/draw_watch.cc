// What becomes of the random numbers that an observed call draws?
#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>

#include "python_hooks/host_draws/host_draws.h"
#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/monitoring.h"
#include "python_hooks/interpreter/stack_steps.h"
#include "python_hooks/torch/torch_api.h"
#include "python_hooks/walk/instance.h"

namespace grape::python::host_draws {
namespace {

using Kind = StackStep::Kind;

constexpr std::size_t kMostCodes = 64;  // of one observed call
// What is drawn is kept alive to its end: so much at most, and nothing once somebody has looked.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 20;

// Interned, as the names in code objects are.
bool names_a_draw(Object* code) noexcept {
  static Object* const texts[] = {g_api.PyUnicode_InternFromString("rand"), g_api.PyUnicode_InternFromString("randn"),
                                  g_api.PyUnicode_InternFromString("randint"),
                                  g_api.PyUnicode_InternFromString("randperm")};
  const Reference names(g_api.PyObject_GetAttrString(code, "co_names"));
  if (!names || !is_exactly(names.get(), g_api.PyTuple_Type)) return false;
  Object *const *begin = tuple_data(names.get()), *const *end = begin + item_count(names.get());
  return std::find_first_of(begin, end, std::begin(texts), std::end(texts)) != end;
}

// What a value on the stack, or of a local variable, is to the watch.
struct Value {
  enum class Is : std::uint8_t { kOther, kNumber, kOutcome };
  Is is = Is::kOther;
  std::uint32_t index = 0;  // of the draw, or of the outcome
  bool followed() const noexcept { return is != Is::kOther; }
};

struct Watched {
  Strong code, instructions;  // instructions: co_code
  // Local variables that hold, or held in some frame, what is followed: the last of it.
  std::array<Value, 256> locals = {};
};

struct Place {
  Object* code = nullptr;
  std::size_t offset = 0;
};

// A comparison of a number that was drawn.
struct Outcome {
  std::uint32_t draw = 0;
  Strong tensor;  // none: it has not been made yet
  Decision decision;
};

// What an instruction that has begun must have PyTorch do.
enum class Awaits : std::uint8_t { kNothing, kComparison, kComparisonAndTruth, kTruth };

// `name`: as users read it, "Tensor.__lt__()". -1: none that is followed.
int comparison_of(const char* name) noexcept {
  const std::string_view text(name);
  const std::string_view kNames[] = {"__lt__", "__le__", "", "", "__gt__", "__ge__"};  // as Python numbers them
  const auto at =
      std::find(std::begin(kNames), std::end(kNames), text.substr(std::min(text.find("__"), text.size()), 6));
  return at != std::end(kNames) ? static_cast<int>(at - std::begin(kNames)) : -1;
}

}  // namespace

struct DrawWatch::State {
  std::vector<Watched> watched;
  std::vector<Strong> drawn;
  std::vector<Outcome> outcomes;
  HostDraws draws;
  std::uint64_t frames = 0, bytes = 0;  // bytes: of what was drawn
  bool known = true;                    // what became of all that was drawn
  bool drew_any = false;                // on the host, by a function that is known
  Place call;                           // under way in the code that is watched
  Object* called = nullptr;             // borrowed, and alive meanwhile
  std::uint64_t frames_at_call = 0;
  // The stack of the frame that runs, from the lowest value that is followed up to its top; empty: there is none.
  std::vector<Value> stack;
  Object* running = nullptr;         // that frame's code
  std::size_t next = 0, target = 0;  // where it must go on
  Awaits awaits = Awaits::kNothing;
  std::uint32_t outcome = 0;          // that is awaited, or whose truth is
  std::uint64_t frames_at_await = 0;  // PyTorch answers itself: Python code in between would see the tensor

  Watched* find(Object* code) noexcept;
  bool watch(Object* code) noexcept;
  void lose() noexcept;  // from now on nothing is known
  void push(Value value);
  Value pop() noexcept;
  void settle(const Place& place) noexcept;
  void take(Watched& by, const StackStep& step);
  void use_locals(Watched& by, const StackStep& step);
  void compare(const StackStep& step);
  void ask(Value value) noexcept;

  // Told by the interpreter on the thread that runs the code, before the instruction or the call is done.
  void on_instruction(const Place& place, Object* const* rest) noexcept;
  void on_call(const Place& place, Object* const* rest) noexcept;
  template <void (State::*tell)(const Place& place, Object* const* rest), std::size_t arguments>
  static Object* told(Object*, Object* tuple);
};

namespace {

// With the GIL: one observed call at a time is told of instructions. Others cannot tell who looks at what.
DrawWatch::State* g_watching = nullptr;
__thread DrawWatch::State* t_watch __attribute__((tls_model("initial-exec")));

}  // namespace

template <void (DrawWatch::State::*tell)(const Place& place, Object* const* rest), std::size_t arguments>
Object* DrawWatch::State::told(Object*, Object* tuple) {
  if (t_watch != nullptr && t_watch == g_watching && item_count(tuple) == arguments) {
    Object* const* items = tuple_data(tuple);
    (t_watch->*tell)({items[0], static_cast<std::size_t>(g_api.PyLong_AsLong(items[1]))}, items + 2);
  }
  return new_reference(g_api._Py_NoneStruct);
}

Watched* DrawWatch::State::find(Object* code) noexcept {
  const auto at =
      std::find_if(watched.begin(), watched.end(), [&](const Watched& one) { return one.code.get() == code; });
  return at != watched.end() ? &*at : nullptr;
}

bool DrawWatch::State::watch(Object* code) noexcept {
  if (g_watching != this) {
    if (g_watching != nullptr || !begin_monitoring(told<&State::on_instruction, 2>, told<&State::on_call, 4>)) {
      return false;
    }
    g_watching = this;
  }
  const Reference instructions(g_api.PyObject_GetAttrString(code, "co_code"));
  if (watched.size() == kMostCodes || !instructions || !stack_steps_known()) return false;
  try {
    watched.push_back({Strong(code), Strong(instructions.get()), {}});
  } catch (...) {
    return false;
  }
  return monitor(code, true);
}

void DrawWatch::State::lose() noexcept {
  known = false;
  stack.clear();
  awaits = Awaits::kNothing;
}

void DrawWatch::State::push(Value value) {
  if (value.followed() || !stack.empty()) stack.push_back(value);
}

Value DrawWatch::State::pop() noexcept {
  if (stack.empty()) return {};
  const Value value = stack.back();
  stack.pop_back();
  return value;
}

// The last instruction is done, and the next one begins.
void DrawWatch::State::settle(const Place& place) noexcept {
  const bool goes_on = place.code == running && (place.offset == next || place.offset == target);
  if (awaits != Awaits::kNothing || (!stack.empty() && !goes_on)) lose();
  stack.erase(stack.begin(), std::find_if(stack.begin(), stack.end(), [](Value value) { return value.followed(); }));
}

void DrawWatch::State::use_locals(Watched& by, const StackStep& step) {
  using Use = StackStep::Local::Use;
  for (const StackStep::Local& local : step.locals) {
    Value* const held = local.variable < by.locals.size() ? &by.locals[local.variable] : nullptr;
    if (local.use == Use::kReads) push(held != nullptr ? *held : Value());
    if (local.use != Use::kSets) continue;
    const Value value = pop();
    if (!value.followed()) continue;  // in another frame it may still hold what it held
    if (held == nullptr) return lose();
    *held = value;
  }
}

// Takes two values: a number that was drawn, and one that is plain.
void DrawWatch::State::compare(const StackStep& step) {
  const Value second = pop(), first = pop();
  if (!first.followed() && !second.followed()) return push({});
  const Value number = first.followed() ? first : second;
  if (number.is != Value::Is::kNumber || (first.followed() && second.followed())) return lose();
  outcome = static_cast<std::uint32_t>(outcomes.size());
  outcomes.push_back({number.index, {}, {}});
  awaits = step.asks ? Awaits::kComparisonAndTruth : Awaits::kComparison;
  push(step.asks ? Value() : Value{Value::Is::kOutcome, outcome});
}

void DrawWatch::State::ask(Value value) noexcept {
  if (!value.followed()) return;
  if (value.is != Value::Is::kOutcome) return lose();
  outcome = value.index;
  awaits = Awaits::kTruth;
}

void DrawWatch::State::take(Watched& by, const StackStep& step) {
  switch (step.kind) {
    case Kind::kAnyLocal:
      if (!stack.empty() ||
          std::any_of(by.locals.begin(), by.locals.end(), [](Value value) { return value.followed(); }))
        lose();
      break;
    case Kind::kUnknown:
      if (!stack.empty()) lose();
      break;
    case Kind::kLocals:
      use_locals(by, step);
      break;
    case Kind::kMoves:
      for (std::uint32_t i = 0; i < step.pops; ++i) {
        if (pop().followed()) return lose();
      }
      for (std::uint32_t i = 0; i < step.pushes; ++i) push({});
      break;
    case Kind::kCopy:
      push(step.depth <= stack.size() ? stack[stack.size() - step.depth] : Value());
      break;
    case Kind::kSwap:
      if (stack.empty()) break;
      if (step.depth > stack.size()) stack.insert(stack.begin(), step.depth - stack.size(), Value());
      std::swap(stack.back(), stack[stack.size() - step.depth]);
      break;
    case Kind::kDrop:
      pop();
      break;
    case Kind::kCompare:
      compare(step);
      break;
    case Kind::kTruth:
      ask(pop());
      if (known) push({});
      break;
    case Kind::kBranch:
      ask(pop());
      break;
  }
}

void DrawWatch::State::on_instruction(const Place& place, Object* const*) noexcept {
  call = {};
  Watched* const by = find(place.code);
  StackStep step;
  if (by == nullptr) {
    if (!stack.empty()) lose();
    return;
  }
  if (!known || !stack_step_at(by->instructions.get(), place.offset, step)) return;
  settle(place);
  running = place.code;
  next = step.next;
  target = step.kind == Kind::kBranch ? step.target : step.next;
  try {
    if (known) take(*by, step);
    frames_at_await = frames;
  } catch (...) {  // no memory
    lose();
  }
}

void DrawWatch::State::on_call(const Place& place, Object* const* rest) noexcept {
  call = place;
  called = rest[0];
  frames_at_call = frames;
}

DrawWatch::DrawWatch() : state_(new State) {}

DrawWatch::~DrawWatch() {
  const KeepException keep;
  end();
}

void DrawWatch::begin() noexcept {
  state_->draws.clear();
  state_->frames = state_->bytes = 0;
  state_->known = true;
  state_->drew_any = false;
  state_->call = {};
  state_->called = nullptr;
  t_watch = state_.get();
}

void DrawWatch::meet(Object* code) noexcept {
  // One that cannot be watched draws what counts as seen.
  if (state_->find(code) == nullptr && names_a_draw(code)) state_->watch(code);
}

void DrawWatch::frame_began() noexcept { ++state_->frames; }
void DrawWatch::locals_seen() noexcept { state_->lose(); }
bool DrawWatch::seen() const noexcept { return state_->drew_any && !state_->known; }
HostDraws* DrawWatch::followed() noexcept { return state_->known ? &state_->draws : nullptr; }

void DrawWatch::drew(const void* place, Object* arguments, Object* keywords, Object* result) noexcept {
  const KeepException keep;
  State& state = *state_;
  torch::TensorView view;
  if (result == nullptr) return;
  const bool tensor = torch::is_plain_tensor(result) && torch::view_tensor(result, view);
  if (tensor && view.device_type != 0) return;  // from another generator
  state.drew_any = true;
  if (!state.known) {
    state.outcomes.clear();
    return state.drawn.clear();
  }
  const MethodDefinition* definition = state.call.code != nullptr ? definition_of(state.called) : nullptr;
  const bool straight = definition != nullptr && &definition->method == place && state.frames == state.frames_at_call;
  const Watched* watched = straight ? state.find(state.call.code) : nullptr;
  StackStep step;
  state.bytes += tensor ? view.storage_bytes : 0;
  if (!tensor || watched == nullptr || !state.stack.empty() || state.bytes > kMostBytes ||
      !stack_step_at(watched->instructions.get(), state.call.offset, step) ||
      !state.draws.add(state.called, arguments, keywords))
    return state.lose();
  try {
    state.drawn.emplace_back(result);
    state.push({Value::Is::kNumber, static_cast<std::uint32_t>(state.drawn.size() - 1)});
  } catch (...) {
    return state.lose();
  }
  state.running = state.call.code;
  state.next = state.target = step.next;
  state.call = {};
}

void DrawWatch::compared(const char* name, Object* tensor, Object* arguments, Object* result) noexcept {
  const KeepException keep;
  State& state = *state_;
  if (state.awaits != Awaits::kComparison && state.awaits != Awaits::kComparisonAndTruth) return;
  if (state.frames != state.frames_at_await) return;
  Outcome& outcome = state.outcomes[state.outcome];
  if (tensor != state.drawn[outcome.draw].get() || result == nullptr || !torch::is_plain_tensor(result) ||
      item_count(arguments) != 1 || !walk::is_plain_value(tuple_data(arguments)[0])) {
    return;
  }
  outcome.tensor = Strong(result);
  outcome.decision = {comparison_of(name), Strong(tuple_data(arguments)[0]), false};
  const bool asks = state.awaits == Awaits::kComparisonAndTruth;
  state.awaits = asks ? Awaits::kTruth : Awaits::kNothing;
  if (outcome.decision.comparison < 0) state.lose();
}

void DrawWatch::asked(Object* tensor, Object* result) noexcept {
  const KeepException keep;
  State& state = *state_;
  if (state.awaits != Awaits::kTruth || tensor != state.outcomes[state.outcome].tensor.get() ||
      state.frames != state.frames_at_await)
    return;
  Outcome& outcome = state.outcomes[state.outcome];
  outcome.decision.truth = result == g_api._Py_TrueStruct;
  if (!outcome.decision.truth && result != g_api._Py_FalseStruct) return;  // it raised
  state.awaits = Awaits::kNothing;
  if (!state.draws.decide(outcome.draw, outcome.decision)) state.lose();
}

void DrawWatch::end() noexcept {
  State& state = *state_;
  if (t_watch == &state) t_watch = nullptr;
  if (!state.stack.empty() || state.awaits != Awaits::kNothing) state.lose();
  state.call = {};
  for (const Watched& watched : state.watched) monitor(watched.code.get(), false);
  if (g_watching == &state) {
    end_monitoring();
    g_watching = nullptr;
  }
  const auto outlives = [](const Strong& tensor) {
    return tensor.get() != nullptr && reference_count(tensor.get()) != 1;
  };
  if (std::any_of(state.drawn.begin(), state.drawn.end(), outlives) ||
      std::any_of(state.outcomes.begin(), state.outcomes.end(),
                  [&](const Outcome& outcome) { return outlives(outcome.tensor); }))
    state.known = false;
  state.drawn.clear();
  state.outcomes.clear();
  state.watched.clear();
}

}  // namespace grape::python::host_draws
