#include "python_hooks/replay/run.h"

#include <new>
#include <optional>

#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/replay/casts.h"
#include "python_hooks/replay/clock.h"
#include "python_hooks/replay/gil_release.h"
#include "python_hooks/replay/proof_guards.h"
#include "shim/device/thread_context.h"

namespace grape::python::replay {
namespace {

// Bytes of all programs' host data on the device, and how many there may be.
std::uint64_t g_host_data = 0;
constexpr std::uint64_t kMostHostData = std::uint64_t{32} << 20;

// Of a tensor that was just made. False: it was not.
bool storage_of(Object* tensor, std::uint64_t& address) noexcept {
  torch::TensorView view;
  if (tensor == nullptr || !torch::view_tensor(tensor, view)) return false;
  address = view.storage;
  return true;
}

bool make_whole(const effects::MadeTensor& made, Object*& tensor, std::uint64_t& address) noexcept {
  tensor = torch::new_tensor(static_cast<std::int64_t>(made.sizes.size()), made.sizes.data(), made.strides.data(),
                             made.type, made.device_type, made.device_index);
  return storage_of(tensor, address);
}

Object* make_from(Object* memory, const effects::MadeTensor& made) noexcept {
  const auto dimensions = static_cast<std::int64_t>(made.sizes.size());
  return torch::new_alias(memory, dimensions, made.sizes.data(), made.strides.data(), made.offset, made.type);
}

// One storage, and the tensors that share it but for those that autograd knows as views.
bool make_storage(const effects::CallOutcome& outcome, const OutputRecipe& recipe, std::vector<Object*>& tensors,
                  std::uint64_t& address) noexcept {
  const std::vector<effects::MadeTensor>& made = outcome.made();
  const bool whole = recipe.whole != OutputRecipe::kNone;
  if (whole && !make_whole(made[recipe.whole], tensors[recipe.whole], address)) return false;
  if (whole && recipe.made.size() == 1) return true;
  const effects::MadeTensor& first = made[recipe.made.front()];
  const Reference bytes(whole ? nullptr
                              : new_bytes(first.storage_bytes, first.device_type, first.device_index, address));
  Object* const memory = whole ? tensors[recipe.whole] : bytes.get();
  if (memory == nullptr) return false;
  for (const std::uint32_t i : recipe.made) {
    if (tensors[i] != nullptr || made[i].view_of != effects::MadeTensor::kNoView) continue;
    tensors[i] = make_from(memory, made[i]);
    if (tensors[i] == nullptr) return false;
  }
  return true;
}

bool make_views(const effects::CallOutcome& outcome, std::vector<Object*>& tensors) noexcept {
  const std::vector<effects::MadeTensor>& made = outcome.made();
  for (std::size_t i = 0; i < made.size(); ++i) {
    if (made[i].view_of == effects::MadeTensor::kNoView) continue;
    Object* const base = tensors[static_cast<std::size_t>(made[i].view_of)];
    // A view remembers which version its base had: what moves that tells it to look at its base again.
    walk::set_version(base, made[i].version);
    tensors[i] = torch::new_view(base, static_cast<std::int64_t>(made[i].sizes.size()), made[i].sizes.data(),
                                 made[i].strides.data(), made[i].offset, made[i].type);
    if (tensors[i] == nullptr) return false;
  }
  return true;
}

bool make_output(const effects::CallOutcome& outcome, const OutputRecipe& recipe, std::vector<Object*>& tensors,
                 std::uint64_t& address) noexcept {
  if (recipe.cast < 0) return make_storage(outcome, recipe, tensors, address);
  Object* bytes = new_bytes(recipe.cast_bytes, torch::kCudaDevice, recipe.cast_device, address);
  if (bytes != nullptr) tensors.push_back(bytes);
  return bytes != nullptr;
}

bool place_inputs(Region& region, Proven& proven, const Call& call) noexcept {
  program::Bindings& bindings = proven.bindings;
  const auto& extents = call.walk->extents();
  for (std::size_t i = 0; i < extents.size(); ++i) bindings.inputs[i] = extents[i].address;
  return reserve_arena(region, proven, call.work);
}

// One tensor for all that only the backward pass needs, behind the others: its pieces one after the other. `pieces`:
// where they begin.
bool make_saved(const std::vector<OutputRecipe>& recipes, std::int32_t device, std::vector<Object*>& tensors,
                std::vector<std::uint64_t>& addresses, std::vector<std::uint64_t>& pieces) {
  std::uint64_t bytes = 0, begin = 0;
  pieces = bytes_of_pieces(recipes);
  for (std::uint64_t& piece : pieces) bytes += std::exchange(piece, bytes);
  if (bytes == 0) return true;
  Object* const memory = new_bytes(bytes, torch::kCudaDevice, device, begin);
  if (memory == nullptr) return false;
  tensors.push_back(memory);
  for (std::uint64_t& piece : pieces) piece += begin;
  for (const OutputRecipe& recipe : recipes) {
    if (recipe.saved_bytes != 0) addresses[recipe.block] = program::address_in(pieces, recipe.saved_at);
  }
  return true;
}

// All but what only the backward pass needs. `casts`: with those that autocast keeps?
bool make_tensors(const effects::CallOutcome& outcome, const std::vector<OutputRecipe>& recipes, bool casts,
                  std::vector<Object*>& tensors, std::vector<std::uint64_t>& addresses) noexcept {
  tensors.assign(outcome.made().size(), nullptr);
  for (const OutputRecipe& recipe : recipes) {
    if (recipe.saved_bytes != 0 || (recipe.cast >= 0 && !casts)) continue;
    std::uint64_t address = 0;
    if (!make_output(outcome, recipe, tensors, address)) return false;
    if (recipe.has_block) addresses[recipe.block] = address;
  }
  return make_views(outcome, tensors);
}

// The memory of a call that trains: its casts, and what only the backward pass needs, are no objects of Python's.
bool place_training_call(Region& region, Proven& proven, const Call& call, std::vector<Object*>& tensors,
                         LeftBlocks& left) noexcept {
  program::Bindings& bindings = proven.bindings;
  if (!place_inputs(region, proven, call)) return false;
  try {
    if (make_tensors(*proven.outcome, proven.recipes, false, tensors, bindings.outputs) &&
        left.make(proven, call.work.device, bindings.outputs, bindings.lent) &&
        left.keep_written(*proven.border, call.work)) {
      return true;
    }
  } catch (const std::bad_alloc&) {
  }
  drop(tensors);
  return false;
}

// Autograd's part of what the call leaves. False: no memory.
bool leave_for_autograd(const Region& region, const Proven& proven, const Call& call,
                        const std::vector<Object*>& tensors, LeftBlocks& left, std::uint64_t first_node) noexcept {
  try {
    return left.keep_casts(region, proven) && attach_backward(region, proven, call, tensors, left, first_node);
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// The work is under way, and there is no way back: does for Python what the call does. Null: an exception is set.
Object* repeat_for_python(Region& region, Proven& proven, const Call& call, std::vector<Object*>& tensors,
                          LeftBlocks& left, Laps& laps) {
  const std::uint64_t increment = proven.program.head().random_increment;
  if (increment != 0) torch::set_random_offset(call.work.device, proven.bindings.offset + increment);
  effects::References replaced;
  const std::uint64_t nodes = torch::autograd_nodes();
  Object* result = proven.outcome->repeat(tensors.data(), *call.walk, replaced);
  const std::size_t made = proven.outcome->made().size();
  if (proven.border == nullptr) {
    keep_casts(region, proven, tensors, made);
  } else if (result != nullptr && !leave_for_autograd(region, proven, call, tensors, left, nodes)) {
    g_api.Py_DecRef(result);
    result = nullptr;
  }
  drop_behind(tensors, made);
  if (result == nullptr) g_api.PyErr_NoMemory();
  const std::uint64_t nodes_made = torch::autograd_nodes() - nodes;  // of kept casts
  torch::count_autograd_nodes(proven.nodes_made - std::min(nodes_made, proven.nodes_made));
  for (const walk::GlobalWrite& write : proven.writes) {
    walk::move_version(proven.globals->tensor(write.tensor), write.times);
  }
  if (result != nullptr && !proven.draws.repeat()) {  // no memory, say: the exception is the call's
    g_api.Py_DecRef(result);
    result = nullptr;
  }
  laps.add_to(region.parts[report::ReplayPart::kResults]);
  replaced.clear();
  laps.add_to(region.parts[report::ReplayPart::kFreed]);
  walk::Walk::expect(tensors);
  return result;
}

// Runs what was prepared. `refused`: for all but kReplayed. `scope` is left at the end.
ReplayResult launch(Region& region, Proven& proven, const Call& call, device::ContextScope& scope, GilRelease& pause,
                    std::vector<Object*>& tensors, LeftBlocks& left, Laps& laps, Object*& result,
                    refusal::Form<0>& refused) {
  using RunResult = grape::replay::ProgramRun::Result;
  laps.add_to(region.parts[report::ReplayPart::kPatches]);
  proven.outcome->fetch();
  const RunResult ran = proven.steps.run(call.work.driver_stream(), proven.others, &pause);
  scope.leave();  // from here on the program's code may run again
  laps.add_to(region.parts[report::ReplayPart::kLaunch]);
  region.parts[report::ReplayPart::kLaunch] -= proven.steps.waited();
  region.parts[report::ReplayPart::kWait] = proven.steps.waited();
  if (ran == RunResult::kDone) {
    result = repeat_for_python(region, proven, call, tensors, left, laps);
    return ReplayResult::kReplayed;
  }
  if (ran == RunResult::kFailed) return ReplayResult::kFailed;
  refused = ran == RunResult::kOtherValue ? refusal::other_value_read : refusal::changed_in_the_wait;
  return ReplayResult::kOther;
}

}  // namespace

void drop(std::vector<Object*>& tensors) noexcept { drop_behind(tensors, 0); }

void drop_behind(std::vector<Object*>& tensors, std::size_t count) noexcept {
  for (std::size_t i = count; i < tensors.size(); ++i) {
    if (tensors[i] != nullptr) g_api.Py_DecRef(tensors[i]);
  }
  tensors.resize(std::min(count, tensors.size()));
}

Object* new_bytes(std::uint64_t bytes, std::int32_t device_type, std::int32_t device, std::uint64_t& address) noexcept {
  constexpr std::int32_t kByte = 0;  // c10::ScalarType
  const auto size = static_cast<std::int64_t>(bytes);
  const std::int64_t stride = 1;
  Object* tensor = torch::new_tensor(1, &size, &stride, kByte, device_type, device);
  if (storage_of(tensor, address)) return tensor;
  if (tensor != nullptr) g_api.Py_DecRef(tensor);
  return nullptr;
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
  if (data.size() > kMostHostData - g_host_data) return refusal::refuse(refusal, refusal::copies_too_much_in_all);
  std::uint64_t address = 0;
  Object* tensor = new_bytes(data.size(), torch::kCudaDevice, place.device, address);
  if (tensor == nullptr || !grape::replay::put_host_data(whole, address, place.driver_stream())) {
    if (tensor != nullptr) g_api.Py_DecRef(tensor);
    return refusal::refuse(refusal, refusal::no_device_memory);
  }
  proven.host_data = tensor;
  proven.host_bytes = data.size();
  proven.bindings.host_data = address;
  g_host_data += data.size();
  return true;
}

bool make_outputs(const effects::CallOutcome& outcome, const std::vector<OutputRecipe>& recipes, std::int32_t device,
                  std::vector<Object*>& tensors, std::vector<std::uint64_t>& addresses,
                  std::vector<std::uint64_t>& pieces) noexcept {
  try {
    if (make_tensors(outcome, recipes, true, tensors, addresses) &&
        make_saved(recipes, device, tensors, addresses, pieces)) {
      return true;
    }
  } catch (const std::bad_alloc&) {
  }
  drop(tensors);
  return false;
}

// A step of an optimizer has as much temporary memory as there are weights, at a time when little else is in use: it is
// the call's own, as in eager.
bool borrow_arena(Region& region, Proven& proven, const WorkPlace& place) noexcept {
  if (proven.plan.bytes == 0) return true;
  Object* tensor = nullptr;
  try {
    region.replaced.reserve(region.replaced.size() + 1);
    tensor = new_bytes(proven.plan.bytes, torch::kCudaDevice, place.device, proven.bindings.arena);
  } catch (const std::bad_alloc&) {
  }
  if (tensor != nullptr) region.replaced.push_back(tensor);
  return tensor != nullptr;
}

bool reserve_arena(Region& region, Proven& proven, const WorkPlace& place) noexcept {
  if (region.kind == RegionKind::kOptimizer) return borrow_arena(region, proven, place);
  return region.arena.reserve(place, proven.plan.bytes, proven.is_one_launch, proven.bindings.arena, region.replaced);
}

bool place_call(Region& region, Proven& proven, const CallFacts& facts, const Call& call,
                std::vector<Object*>& tensors) noexcept {
  program::Bindings& bindings = proven.bindings;
  return place_inputs(region, proven, call) &&
         (!tensors.empty() ||
          make_outputs(*facts.outcome, facts.recipes, call.work.device, tensors, bindings.outputs, bindings.lent));
}

refusal::Refusal at_read(refusal::Form<0> form, const Proven& proven) {
  refusal::Refusal refusal = refusal::make(form);
  refusal.place = proven.read_place;
  return refusal;
}

bool decides_the_same(Region& region, Proven& proven, const Call& call, refusal::Refusal& why) noexcept {
  if (proven.draws.decisions() == 0) return true;
  GilRelease pause(region, nullptr, call);
  const bool kept = pause.expect();
  const bool same = kept && proven.draws.decide_the_same();
  const bool unchanged = same && pause.unchanged();
  pause.release();
  if (!unchanged) why = refusal::make(same ? refusal::changed_in_the_wait : refusal::draws_decide_otherwise);
  return unchanged;
}

ReplayResult run(Region& region, Proven& proven, const Call& call, Object*& result, refusal::Refusal& why) {
  Laps laps(now());
  if (!decides_the_same(region, proven, call, why)) return ReplayResult::kOther;
  // From the guards to the launch no other thread runs, so that what holds at first holds to the end.
  std::optional<NoCollection> no_collection(std::in_place);
  if (const Guard* const broken = broken_guard(proven, call)) {
    why = broken->explain(proven);
    return broken->failure == Guard::Failure::kStale ? ReplayResult::kStale : ReplayResult::kOther;
  }
  device::ContextScope scope(call.work.context);
  if (!scope.entered() || (region.on_gpu && !device::have_context(call.work.device))) {
    why = refusal::make(refusal::no_context);
    return ReplayResult::kNotNow;
  }
  laps.add_to(region.parts[report::ReplayPart::kGuards]);
  program::Bindings& bindings = proven.bindings;
  bindings.numbers = call.numbers;
  std::vector<Object*> tensors, useless;
  if (proven.program.head().random_increment != 0 &&
      !torch::random_state(call.work.device, bindings.seed, bindings.offset)) {
    why = refusal::make(refusal::no_memory_or_random_state);
    return ReplayResult::kNotNow;
  }
  LeftBlocks left;
  region.prefetch.take(proven, call, tensors, useless);
  if (!(proven.border == nullptr ? place_call(region, proven, proven, call, tensors)
                                 : place_training_call(region, proven, call, tensors, left))) {
    drop(tensors);
    drop(useless);
    why = refusal::make(refusal::no_memory_or_random_state);
    return ReplayResult::kNotNow;
  }
  laps.add_to(region.parts[report::ReplayPart::kOutputs]);
  GilRelease pause(region, &proven, call, true, &scope);
  const bool prepared = proven.steps.prepare(region.execs, proven.program, proven.plan, bindings, why);
  no_collection.reset();
  auto refused = refusal::graph_refused;
  const ReplayResult ran = prepared ? launch(region, proven, call, scope, pause, tensors, left, laps, result, refused)
                                    : ReplayResult::kFailed;
  scope.leave();
  drop(tensors);
  drop(useless);
  if (ran == ReplayResult::kReplayed && result != nullptr) {
    region.prefetch.prepare(region, proven, call);
    region.prefetch.remember_arguments(region, call);
    laps.add_to(region.parts[report::ReplayPart::kAhead]);
  }
  pause.release();
  if (ran == ReplayResult::kFailed) why = refusal::make(refused);
  if (ran == ReplayResult::kOther) why = at_read(refused, proven);
  return ran;
}

}  // namespace grape::python::replay
