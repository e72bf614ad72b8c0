#include <utility>

#include "python_hooks/control/decision.h"
#include "python_hooks/control/module_state.h"
#include "python_hooks/proof/functions.h"
#include "python_hooks/proof/observe.h"
#include "python_hooks/replay/casts.h"
#include "python_hooks/replay/clock.h"
#include "python_hooks/replay/signature.h"
#include "shim/lifecycle/config.h"

namespace grape::python::replay {
namespace {

using Action = Decision::Action;

constexpr std::uint32_t kRefusedForLong = 32;  // calls in a row with refused arguments: they are not even looked at

// Is any of it on a GPU, as far as can be seen? Else it is nobody's loss. Only for GRAPE_STRICT.
bool works_on_gpu(Region& region, const Call& call, state::Walk& walk) {
  if (walk.tensors().empty()) static_cast<void>(write_call(call, walk));  // it was not come to
  refusal::Refusal ignored;
  if (region.guard == nullptr) region.guard = state::ModuleGuard::take(call.root, call.self, ignored);
  region.on_gpu =
      region.on_gpu || !walk.extents().empty() || (region.guard != nullptr && !region.guard->extents().empty());
  return region.on_gpu;
}

// A region's calls are observed at once until one was of use (the first one loads kernels, and PyTorch sets switches of
// its own in it); then those whose signatures come again, or that an earlier process proved, or all if some were
// replayed already: a program that never repeats itself pays for nothing.
bool worth_observing(const Region& region, Signature& signature, const Call& call) {
  if (signature.stage == Stage::kGivenUp) return false;
  return signature.calls > 1 || !region.useful || region.replayed != 0 || proven_earlier(region, signature, call);
}

// Its arguments cannot be looked through. If that is so each time, the modules inside are regions.
Decision decide_refused(Region& region, refusal::Refusal refusal) {
  if (++region.refused < kMostRefusals || region.replayed != 0) return {Action::kFallBack, std::move(refusal)};
  if (region.refused >= kRefusedForLong) {
    region.refusals.begin();
    if (region.automatic) region.give_up();
  }
  if (config().strict) return {Action::kFallBack, std::move(refusal)};
  ++region.fell_back;
  return {Action::kPassOn, std::move(refusal)};
}

// PyTorch's state, or an argument, is refused. `known`: PyTorch's state is not.
Decision decide_unwritten(Region& region, const Call& call, state::Walk& walk, bool known, refusal::Form<0> blocked) {
  refusal::Refusal refusal = blocked ? refusal::make(blocked) : walk.refusal();
  if (config().strict && !works_on_gpu(region, call, walk)) return {Action::kRun, {}};
  return known ? decide_refused(region, std::move(refusal)) : Decision{Action::kFallBack, std::move(refusal)};
}

// Is the module in a state that proofs can stand on? False: `decision` is what that means.
bool decide_on_guard(Region& region, const Call& call, const state::Walk& walk, Decision& decision) {
  refusal::Refusal refusal;
  const Guarded guard = ensure_guard(region, call, refusal);
  region.on_gpu = region.on_gpu || !walk.extents().empty();
  if (guard == Guarded::kRefused) {
    decision = {Action::kGivenUp, std::move(refusal)};
  } else if (guard == Guarded::kNotNow) {
    decision = {config().strict && !region.on_gpu ? Action::kRun : Action::kFallBack, std::move(refusal)};
  } else if (guard == Guarded::kAnew && config().strict) {
    decision = {Action::kRaise, std::move(refusal)};
  } else {
    return true;
  }
  return false;
}

}  // namespace

Decision decide_unproven(Region& region, Signature& signature, const Call& call) {
  if (!worth_observing(region, signature, call)) {
    if (signature.stage != Stage::kGivenUp) {
      ++region.first_calls;
    } else if (config().strict) {
      return {Action::kRaise, signature.given_up_for};
    }
    return {Action::kRun, {}};
  }
  if (region.automatic && !InnerBudget::affords(now())) {
    ++region.put_off;
    return {Action::kRun, {}};
  }
  return {Action::kObserve, {}, &signature};
}

Decision decide(Region& region, Call& call, state::Walk& walk, Lookup& lookup) {
  lookup.began = now();
  refusal::Form<0> blocked;
  walk.recall(&region.memo);
  call.walk = &walk;
  const bool known = state::take_dispatch_state(call.dispatch, blocked);
  if (!known || !write_call(call, walk)) return decide_unwritten(region, call, walk, known, blocked);
  region.refused = 0;
  Decision decision{Action::kRun, {}};
  const double walked = now();
  const bool guarded = decide_on_guard(region, call, walk, decision);
  lookup.guards = now() - walked;
  if (!guarded) return decision;
  if (!walk.extents().empty() || !region.guard->extents().empty()) {
    region.on_gpu = true;
  } else if (!region.function) {  // what a function works on may be in globals: its observed calls tell
    region.given_up = region.no_gpu = true;
    return {Action::kGivenUp, {}};
  }
  if (!find_work_place(region, call, walk)) return {Action::kFallBack, refusal::make(refusal::place_unknown)};
  FoundCasts casts;
  if (!casts.write(region, call, walk)) return {Action::kFallBack, walk.refusal()};
  write_sharing(region, walk);
  Signature* signature = find_signature(region, walk.bytes());
  if (signature == nullptr) return {Action::kRun, {}};
  ++signature->calls;
  if (never_comes_again(region, *signature)) {
    region.give_up();
    return {Action::kGivenUp, refusal::make(refusal::module_never_the_same)};
  }
  if (signature->stage == Stage::kProven) return {Action::kReplay, {}, signature};
  return decide_unproven(region, *signature, call);
}

}  // namespace grape::python::replay
