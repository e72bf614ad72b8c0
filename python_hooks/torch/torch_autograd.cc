// Reads what autograd notes of tensors and threads, from the places where PyTorch keeps it.
#include <pthread.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/memory_map.h"
#include "python_hooks/torch/autograd_state.h"
#include "python_hooks/torch/torch_api.h"
#include "python_hooks/torch/torch_symbols.h"
#include "shim/lifecycle/blocked_signals.h"

namespace grape::python::torch {
namespace {

// Tensors that differ in what autograd notes of them, with what Python says of each. The accumulator of `leaf` is made
// by the first operation on it; nothing else of `leaf` is noted by that.
constexpr char kSamples[] =
    "def make():\n"
    "  with torch._C.DisableTorchFunction(), torch.inference_mode(False), torch.enable_grad():\n"
    "    zeros = lambda grad: torch.zeros((2, 2), dtype=torch.float32, device='cpu', requires_grad=grad)\n"
    "    leaf, kept, graded, hooked = zeros(True), zeros(True) * 2, zeros(True), zeros(True)\n"
    "    kept.retain_grad()\n"
    "    graded.grad = zeros(False)\n"
    "    hooked._backward_hooks = {}\n"
    "    tensors = [leaf, graded, hooked, leaf * 2, leaf * 3, kept, zeros(False).t(), leaf.t()]\n"
    "    tensors += leaf.unbind(0) if hasattr(leaf, 'unbind') else ()\n"
    "    def stale(writes):\n"  // a view of what was written to so often, and once more since then
    "      base = zeros(True) * 2\n"
    "      for _ in range(writes): base.add_(1)\n"
    "      view = base.t()\n"
    "      base.add_(1)\n"
    "      return view\n"
    "    versions = [3, 70, 23]\n"
    "    tracks = getattr(torch._C, '_set_view_replay_enabled', lambda on: None)\n"
    "    def turned(tracked):\n"  // a view that knows by which operator it was made, or does not
    "      tracks(tracked)\n"
    "      try: return (zeros(True) * 2).t()\n"
    "      finally: tracks(False)\n"
    "    tracked = [False, True, True, False, True]\n"
    "    def off(x):\n"
    "      with torch.no_grad(): return x.t()\n"
    "    viewed = [zeros(True).t(), off(zeros(True)), off(zeros(True).t())]\n"
    "    viewed += leaf.unbind(0) if hasattr(leaf, 'unbind') else ()\n"
    "    kinds = [int(torch._C._autograd._get_creation_meta(view)) for view in viewed]\n"
    "    node = lambda x: (x.grad_fn, x.grad_fn._sequence_nr()) if x.grad_fn is not None else None\n"
    "    facts = lambda x: (node(x), x.grad if x is graded else None, x.is_leaf and x.requires_grad, x.retains_grad,\n"
    "                       x._is_view(), x.output_nr)\n"
    "    return tensors, [facts(x) for x in tensors], hooked, hooked._backward_hooks, \\\n"
    "      [stale(one) for one in versions], versions, [turned(one) for one in tracked], tracked, viewed, kinds\n"
    "samples = make()\n"
    "keep = lambda x: x\n";

enum Fact { kNode, kGrad, kLeafThatRequiresGrad, kRetains, kView, kOutputNumber };

constexpr std::size_t kNotesBytes = 160;          // that are looked through
constexpr std::size_t kViewBytes = 384;           // the same, of a view
constexpr std::size_t kAccumulatorFromNode = 16;  // behind the node, as wide: two words each
constexpr std::size_t kAccumulatorBytes = 16;
constexpr std::size_t kObjectNode = 16;                  // Python object of a node: the node
constexpr std::size_t kObjectHooks = 2;                  // dictionaries of hooks in a tensor's Python object, in a row
constexpr std::size_t kDequeBegin = 16, kDequeEnd = 48;  // of a std::deque: its first element, and behind its last

struct Places {
  std::size_t grad = 0, grad_fn = 0, flags = 0;  // in autograd's notes of a tensor; flags: three bytes
  std::size_t output_number = 0;
  std::size_t view_version = 0;              // of a view: the version that its grad_fn was made for
  std::size_t how_viewed = 0;                // of a view: its CreationMeta, a byte
  std::size_t view_function = 0;             // of a view: what makes it anew; 0: no view has that
  std::size_t sequence = 0;                  // in a node
  std::size_t hooks = 0;                     // in a tensor's Python object
  std::uint64_t no_grad = 0;                 // what stands where there is no gradient
  const std::uint8_t* (*modes)() = nullptr;  // c10::AutogradState::get_tls_state()
  std::size_t mode_byte = 0;
  std::uint8_t tracks_views = 0;  // its bit: each view knows by which operator it was made; 0: there is no such mode
  const char* (*saved_hooks)() = nullptr;  // at::SavedTensorDefaultHooks::get_tls_state(): a stack comes first
  bool (*saved_hooks_allowed)() = nullptr;
  std::uint64_t (*nodes)() = nullptr;       // at::sequence_number::peek()
  std::uint64_t (*count_node)() = nullptr;  // get_and_increment()
};
Places g_places;

const char* notes_of(Object* tensor) noexcept { return field<const char*>(impl_of(tensor), kImplGrad); }

template <typename Number>
bool number_is(Object* facts, Fact fact, Number number) noexcept {
  return g_api.PyLong_AsLong(tuple_item(facts, fact)) == static_cast<long>(number);
}

// The one place in all notes at which `right(notes, facts)` holds; 0: none, or several.
template <typename Right>
std::size_t place_where(Object* tensors, Object* facts, std::size_t step, Right right,
                        std::size_t first = sizeof(void*), std::size_t end = kNotesBytes) noexcept {
  return only_place(first, end, step, [&](std::size_t offset) {
    return for_all(
        tensors, [&](Object* tensor, std::size_t i) { return right(notes_of(tensor) + offset, list_data(facts)[i]); });
  });
}

bool notes_are_readable(Object* tensors, std::size_t bytes) noexcept {
  const CarefulReader reader;
  return for_all(tensors, [&](Object* tensor, std::size_t) {
    const char* notes = notes_of(tensor);
    return notes != nullptr && reinterpret_cast<std::uintptr_t>(notes) % 8 == 0 && reader.readable(notes, bytes);
  });
}

Object* node_object(Object* facts) noexcept {
  Object* node = tuple_item(facts, kNode);
  return node == g_api._Py_NoneStruct ? nullptr : tuple_item(node, 0);
}

bool find_notes(Object* tensors, Object* facts) noexcept {
  Places& at = g_places;
  at.grad_fn = place_where(tensors, facts, sizeof(void*), [](const char* place, Object* fact) {
    Object* object = node_object(fact);
    return field<std::uint64_t>(place, 0) == (object != nullptr ? field<std::uint64_t>(object, kObjectNode) : 0);
  });
  if (at.grad_fn == 0) return false;
  at.grad = at.grad_fn - sizeof(void*);
  at.no_grad = field<std::uint64_t>(notes_of(list_data(tensors)[0]), at.grad);
  for (std::size_t i = 0; i < item_count(tensors); ++i) {
    Object* grad = tuple_item(list_data(facts)[i], kGrad);
    const auto noted = field<std::uint64_t>(notes_of(list_data(tensors)[i]), at.grad);
    const bool none = grad == g_api._Py_NoneStruct;
    if (noted != (none ? at.no_grad : reinterpret_cast<std::uint64_t>(impl_of(grad)))) return false;
  }
  at.flags = place_where(tensors, facts, 1, [](const char* place, Object* fact) {
    return number_is(fact, kLeafThatRequiresGrad, place[0]) && number_is(fact, kRetains, place[1]) &&
           number_is(fact, kView, place[2]);
  });
  at.output_number = (at.flags + 3 + 3) / 4 * 4;
  for (std::size_t i = 0; i < item_count(tensors) && at.flags != 0; ++i) {
    const auto number = field<std::uint32_t>(notes_of(list_data(tensors)[i]), at.output_number);
    if (!number_is(list_data(facts)[i], kOutputNumber, number)) return false;
  }
  return at.flags > at.grad_fn + kAccumulatorFromNode + kAccumulatorBytes;
}

bool find_view_version(Object* views, Object* versions) noexcept {
  constexpr std::size_t kStep = sizeof(std::uint32_t);
  g_places.view_version = place_where(
      views, versions, kStep,
      [](const char* place, Object* version) {
        return g_api.PyLong_AsLong(version) == static_cast<long>(field<std::uint32_t>(place, 0));
      },
      g_places.output_number + kStep, kViewBytes);
  return g_places.view_version != 0;
}

// It stands behind the version.
bool find_how_viewed(Object* views, Object* kinds) noexcept {
  g_places.how_viewed = g_places.view_version + sizeof(std::uint32_t);
  return for_all(views, [&](Object* view, std::size_t i) {
    return g_api.PyLong_AsLong(list_data(kinds)[i]) == static_cast<long>(notes_of(view)[g_places.how_viewed]);
  });
}

// Nothing else comes before it that such views have, and no others.
void find_view_function(Object* views, Object* tracked) noexcept {
  const std::size_t first = (g_places.output_number + sizeof(void*)) / sizeof(void*) * sizeof(void*);
  for (std::size_t place = first; place < g_places.view_version && g_places.view_function == 0;
       place += sizeof(void*)) {
    const bool right = for_all(views, [&](Object* view, std::size_t i) {
      const bool has = field<const void*>(notes_of(view), place) != nullptr;
      return has == (list_data(tracked)[i] == g_api._Py_TrueStruct);
    });
    if (right) g_places.view_function = place;
  }
}

// Where a node keeps its number.
bool find_sequence(Object* facts) noexcept {
  constexpr std::size_t kNodeBytes = 64;
  g_places.sequence = only_place(sizeof(void*), kNodeBytes, sizeof(std::uint64_t), [facts](std::size_t offset) {
    return for_all(facts, [offset](Object* fact, std::size_t) {
      Object* object = node_object(fact);
      return object == nullptr || field<std::int64_t>(field<const char*>(object, kObjectNode), offset) ==
                                      g_api.PyLong_AsLong(tuple_item(tuple_item(fact, kNode), 1));
    });
  });
  return g_places.sequence != 0;
}

// In a tensor's object, behind its handle.
bool find_hooks(Object* hooked, Object* dictionary) noexcept {
  for (const std::size_t behind : {8U, 16U}) {
    if (field<Object*>(hooked, g_torch.handle + behind) != dictionary) continue;
    g_places.hooks = g_torch.handle + behind;
    return true;
  }
  return false;
}

// The one byte that switching gradients changes, in its lowest bit.
bool find_modes() noexcept {
  constexpr std::size_t kMost = 64;
  void (*set)(bool) = nullptr;
  if (!find_function(g_places.modes, "libc10.so", "_ZN3c1013AutogradState13get_tls_stateEv") ||
      !find_function(set, "libtorch_cpu.so", "aoti_torch_grad_mode_set_enabled")) {
    return false;
  }
  const bool enabled = g_torch.aoti_torch_grad_mode_is_enabled();
  std::uint8_t on[kMost], off[kMost];
  const std::uint8_t* const state = g_places.modes();
  if (!CarefulReader().readable(state, kMost)) return false;
  set(true);
  std::memcpy(on, state, kMost);
  set(false);
  std::memcpy(off, state, kMost);
  set(enabled);
  for (std::size_t i = 0; i < kMost; ++i) {
    if (on[i] == off[i]) continue;
    g_places.mode_byte = i;
    return on[i] == (off[i] | 1U);
  }
  return false;
}

// The bit that torch.autograd._force_original_view_tracking sets.
bool find_tracking() noexcept {
  Object* const set = module_member("torch._C", "_set_view_replay_enabled");
  if (set == nullptr) {
    g_api.PyErr_Clear();
    return true;
  }
  const std::uint8_t before = autograd_modes();
  const Reference on(g_api.PyObject_CallFunctionObjArgs(set, g_api._Py_TrueStruct, nullptr));
  g_places.tracks_views = autograd_modes() ^ before;
  const Reference off(g_api.PyObject_CallFunctionObjArgs(set, g_api._Py_FalseStruct, nullptr));
  return on && off && g_places.tracks_views != 0 && autograd_modes() == before;
}

// Their stack is seen to be longer while there are hooks.
bool find_saved_hooks(Object* keep) noexcept {
  Object* push = module_member("torch._C._autograd", "_push_saved_tensors_default_hooks");
  Object* pop = module_member("torch._C._autograd", "_pop_saved_tensors_default_hooks");
  if (!find_function(g_places.saved_hooks, "libtorch_cpu.so", "_ZN2at23SavedTensorDefaultHooks13get_tls_stateEv") ||
      !find_function(g_places.saved_hooks_allowed, "libtorch_cpu.so",
                     "_ZN2at23SavedTensorDefaultHooks10is_enabledEv") ||
      push == nullptr || pop == nullptr || keep == nullptr) {
    return false;
  }
  const bool before = saved_tensors_hooks_active();
  const Reference pushed(g_api.PyObject_CallFunctionObjArgs(push, keep, keep, nullptr));
  if (!pushed) return false;
  const bool during = saved_tensors_hooks_active();
  const Reference popped(g_api.PyObject_CallObject(pop, nullptr));
  return popped && during && saved_tensors_hooks_active() == before;
}

std::uint64_t mixed_with(std::uint64_t hash, std::uint64_t value) noexcept {
  return XXH3_64bits_withSeed(&value, sizeof value, hash);
}

std::uint64_t hash_of_hooks(Object* tensor) noexcept {
  std::uint64_t hash = 0;
  for (std::size_t i = 0; i < kObjectHooks; ++i) {
    auto* dictionary = field<Object*>(tensor, g_places.hooks + i * sizeof(void*));
    if (dictionary == nullptr || dictionary == g_api._Py_NoneStruct) continue;
    hash = mixed_with(hash + i + 1, reinterpret_cast<std::uint64_t>(dictionary));
    std::ptrdiff_t position = 0;
    for (Object *key, *hook; g_api.PyDict_Next(dictionary, &position, &key, &hook) != 0;) {
      hash = mixed_with(hash, reinterpret_cast<std::uint64_t>(key));
      hash = mixed_with(hash, reinterpret_cast<std::uint64_t>(hook));
    }
  }
  return hash;
}

// What stands between the accumulator and the flags. Nothing noted is as good as all of it empty.
std::uint64_t hash_of_rest(const char* notes) noexcept {
  const std::size_t begin = g_places.grad_fn + kAccumulatorFromNode + kAccumulatorBytes;
  std::uint64_t hash = 0;
  for (std::size_t offset = begin; offset + sizeof(std::uint64_t) <= g_places.flags; offset += sizeof(std::uint64_t)) {
    const auto word = field<std::uint64_t>(notes, offset);
    if (word != 0) hash = mixed_with(hash + offset, word);
  }
  return hash;
}

bool find_places(Object* torch) noexcept {
  const Reference globals(g_api.PyDict_New());
  const bool made = globals && run_with_torch(kSamples, torch, globals.get());
  Object* const samples = made ? dict_item(globals.get(), "samples") : nullptr;
  if (samples == nullptr) return false;
  Object *tensors = tuple_item(samples, 0), *facts = tuple_item(samples, 1);
  const bool found =
      find_function(g_places.nodes, "libtorch_cpu.so", "_ZN2at15sequence_number4peekEv") &&
      find_function(g_places.count_node, "libtorch_cpu.so", "_ZN2at15sequence_number17get_and_incrementEv") &&
      notes_are_readable(tensors, kNotesBytes) && find_notes(tensors, facts) &&
      notes_are_readable(tuple_item(samples, 4), kViewBytes) &&
      find_view_version(tuple_item(samples, 4), tuple_item(samples, 5)) &&
      notes_are_readable(tuple_item(samples, 8), kViewBytes) &&
      find_how_viewed(tuple_item(samples, 8), tuple_item(samples, 9)) && find_sequence(facts) &&
      find_hooks(tuple_item(samples, 2), tuple_item(samples, 3)) && find_modes() && find_tracking() &&
      find_saved_hooks(dict_item(globals.get(), "keep"));
  if (found && notes_are_readable(tuple_item(samples, 6), kViewBytes))
    find_view_function(tuple_item(samples, 6), tuple_item(samples, 7));
  g_api.PyDict_Clear(globals.get());
  return found;
}

struct Search {
  Object* torch;
  bool found;
};

void* search(void* argument) noexcept {
  auto& search = *static_cast<Search*>(argument);
  const int state = g_api.PyGILState_Ensure();
  search.found = find_places(search.torch);
  g_api.PyErr_Clear();
  g_api.PyGILState_Release(state);
  return nullptr;
}

}  // namespace

bool find_autograd_places(Object* torch) noexcept {
  Search asked{torch, false};
  pthread_t thread;
  {
    const BlockedSignals signals;
    if (!signals.blocked() || pthread_create(&thread, nullptr, search, &asked) != 0) return false;
  }
  ThreadState* const state = g_api.PyEval_SaveThread();
  pthread_join(thread, nullptr);
  g_api.PyEval_RestoreThread(state);
  return asked.found;
}

std::uint64_t autograd_nodes() noexcept { return g_places.nodes != nullptr ? g_places.nodes() : 0; }

void count_autograd_nodes(std::uint64_t made) noexcept {
  for (; made != 0; --made) g_places.count_node();
}

std::uint32_t autograd_facts(Object* plain_tensor) noexcept {
  const char* const notes = notes_of(plain_tensor);
  if (notes == nullptr) return 0;
  std::uint32_t facts = 0;
  if (requires_grad(plain_tensor)) facts |= kRequiresGrad;
  if (field<const void*>(notes, g_places.grad_fn) != nullptr) facts |= kHasGradFn;
  if (notes[g_places.flags + 1] != 0) facts |= kRetainsGrad;
  const bool is_view = notes[g_places.flags + 2] != 0, view_with_grad = is_view && (facts & kRequiresGrad) != 0;
  if (view_with_grad && (facts & kHasGradFn) == 0 && notes[g_places.flags] == 0) facts |= kRequiresGradByBase;
  if (is_view) facts |= std::uint32_t{static_cast<std::uint8_t>(notes[g_places.how_viewed])} << kHowViewedAt;
  const VersionCounter* const version = view_with_grad ? version_counter(plain_tensor) : nullptr;
  if (version != nullptr && field<std::uint32_t>(notes, g_places.view_version) != *version) facts |= kStaleGradFn;
  return facts;
}

AutogradMark autograd_mark(Object* plain_tensor) noexcept {
  AutogradMark mark;
  mark.hooks = hash_of_hooks(plain_tensor);
  const char* const notes = notes_of(plain_tensor);
  if (notes == nullptr) return mark;
  mark.facts = autograd_facts(plain_tensor);
  mark.is_view = notes[g_places.flags + 2] != 0;
  mark.grad_fn = field<std::uint64_t>(notes, g_places.grad_fn);
  if (mark.grad_fn != 0) {
    mark.sequence = field<std::uint64_t>(reinterpret_cast<const char*>(mark.grad_fn), g_places.sequence);
  }
  mark.output_number = field<std::uint32_t>(notes, g_places.output_number);
  const auto grad = field<std::uint64_t>(notes, g_places.grad);
  if (grad != g_places.no_grad) {
    mark.grad = grad;
    const auto* version = field<const char*>(reinterpret_cast<const char*>(grad), g_torch.version);
    mark.grad_version = version != nullptr ? field<std::uint32_t>(version, g_torch.version_count) : 0;
  }
  mark.rest = hash_of_rest(notes);
  return mark;
}

bool has_hooks(Object* plain_tensor) noexcept {
  const AutogradMark mark = autograd_mark(plain_tensor);
  return mark.hooks != 0 || mark.rest != 0;
}

refusal::Form<1> autograd_difference(const AutogradMark& before, const AutogradMark& after) noexcept {
  const std::uint32_t changed = before.facts ^ after.facts;
  if ((changed & (kRequiresGrad | kRequiresGradByBase)) != 0) return refusal::moved_requires_grad;
  if (before.grad_fn != after.grad_fn || before.sequence != after.sequence ||
      before.output_number != after.output_number) {
    return refusal::moved_grad_fn;
  }
  if ((changed & kRetainsGrad) != 0) return refusal::moved_retains_grad;
  if (before.is_view != after.is_view) return refusal::moved_view;
  if (before.grad != after.grad) return refusal::moved_grad;
  if (before.grad_version != after.grad_version) return refusal::wrote_to_grad;
  if (before.hooks != after.hooks) return refusal::moved_hook;
  if (before.rest != after.rest) return refusal::moved_hooks;
  return {};
}

AutogradNotes::AutogradNotes(Object* plain_tensor) noexcept : own_(autograd_mark(plain_tensor)) {
  if (!own_.is_view) return;
  const Reference base(new_reference_to_base(plain_tensor));
  if (!base) return;
  of_base_ = autograd_mark(base.get());
  const Reference watch(g_api.PyWeakref_NewRef(base.get(), nullptr));
  base_ = Strong(watch.get());
}

refusal::Form<1> AutogradNotes::moved(Object* plain_tensor) const noexcept {
  refusal::Form<1> moved;
  if (plain_tensor != nullptr) moved = autograd_difference(own_, autograd_mark(plain_tensor));
  if (moved || base_.get() == nullptr) return moved;
  Object* const base = referent(base_.get());
  if (base == nullptr || !is_tensor_or_subclass(base)) return {};  // it is gone
  return autograd_difference(of_base_, autograd_mark(base)) ? refusal::moved_base : refusal::Form<1>();
}

bool AutogradNotes::requires_grad_since(Object* plain_tensor) const noexcept {
  AutogradMark now = autograd_mark(plain_tensor);
  if (own_.is_view || own_.facts != 0 || now.facts != kRequiresGrad) return false;
  now.facts = 0;
  return !autograd_difference(own_, now);
}

namespace {

// Does the view know by which operator it was made? Autograd asks that for a new grad_fn.
bool has_view_function(Object* view) noexcept {
  const char* const notes = g_places.view_function != 0 ? notes_of(view) : nullptr;
  return notes != nullptr && notes[g_places.flags + 2] != 0 &&
         field<const void*>(notes, g_places.view_function) != nullptr;
}

}  // namespace

bool same_kind_of_view(Object* view, Object* made_anew, bool by_node) noexcept {
  if ((autograd_modes() & g_places.tracks_views) != 0 || has_view_function(view) != has_view_function(made_anew))
    return false;
  const std::uint32_t facts = autograd_facts(view);
  const std::uint32_t anew = autograd_facts(made_anew) | (by_node ? kMadeByNode : 0);
  return facts == anew || (by_node && facts == (anew | kOneOfSeveral) && (anew & kHowViewed) == 0);
}

namespace {

constexpr int kDeepest = 3;
constexpr std::size_t kMostItems = 64;  // of a container

bool any_requires_grad(Object* value, int depth) noexcept {
  if (is_tensor_or_subclass(value)) return requires_grad(value);
  if (depth == kDeepest) return false;
  Object* const type = type_of(value);
  const bool list = g_api.PyType_IsSubtype(type, g_api.PyList_Type) != 0;
  if (list || g_api.PyType_IsSubtype(type, g_api.PyTuple_Type) != 0) {
    Object* const* items = list ? list_data(value) : tuple_data(value);
    const std::size_t count = std::min(item_count(value), kMostItems);
    return std::any_of(items, items + count, [&](Object* item) { return any_requires_grad(item, depth + 1); });
  }
  const bool dict = g_api.PyType_IsSubtype(type, g_api.PyDict_Type) != 0;
  Object* const entries = dict ? value : instance_dict(value);
  std::ptrdiff_t position = 0;
  std::size_t count = 0;
  for (Object *key, *item; entries != nullptr && count < kMostItems; ++count) {
    if (g_api.PyDict_Next(entries, &position, &key, &item) == 0) break;
    if (any_requires_grad(item, depth + 1)) return true;
  }
  return false;
}

}  // namespace

bool leads_to_gradients(Object* result) noexcept { return any_requires_grad(result, 0); }

std::uint8_t autograd_modes() noexcept { return g_places.modes()[g_places.mode_byte]; }

bool saved_tensors_hooks_allowed() noexcept { return g_places.saved_hooks_allowed(); }

bool saved_tensors_hooks_active() noexcept {
  const char* const stack = g_places.saved_hooks();
  return field<const void*>(stack, kDequeBegin) != field<const void*>(stack, kDequeEnd);
}

}  // namespace grape::python::torch
