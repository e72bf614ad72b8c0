#include "python_hooks/replay/prefetch.h"

#include <algorithm>
#include <new>

#include "python_hooks/observation/traps.h"
#include "python_hooks/replay/proof_guards.h"
#include "python_hooks/replay/run.h"
#include "python_hooks/replay/signature.h"
#include "shim/observation/device_exclusion.h"

namespace grape::python::replay {
namespace {

// What may lie about unused between two calls.
constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 20;
constexpr int kMostConfidence = 3, kLostConfidence = 2;
constexpr std::uint32_t kMostInVain = 3;   // recordings in a row
constexpr std::uint32_t kRestOfMemo = 64;  // replays that record nothing then

std::uint64_t bytes_of_outputs(const Proven& proven) {
  std::uint64_t bytes = 0;
  for (const OutputRecipe& recipe : proven.recipes) bytes += bytes_of(recipe, *proven.outcome);
  return bytes;
}

bool device_works(const Call& call) noexcept {
  const device::ContextScope scope(call.work.context);
  return scope.entered() && grape::observation::has_work(call.work.stream);
}

}  // namespace

void Prefetch::clear() noexcept {
  ready_.reset();
  addresses_->ready.clear();
  drop(tensors_);
}

void Prefetch::take(Proven& proven, const Call& call, std::vector<Object*>& tensors,
                    std::vector<Object*>& useless) noexcept {
  if (ready_.lock().get() == &proven && dispatch_.same_as(call.dispatch) && work_ == call.work &&
      pool_changes_ == observation::pool_changes()) {
    tensors.swap(tensors_);
    proven.bindings.outputs.swap(addresses_->ready);
  }
  addresses_->ready.clear();
  tensors_.swap(useless);
  ready_.reset();
}

void Prefetch::learn(const std::shared_ptr<Proven>& ran) {
  const program::Bindings& bindings = ran->bindings;
  if (const std::shared_ptr<Proven> last = last_.lock()) {
    Successor& next = last->successor;
    const bool as_before = next.proven.lock() == ran;
    if (!as_before && next.confidence > 0) {
      next.confidence -= kLostConfidence;
    } else {
      if (!as_before) next = {ran, {}, 0};
      next.confidence = std::min(next.confidence + 1, kMostConfidence);
      next.inputs.learn(bindings.inputs, predicted_, *addresses_);
    }
  }
  predicted_.clear();
  addresses_->inputs = bindings.inputs;
  addresses_->outputs = bindings.outputs;
  note_replay(addresses_);
  last_ = ran;
}

void Prefetch::get_ready(Region& region, const Proven& ran, Proven& next, const Successor& successor,
                         const Call& call) {
  program::Bindings& bindings = next.bindings;
  dispatch_ = call.dispatch;
  work_ = call.work;
  pool_changes_ = observation::pool_changes();
  std::vector<std::uint64_t>& outputs = addresses_->ready;
  outputs.resize(bindings.outputs.size());
  if (!reserve_arena(region, next, call.work) ||
      !make_outputs(*next.outcome, next.recipes, call.work.device, tensors_, outputs, bindings.lent)) {
    outputs.clear();
    return;
  }
  if (ran.program.head().random_increment != 0) {
    bindings.seed = ran.bindings.seed;
    bindings.offset = ran.bindings.offset + ran.program.head().random_increment;
  }
  successor.inputs.predict(*addresses_, bindings.inputs);
  predicted_ = bindings.inputs;
  bindings.outputs = outputs;
  next.steps.prepare_all(region.execs, next.program, next.plan, bindings);
  ready_ = next.weak_from_this();
}

void Prefetch::prepare(Region& region, Proven& ran, const Call& call) noexcept {
  // An optimizer's next call comes a step later: with other numbers, and in memory of its own.
  if (region.kind == RegionKind::kOptimizer) return;
  try {
    const std::shared_ptr<Proven> now = ran.weak_from_this().lock();
    if (now == nullptr) return;
    learn(now);
    const Successor& successor = now->successor;
    const std::shared_ptr<Proven> next = successor.confidence > 0 ? successor.proven.lock() : nullptr;
    if (next == nullptr || next->border != nullptr || !is_usable(*next) || bytes_of_outputs(*next) > kMostBytes) return;
    const OnWorkDevice device(call.work);
    if (!device.entered()) return;
    get_ready(region, *now, *next, successor, call);
  } catch (const std::bad_alloc&) {
    clear();
  }
}

// Only what the next call is likely to come with, and while nobody waits for it.
void Prefetch::remember_arguments(Region& region, const Call& call) noexcept {
  if (without_memo_ != 0) {
    --without_memo_;
    return;
  }
  if (call.walk->largest_values() < walk::WalkMemo::kLeastValues || !device_works(call)) return;
  const bool unused = region.memo.recalled() == recalled_;
  recalled_ = region.memo.recalled();
  Object* const root = call.walk->largest_root();
  if (unused || !region.memo.keeps(root)) {
    region.memo.record(root, [&](walk::Walk& walk) { return write_call(call, walk); });
  }
  in_vain_ = unused || !device_works(call) ? in_vain_ + 1 : 0;
  if (in_vain_ <= kMostInVain) return;
  in_vain_ = 0;
  without_memo_ = kRestOfMemo;
}

}  // namespace grape::python::replay
