// Lets Python scripts call python_hooks/state by ctypes: preloaded into an interpreter, called with the GIL held.
#include <algorithm>
#include <cstring>
#include <vector>

#include "python_hooks/guards/module_guard.h"
#include "python_hooks/host_draws/host_draws.h"
#include "python_hooks/interpreter/cpython.h"
#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/dict_versions.h"
#include "python_hooks/torch/torch_api.h"
#include "python_hooks/torch/torch_switches.h"
#include "python_hooks/walk/walk.h"
#include "python_hooks/walk/walk_memo.h"
#include "python_hooks/walk/watch.h"
#include "tests/python_hooks/probes/cold_time.h"

#define PROBE extern "C" __attribute__((visibility("default")))

using grape::python::Object;
using grape::python::guards::ModuleGuard;
using grape::python::walk::Walk;
using grape::python::walk::WalkMemo;
using grape::test::microseconds;
using grape::test::microseconds_cold;

namespace {

grape::refusal::Refusal g_refusal;

Object* or_none(Object* object) {
  if (object != nullptr) return object;
  grape::python::g_api.Py_IncRef(grape::python::g_api._Py_NoneStruct);
  return grape::python::g_api._Py_NoneStruct;
}

}  // namespace

PROBE int state_load() {
  bool permanent = false;
  return grape::python::load_api(permanent) && grape::python::check_objects() ? 1 : 0;
}
PROBE int state_load_torch() { return grape::python::torch::load_torch_api() ? 1 : 0; }
PROBE int state_tells_of_changes(Object* dict) { return grape::python::tells_of_changes(dict) ? 1 : 0; }
PROBE int state_reports_changes(Object* dict) { return grape::python::reports_changes(dict) ? 1 : 0; }
PROBE void state_cpu_is_device(int yes) { grape::python::torch::treat_cpu_as_device(yes != 0); }

PROBE Walk* walk_new(int keep_addresses) { return new Walk(keep_addresses != 0); }
PROBE Walk* walk_new_portable() { return new Walk(Walk::portable(true)); }
PROBE void walk_delete(Walk* walk) { delete walk; }
PROBE void walk_clear(Walk* walk) { walk->clear(); }
PROBE int walk_add(Walk* walk, Object* root, const char* name) { return walk->add(root, name) ? 1 : 0; }
PROBE const void* walk_bytes(Walk* walk, std::size_t* size) {
  *size = walk->bytes().size();
  return walk->bytes().data();
}
PROBE void walk_note_numbers(Walk* walk) { walk->note_numbers(); }
PROBE std::size_t walk_numbers(Walk* walk, std::uint64_t* places, std::size_t room) {
  for (std::size_t i = 0; i < walk->number_places().size() && i < room; ++i) places[i] = walk->number_places()[i];
  return walk->number_places().size();
}
PROBE const char* walk_reason(Walk* walk) { return walk->refusal().text.c_str(); }
PROBE std::size_t walk_objects(Walk* walk) { return walk->objects().size(); }
PROBE Object* walk_object(Walk* walk, std::size_t index) {
  grape::python::g_api.Py_IncRef(walk->objects()[index]);
  return walk->objects()[index];
}
PROBE std::size_t walk_tensors(Walk* walk) { return walk->tensors().size(); }
PROBE std::uint32_t walk_extent_of(Walk* walk, std::size_t index) { return walk->tensors()[index].extent; }
PROBE std::size_t walk_extents(Walk* walk, std::uint64_t* pairs, std::size_t room) {
  for (std::size_t i = 0; i < walk->extents().size() && i < room; ++i) {
    pairs[2 * i] = walk->extents()[i].address;
    pairs[2 * i + 1] = walk->extents()[i].bytes;
  }
  return walk->extents().size();
}
// As a call's arguments are walked.
PROBE double walk_time(Object* root, int calls, std::size_t trash) {
  return microseconds_cold(calls, trash, [&] {
    Walk walk(false);
    walk.add(root, "root");
  });
}

PROBE WalkMemo* memo_new() { return new WalkMemo; }
PROBE void memo_delete(WalkMemo* memo) { delete memo; }
// Of the root with that number in a tuple of roots.
PROBE int memo_record(WalkMemo* memo, Object* roots, std::size_t index) {
  Object* const* data = grape::python::tuple_data(roots);
  return memo->record(data[index], [&](Walk& walk) {
    for (std::size_t i = 0; i < grape::python::item_count(roots); ++i) {
      if (!walk.add(data[i], "root")) return false;
    }
    return true;
  });
}
PROBE int memo_keeps(WalkMemo* memo, Object* root) { return memo->keeps(root) ? 1 : 0; }
PROBE std::uint64_t memo_recalled(WalkMemo* memo) { return memo->recalled(); }
PROBE void walk_recall(Walk* walk, WalkMemo* memo) { walk->recall(memo); }
PROBE double memo_time(WalkMemo* memo, Object* root, int calls, std::size_t trash) {
  return microseconds_cold(calls, trash, [&] {
    Walk walk(false);
    walk.recall(memo);
    walk.add(root, "root");
  });
}

