#include "python_hooks/replay/run.h"

#include <algorithm>
#include <new>
#include <optional>

#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/replay/casts.h"
#include "python_hooks/replay/clock.h"
#include "python_hooks/replay/pause.h"
#include "shim/device/thread_context.h"
#include "shim/memory/live_blocks.h"
#include "shim/record/thread_log.h"

namespace grape::python::replay {
namespace {

// Bytes of all programs' host data on the device, and how many there may be.
std::uint64_t g_host_data = 0;
constexpr std::uint64_t kMostHostData = std::uint64_t{32} << 20;

bool modules_loaded(const Proven& proven) noexcept {
  return record::g_module_epoch.load(std::memory_order_acquire) == proven.module_epoch;
}

// And events and streams.
bool statics_alive(Proven& proven) noexcept {
  auto& blocks = grape::replay::LiveBlocks::instance();
  const std::uint32_t epoch = blocks.epoch();
  if (epoch == proven.block_epoch) return true;
  if (!blocks.alive(proven.program.head())) return false;
  proven.block_epoch = epoch;
  return true;
}

Object* new_row(std::uint64_t count, std::int32_t type, std::int32_t device_type, std::int32_t device,
                std::uint64_t& address) noexcept {
  const auto size = static_cast<std::int64_t>(count);
  const std::int64_t stride = 1;
  Object* tensor = state::new_tensor(1, &size, &stride, type, device_type, device);
  state::TensorView view;
  if (tensor != nullptr && state::view_tensor(tensor, view)) {
    address = view.storage;
    return tensor;
  }
  if (tensor != nullptr) g_api.Py_DecRef(tensor);
  return nullptr;
}

bool make_whole(const state::MadeTensor& made, Object*& tensor, std::uint64_t& address) noexcept {
  tensor = state::new_tensor(static_cast<std::int64_t>(made.sizes.size()), made.sizes.data(), made.strides.data(),
                             made.type, made.device_type, made.device_index);
  state::TensorView view;
  if (tensor == nullptr || !state::view_tensor(tensor, view)) return false;
  address = view.storage;
  return true;
}

Object* make_from(Object* memory, const state::MadeTensor& made) noexcept {
  const auto dimensions = static_cast<std::int64_t>(made.sizes.size());
  return state::new_alias(memory, dimensions, made.sizes.data(), made.strides.data(), made.offset, made.type);
}

// One storage, and the tensors that share it but for those that autograd knows as views.
bool make_storage(const state::Outcome& outcome, const OutputRecipe& recipe, std::vector<Object*>& tensors,
                  std::uint64_t& address) noexcept {
  const std::vector<state::MadeTensor>& made = outcome.made();
  const bool whole = recipe.whole != OutputRecipe::kNone;
  if (whole && !make_whole(made[recipe.whole], tensors[recipe.whole], address)) return false;
  if (whole && recipe.made.size() == 1) return true;
  const state::MadeTensor& first = made[recipe.made.front()];
  const Reference bytes(whole ? nullptr
                              : new_bytes(first.storage_bytes, first.device_type, first.device_index, address));
  Object* const memory = whole ? tensors[recipe.whole] : bytes.get();
  if (memory == nullptr) return false;
  for (const std::uint32_t i : recipe.made) {
    if (tensors[i] != nullptr || made[i].view_of != state::MadeTensor::kNoView) continue;
    tensors[i] = make_from(memory, made[i]);
    if (tensors[i] == nullptr) return false;
  }
  return true;
}

bool make_views(const state::Outcome& outcome, std::vector<Object*>& tensors) noexcept {
  const std::vector<state::MadeTensor>& made = outcome.made();
  for (std::size_t i = 0; i < made.size(); ++i) {
    if (made[i].view_of == state::MadeTensor::kNoView) continue;
    Object* const base = tensors[static_cast<std::size_t>(made[i].view_of)];
    // A view remembers which version its base had: what moves that tells it to look at its base again.
    state::set_version(base, made[i].version);
    tensors[i] = state::new_view(base, static_cast<std::int64_t>(made[i].sizes.size()), made[i].sizes.data(),
                                 made[i].strides.data(), made[i].offset, made[i].type);
    if (tensors[i] == nullptr) return false;
  }
  return true;
}

bool make_output(const state::Outcome& outcome, const OutputRecipe& recipe, std::vector<Object*>& tensors,
                 std::uint64_t& address) noexcept {
  if (recipe.cast < 0) return make_storage(outcome, recipe, tensors, address);
  Object* bytes = new_bytes(recipe.cast_bytes, state::kCudaDevice, recipe.cast_device, address);
  if (bytes != nullptr) tensors.push_back(bytes);
  return bytes != nullptr;
}

}  // namespace

void drop(std::vector<Object*>& tensors) noexcept {
  for (Object* tensor : tensors) {
    if (tensor != nullptr) g_api.Py_DecRef(tensor);
  }
  tensors.clear();
}

Object* new_bytes(std::uint64_t bytes, std::int32_t device_type, std::int32_t device, std::uint64_t& address) noexcept {
  constexpr std::int32_t kByte = 0;  // c10::ScalarType
  return new_row(bytes, kByte, device_type, device, address);
}

Proven::~Proven() {
  if (pool != nullptr) pool->forget(program);
  if (host_data == nullptr) return;
  g_host_data -= host_bytes;
  g_api.Py_DecRef(host_data);
}

bool place_host_data(Proven& proven, const program::Program& whole, const WorkPlace& place, refusal::Refusal& refusal) {
  const std::vector<std::uint8_t>& data = whole.host_data;
  if (data.empty()) return true;
  if (data.size() > kMostHostData - g_host_data) {
    refusal = refusal::make(refusal::copies_too_much_in_all);
    return false;
  }
  std::uint64_t address = 0;
  Object* tensor = new_bytes(data.size(), state::kCudaDevice, place.device, address);
  if (tensor == nullptr || !grape::replay::put_host_data(whole, address, reinterpret_cast<CUstream>(place.stream))) {
    if (tensor != nullptr) g_api.Py_DecRef(tensor);
    refusal = refusal::make(refusal::no_device_memory);
    return false;
  }
  proven.host_data = tensor;
  proven.host_bytes = data.size();
  proven.bindings.host_data = address;
  g_host_data += data.size();
  return true;
}

bool make_outputs(const state::Outcome& outcome, const std::vector<OutputRecipe>& recipes,
                  std::vector<Object*>& tensors, std::vector<std::uint64_t>& addresses) noexcept {
  tensors.assign(outcome.made().size(), nullptr);
  for (const OutputRecipe& recipe : recipes) {
    std::uint64_t address = 0;
    if (!make_output(outcome, recipe, tensors, address)) {
      drop(tensors);
      return false;
    }
    if (recipe.has_block) addresses[recipe.block] = address;
  }
  if (make_views(outcome, tensors)) return true;
  drop(tensors);
  return false;
}

bool reserve_arena(Region& region, const WorkPlace& place, std::uint64_t bytes, std::uint64_t& address) noexcept {
  Arena* arena = nullptr;
  for (Arena& one : region.arenas) {
    if (one.stream == place.stream && one.device == place.device) arena = &one;
  }
  try {
    if (arena == nullptr) arena = &region.arenas.emplace_back(Arena{place.stream, place.device, nullptr, 0, 0});
    region.replaced.reserve(region.replaced.size() + 1);
  } catch (const std::bad_alloc&) {
    return false;
  }
  if (bytes > arena->bytes) {
    std::uint64_t fresh = 0;
    Object* tensor = new_bytes(bytes, state::kCudaDevice, place.device, fresh);
    if (tensor == nullptr) return false;
    // The allocator hands the old one's memory to work that comes later in this stream.
    if (arena->tensor != nullptr) region.replaced.push_back(arena->tensor);
    arena->tensor = tensor;
    arena->address = fresh;
    arena->bytes = bytes;
  }
  address = arena->address;
  return true;
}

bool place_call(Region& region, Proven& proven, const Call& call, std::vector<Object*>& tensors) noexcept {
  program::Bindings& bindings = proven.bindings;
  const auto& extents = call.walk->extents();
  for (std::size_t i = 0; i < extents.size(); ++i) bindings.inputs[i] = extents[i].address;
  return reserve_arena(region, call.work, proven.plan.bytes, bindings.arena) &&
         (!tensors.empty() || make_outputs(*proven.outcome, proven.recipes, tensors, bindings.outputs));
}

bool is_usable(Proven& proven) noexcept { return modules_loaded(proven) && statics_alive(proven); }

refusal::Refusal Why::refusal() const {
  refusal::Refusal refusal =
      names != nullptr ? refusal::make(refusal::names_not_as_they_were, *names) : refusal::make(form);
  if (place != nullptr) refusal.place = *place;
  return refusal;
}

bool guards_hold(Proven& proven, const Call& call, Why& why) noexcept {
  if (!modules_loaded(proven)) {
    why.form = refusal::kernels_unloaded;
  } else if (!statics_alive(proven)) {
    why.form = refusal::memory_replaced;
  } else if (proven.globals != nullptr && !proven.globals->holds()) {
    why.names = &proven.globals->change();
  } else if (!proven.outcome->fits(*call.walk)) {
    why.form = refusal::result_not_as_it_was;
  }
  return !why.form && why.names == nullptr;
}

bool shares_the_same(Proven& proven, const Call& call) noexcept {
  if (proven.globals == nullptr) return true;
  try {
    std::vector<std::uint64_t> shared;
    proven.globals->sharing().relate(*call.walk, shared);
    return shared == proven.shared;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

bool storages_fit(const Proven& proven, const Call& call) noexcept {
  if (proven.globals == nullptr || !proven.globals->sees_storages()) return true;
  const auto& extents = call.walk->extents();
  const std::vector<std::uint64_t>& bytes = proven.program.head().input_bytes;
  return std::equal(extents.begin(), extents.end(), bytes.begin(), bytes.end(),
                    [](const state::StorageExtent& extent, std::uint64_t size) { return extent.bytes == size; });
}

Ran run(Region& region, Proven& proven, const Call& call, Object*& result, Why& why) {
  Laps laps(now());
  // From the guards to the launch no other thread runs, so that what holds at first holds to the end.
  std::optional<NoCollection> no_collection(std::in_place);
  if (!guards_hold(proven, call, why)) return Ran::kStale;
  if (!shares_the_same(proven, call)) {
    why.form = refusal::argument_is_other_global;
    return Ran::kOther;
  }
  if (!storages_fit(proven, call)) {
    why.form = refusal::other_storage_size;
    return Ran::kOther;
  }
  if (proven.outcome->end_is_seen(*call.walk)) {
    why.form = refusal::end_is_seen;
    return Ran::kOther;
  }
  grape::replay::ContextScope scope(call.work.context);
  if (!scope.entered() || (region.on_gpu && !grape::replay::have_context(call.work.device))) {
    why.form = refusal::no_context;
    return Ran::kNotNow;
  }
  laps.add_to(region.parts[ReplayPart::kGuards]);
  why.form = refusal::no_memory_or_random_state;
  program::Bindings& bindings = proven.bindings;
  const bool random = proven.program.head().random_increment != 0;
  if (random && !state::random_state(call.work.device, bindings.seed, bindings.offset)) return Ran::kNotNow;

  std::vector<Object*> tensors, useless;
  state::References replaced;
  region.prefetch.take(proven, call, tensors, useless);
  if (!place_call(region, proven, call, tensors)) {
    drop(tensors);
    drop(useless);
    return Ran::kNotNow;
  }
  laps.add_to(region.parts[ReplayPart::kOutputs]);
  Ran ran = Ran::kFailed;
  auto* stream = reinterpret_cast<CUstream>(call.work.stream);
  refusal::Refusal error;
  GilPause pause(region, &proven, call, true, &scope);
  const bool prepared = proven.steps.prepare(region.execs, proven.program, proven.plan, bindings, error);
  no_collection.reset();
  if (prepared) {
    laps.add_to(region.parts[ReplayPart::kPatches]);
    proven.outcome->fetch();
    const grape::replay::Steps::Ran steps = proven.steps.run(stream, proven.others, &pause);
    scope.leave();  // from here on the program's code may run again
    laps.add_to(region.parts[ReplayPart::kLaunch]);
    region.parts[ReplayPart::kLaunch] -= proven.steps.waited();
    region.parts[ReplayPart::kWait] = proven.steps.waited();
    switch (steps) {
      case grape::replay::Steps::Ran::kDone:
        if (random)
          state::set_random_offset(call.work.device, bindings.offset + proven.program.head().random_increment);
        // The work is under way: there is no way back to eager from here.
        result = proven.outcome->repeat(tensors.data(), *call.walk, replaced);
        if (result == nullptr) g_api.PyErr_NoMemory();
        keep_casts(region, proven, tensors, proven.outcome->made().size());
        state::count_autograd_nodes(proven.nodes_made);
        for (const state::GlobalWrite& write : proven.writes) {
          state::move_version(proven.globals->tensor(write.tensor), write.times);
        }
        if (result != nullptr && !proven.draws.repeat()) {  // no memory, say: the exception is the call's
          g_api.Py_DecRef(result);
          result = nullptr;
        }
        laps.add_to(region.parts[ReplayPart::kResults]);
        replaced.clear();
        laps.add_to(region.parts[ReplayPart::kFreed]);
        state::Walk::expect(tensors);
        ran = Ran::kReplayed;
        break;
      case grape::replay::Steps::Ran::kOtherValue:
        ran = Ran::kOther;
        why = {refusal::other_value_read, nullptr, &proven.read_place};
        break;
      case grape::replay::Steps::Ran::kChanged:
        ran = Ran::kOther;
        why = {refusal::changed_in_the_wait, nullptr, &proven.read_place};
        break;
      case grape::replay::Steps::Ran::kFailed:
        break;
    }
  }
  scope.leave();
  if (ran == Ran::kFailed) why.form = refusal::graph_refused;
  drop(tensors);
  drop(useless);
  if (ran == Ran::kReplayed && result != nullptr) {
    region.prefetch.prepare(region, proven, call);
    region.prefetch.remember_arguments(region, call);
    laps.add_to(region.parts[ReplayPart::kAhead]);
  }
  pause.release();
  return ran;
}

}  // namespace grape::python::replay
