#include "python_hooks/observation/draw_watch.h"

#include <algorithm>

#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/monitoring.h"
#include "python_hooks/torch/torch_api.h"

namespace grape::python::state {
namespace {

constexpr std::size_t kMostCodes = 64;  // of one observed call
// What is drawn is kept alive to its end: so much at most, and nothing once somebody has looked.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 20;
constexpr const char* kNames[] = {"rand", "randn", "randint", "randperm"};

// With the GIL: one observed call at a time is told of instructions. Others cannot tell who looks at what.
DrawWatch* g_watching = nullptr;
__thread DrawWatch* t_watch __attribute__((tls_model("initial-exec")));

// Interned, as the names in code objects are.
bool names_a_draw(Object* code) noexcept {
  static Object* const texts[] = {
      g_api.PyUnicode_InternFromString(kNames[0]), g_api.PyUnicode_InternFromString(kNames[1]),
      g_api.PyUnicode_InternFromString(kNames[2]), g_api.PyUnicode_InternFromString(kNames[3])};
  const Reference names(g_api.PyObject_GetAttrString(code, "co_names"));
  if (!names || !is_exactly(names.get(), g_api.PyTuple_Type)) return false;
  Object* const* begin = tuple_data(names.get());
  return std::find_first_of(begin, begin + item_count(names.get()), std::begin(texts), std::end(texts)) !=
         begin + item_count(names.get());
}

template <void (*tell)(Object* arguments)>
Object* told(Object*, Object* arguments) {
  tell(arguments);
  g_api.Py_IncRef(g_api._Py_NoneStruct);
  return g_api._Py_NoneStruct;
}

std::size_t offset_in(Object* arguments) noexcept {
  return static_cast<std::size_t>(g_api.PyLong_AsLong(tuple_data(arguments)[1]));
}

void tell_instruction(Object* arguments) {
  if (t_watch != nullptr && item_count(arguments) == 2)
    DrawWatch::on_instruction(tuple_data(arguments)[0], offset_in(arguments));
}

void tell_call(Object* arguments) {
  if (t_watch != nullptr && item_count(arguments) == 4)
    DrawWatch::on_call(tuple_data(arguments)[0], offset_in(arguments), tuple_data(arguments)[2]);
}

}  // namespace

DrawWatch::~DrawWatch() {
  const KeepException keep;
  end();
}

void DrawWatch::begin() noexcept {
  draws_.clear();
  frames_ = bytes_ = 0;
  unseen_ = true;
  call_ = taken_ = {};
  called_ = nullptr;
  t_watch = this;
}

bool DrawWatch::watch(Object* code) noexcept {
  if (g_watching != this) {
    if (g_watching != nullptr || !begin_monitoring(told<tell_instruction>, told<tell_call>)) return false;
    g_watching = this;
  }
  if (watched_.size() == kMostCodes) return false;
  Watched watched{code, {}, {}};
  if (!watched.uses.read(code)) return false;
  try {
    watched_.push_back(std::move(watched));
  } catch (...) {
    return false;
  }
  g_api.Py_IncRef(code);
  return monitor(code, true);
}

void DrawWatch::meet(Object* code) noexcept {
  // One that cannot be watched draws what counts as seen.
  if (find(code) == nullptr && names_a_draw(code)) watch(code);
}

DrawWatch::Watched* DrawWatch::find(Object* code) noexcept {
  const auto at = std::find_if(watched_.begin(), watched_.end(), [&](const Watched& one) { return one.code == code; });
  return at != watched_.end() ? &*at : nullptr;
}

void DrawWatch::on_instruction(Object* code, std::size_t offset) noexcept {
  if (t_watch == g_watching) t_watch->instruction(code, offset);
}

// Told before the instruction is done.
void DrawWatch::instruction(Object* code, std::size_t offset) noexcept {
  Watched* watched = find(code);
  const LocalUse* use = watched != nullptr ? watched->uses.at(offset) : nullptr;
  call_ = {};
  if (use == nullptr) {
    unseen_ = unseen_ && taken_.code == nullptr;
    return;
  }
  if (taken_.code != nullptr) {
    const bool here = taken_.code == code && taken_.offset == offset;
    const bool kept = here && use->sets < watched->held.size();
    if (kept) watched->held.set(use->sets);
    unseen_ = unseen_ && (kept || (here && use->drops));
    taken_ = {};
  }
  for (const std::uint16_t read : use->reads) {
    if (read == LocalUse::kNone) continue;
    const bool any = read == LocalUse::kAny;
    if (any ? watched->held.any() : read < watched->held.size() && watched->held.test(read)) unseen_ = false;
  }
}

void DrawWatch::on_call(Object* code, std::size_t offset, Object* callable) noexcept {
  DrawWatch* watch = t_watch;
  if (watch != g_watching) return;
  watch->call_ = {code, offset};
  watch->called_ = callable;
  watch->frames_at_call_ = watch->frames_;
}

void DrawWatch::drew(const void* place, Object* arguments, Object* keywords, Object* result) noexcept {
  const KeepException keep;
  TensorView view;
  if (result == nullptr) return;
  if (!unseen_) return let_go();
  const bool tensor = is_plain_tensor(result) && view_tensor(result, view);
  if (tensor && view.device_type != 0) return;  // from another generator
  const MethodDefinition* definition = call_.code != nullptr ? definition_of(called_) : nullptr;
  const bool straight = definition != nullptr && &definition->method == place && frames_ == frames_at_call_;
  Watched* watched = straight ? find(call_.code) : nullptr;
  bytes_ += tensor ? view.storage_bytes : 0;
  unseen_ = tensor && watched != nullptr && taken_.code == nullptr && bytes_ <= kMostBytes &&
            draws_.add(called_, arguments, keywords);
  if (!unseen_) return;
  try {
    drawn_.push_back(result);
    g_api.Py_IncRef(result);
  } catch (...) {
    unseen_ = false;
  }
  taken_ = {call_.code, watched->uses.behind(call_.offset)};
  call_ = {};
}

void DrawWatch::let_go() noexcept {
  for (Object* tensor : drawn_) g_api.Py_DecRef(tensor);
  drawn_.clear();
}

void DrawWatch::end() noexcept {
  if (t_watch == this) t_watch = nullptr;
  if (taken_.code != nullptr) unseen_ = false;
  taken_ = call_ = {};
  for (const Watched& watched : watched_) monitor(watched.code, false);
  if (g_watching == this) {
    end_monitoring();
    g_watching = nullptr;
  }
  for (Object* tensor : drawn_) {
    if (reference_count(tensor) != 1) unseen_ = false;  // it outlives the call
  }
  let_go();
  for (const Watched& watched : watched_) g_api.Py_DecRef(watched.code);
  watched_.clear();
}

}  // namespace grape::python::state