PROBE ModuleGuard* guard_take(Object* module) {
  g_refusal = {};
  return ModuleGuard::take(module, nullptr, g_refusal).release();
}
PROBE const char* guard_reason() { return g_refusal.text.c_str(); }
PROBE void guard_delete(ModuleGuard* guard) { delete guard; }
PROBE int guard_holds(ModuleGuard* guard) { return guard->holds() ? 1 : 0; }
PROBE const char* guard_change(ModuleGuard* guard) { return guard->change().c_str(); }
PROBE const void* guard_bytes(ModuleGuard* guard, std::size_t* size) {
  *size = guard->bytes().size();
  return guard->bytes().data();
}
PROBE std::uint32_t guard_walks(ModuleGuard* guard) { return guard->walks(); }
PROBE std::size_t guard_objects(ModuleGuard* guard) { return guard->objects().size(); }
PROBE std::size_t guard_extents(ModuleGuard* guard) { return guard->extents().size(); }
PROBE double guard_time(ModuleGuard* guard, int calls, std::size_t trash) {
  return microseconds_cold(calls, trash, [&] { guard->holds(); });
}

// What they share, as words; and how long that takes to tell.
PROBE std::size_t guard_sharing(ModuleGuard* guard, Walk* walk, std::uint64_t* words, std::size_t most) {
  std::vector<std::uint64_t> shared;
  guard->sharing().relate(*walk, shared);
  std::memcpy(words, shared.data(), std::min(most, shared.size()) * sizeof *words);
  return shared.size();
}
PROBE double sharing_time(ModuleGuard* guard, Walk* walk, int calls, std::size_t trash) {
  std::vector<std::uint64_t> shared;
  return microseconds_cold(calls, trash, [&] {
    shared.clear();
    guard->sharing().relate(*walk, shared);
  });
}

PROBE int dispatch_state(std::uint8_t* bytes, std::size_t* size) {
  grape::python::torch::DispatchState state;
  grape::refusal::Form<0> refused;
  const bool taken = grape::python::torch::take_dispatch_state(state, refused);
  g_refusal = grape::refusal::make(refused);
  std::memcpy(bytes, state.bytes, state.byte_count);
  *size = state.byte_count;
  return taken ? 1 : 0;
}
// torch's switches alone. False: too much.
PROBE int switches(int by_python, std::uint8_t* bytes, std::size_t* size) {
  grape::python::torch::DispatchState state;
  grape::python::torch::DispatchWriter writer(state, false);
  grape::python::torch::put_switches(writer, by_python != 0);
  std::memcpy(bytes, state.bytes, state.byte_count);
  *size = state.byte_count;
  return writer.full() ? 0 : 1;
}
PROBE std::size_t switches_asked_of_python() { return grape::python::torch::switches_asked_of_python(); }
PROBE double dispatch_time(int calls, std::size_t trash) {
  grape::python::torch::DispatchState state;
  grape::refusal::Form<0> refused;
  return microseconds_cold(calls, trash, [&] { grape::python::torch::take_dispatch_state(state, refused); });
}
PROBE grape::python::host_draws::HostRandom* host_random_new() {
  auto* random = new grape::python::host_draws::HostRandom;
  random->take();
  return random;
}
PROBE void host_random_delete(grape::python::host_draws::HostRandom* random) { delete random; }
PROBE int host_random_unmoved(grape::python::host_draws::HostRandom* random) { return random->moved_by({}) ? 1 : 0; }

PROBE Object* torch_new_tensor(std::int64_t dimensions, const std::int64_t* sizes, const std::int64_t* strides,
                               std::int32_t type) {
  return or_none(grape::python::torch::new_tensor(dimensions, sizes, strides, type, 0, 0));
}
PROBE Object* torch_new_alias(Object* base, std::int64_t dimensions, const std::int64_t* sizes,
                              const std::int64_t* strides, std::int64_t offset, std::int32_t type) {
  return or_none(grape::python::torch::new_alias(base, dimensions, sizes, strides, offset, type));
}
