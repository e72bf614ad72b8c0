// Does an observed call look at the random numbers that it draws?
#include <algorithm>
#include <bitset>

#include "python_hooks/host_draws/host_draws.h"
#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/local_uses.h"
#include "python_hooks/interpreter/monitoring.h"
#include "python_hooks/torch/torch_api.h"

namespace grape::python::host_draws {
namespace {

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

struct Watched {
  Strong code, instructions;  // instructions: co_code
  std::bitset<256> held;      // local variables that hold, or held, what was drawn
};

struct Place {
  Object* code = nullptr;
  std::size_t offset = 0;
  bool operator==(const Place& other) const noexcept { return code == other.code && offset == other.offset; }
};

}  // namespace

struct DrawWatch::State {
  std::vector<Watched> watched;
  std::vector<Strong> drawn;
  HostDraws draws;
  std::uint64_t frames = 0, bytes = 0;  // bytes: of what was drawn
  bool unseen = true;
  bool drew_any = false;     // on the host, by a function that is known
  Place call;                // under way in the code that is watched
  Object* called = nullptr;  // borrowed, and alive meanwhile
  std::uint64_t frames_at_call = 0;
  Place taken;  // where the number drawn last must be taken up

  Watched* find(Object* code) noexcept;
  bool watch(Object* code) noexcept;
  void take_up(Watched& by, const Place& place, const LocalUse& use) noexcept;

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
  if (watched.size() == kMostCodes || !instructions || !local_uses_known()) return false;
  try {
    watched.push_back({Strong(code), Strong(instructions.get()), {}});
  } catch (...) {
    return false;
  }
  return monitor(code, true);
}

// What was drawn is on top of the stack: it must go into a variable, or be given up.
void DrawWatch::State::take_up(Watched& by, const Place& place, const LocalUse& use) noexcept {
  const bool here = taken == place, kept = here && use.sets < by.held.size();
  if (kept) by.held.set(use.sets);
  unseen = unseen && (kept || (here && use.drops));
  taken = {};
}

void DrawWatch::State::on_instruction(const Place& place, Object* const*) noexcept {
  call = {};
  Watched* by = find(place.code);
  if (by == nullptr) {
    unseen = unseen && taken.code == nullptr;
    return;
  }
  const LocalUse use = local_use_at(by->instructions.get(), place.offset);
  if (taken.code != nullptr) take_up(*by, place, use);
  for (const std::uint16_t read : use.reads) {
    const bool any = read == LocalUse::kAny;
    if (any ? by->held.any() : read < by->held.size() && by->held.test(read)) unseen = false;
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
  state_->unseen = true;
  state_->drew_any = false;
  state_->call = state_->taken = {};
  state_->called = nullptr;
  t_watch = state_.get();
}

void DrawWatch::meet(Object* code) noexcept {
  // One that cannot be watched draws what counts as seen.
  if (state_->find(code) == nullptr && names_a_draw(code)) state_->watch(code);
}

void DrawWatch::frame_began() noexcept { ++state_->frames; }
void DrawWatch::locals_seen() noexcept { state_->unseen = false; }
bool DrawWatch::seen() const noexcept { return state_->drew_any && !state_->unseen; }
HostDraws* DrawWatch::unseen() noexcept { return state_->unseen ? &state_->draws : nullptr; }

void DrawWatch::drew(const void* place, Object* arguments, Object* keywords, Object* result) noexcept {
  const KeepException keep;
  State& state = *state_;
  torch::TensorView view;
  if (result == nullptr) return;
  const bool tensor = torch::is_plain_tensor(result) && torch::view_tensor(result, view);
  if (tensor && view.device_type != 0) return;  // from another generator
  state.drew_any = true;
  if (!state.unseen) return state.drawn.clear();
  const MethodDefinition* definition = state.call.code != nullptr ? definition_of(state.called) : nullptr;
  const bool straight = definition != nullptr && &definition->method == place && state.frames == state.frames_at_call;
  const Watched* watched = straight ? state.find(state.call.code) : nullptr;
  state.bytes += tensor ? view.storage_bytes : 0;
  state.unseen = tensor && watched != nullptr && state.taken.code == nullptr && state.bytes <= kMostBytes &&
                 state.draws.add(state.called, arguments, keywords);
  if (!state.unseen) return;
  try {
    state.drawn.emplace_back(result);
  } catch (...) {
    state.unseen = false;
  }
  state.taken = {state.call.code, next_instruction(watched->instructions.get(), state.call.offset)};
  state.call = {};
}

void DrawWatch::end() noexcept {
  State& state = *state_;
  if (t_watch == &state) t_watch = nullptr;
  if (state.taken.code != nullptr) state.unseen = false;
  state.taken = state.call = {};
  for (const Watched& watched : state.watched) monitor(watched.code.get(), false);
  if (g_watching == &state) {
    end_monitoring();
    g_watching = nullptr;
  }
  for (const Strong& tensor : state.drawn) {
    if (reference_count(tensor.get()) != 1) state.unseen = false;  // it outlives the call
  }
  state.drawn.clear();
  state.watched.clear();
}

}  // namespace grape::python::host_draws
