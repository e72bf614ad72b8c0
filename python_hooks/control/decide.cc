#include <utility>

#include "python_hooks/control/decision.h"
#include "python_hooks/proof/functions.h"
#include "python_hooks/proof/observe.h"
#include "python_hooks/replay/casts.h"
#include "python_hooks/replay/clock.h"
#include "python_hooks/replay/optimizer_numbers.h"
#include "python_hooks/replay/signature.h"
#include "shim/lifecycle/config.h"
#include "shim/lifecycle/log.h"

namespace grape::python::control {
namespace {

using Action = Decision::Action;

constexpr std::uint32_t kRefusedForLong = 32;    // calls in a row with refused arguments: they are not even looked at
constexpr std::uint32_t kMostGuardRefusals = 3;  // calls in a row

// Is any of it on a GPU, as far as can be seen? Else it is nobody's loss. Only for GRAPE_STRICT.
bool works_on_gpu(replay::Region& region, const replay::Call& call, walk::Walk& walk) {
  if (walk.tensors().empty()) static_cast<void>(replay::write_call(call, walk));  // it was not come to
  refusal::Refusal ignored;
  std::unique_ptr<guards::ModuleGuard>& guard = region.evidence.guard;
  if (guard == nullptr) guard = guards::ModuleGuard::take(call.root, call.self, ignored);
  region.on_gpu = region.on_gpu || !walk.extents().empty() || (guard != nullptr && !guard->extents().empty());
  return region.on_gpu;
}

// A region's calls are observed at once until one was of use (the first one loads kernels, and PyTorch sets switches of
// its own in it); then those whose signatures come again, or that an earlier process proved, or all if some were
// replayed already: a program that never repeats itself pays for nothing.
bool worth_observing(const replay::Region& region, replay::Signature& signature, const replay::Call& call) {
  if (signature.stage == replay::Stage::kGivenUp) return false;
  return signature.calls > 1 || !region.budget.useful || region.statistics.replayed != 0 ||
         proof::proven_in_cache(region, signature, call);
}

// Its arguments cannot be looked through. If that is so each time, the modules inside are regions.
Decision decide_refused(replay::Region& region, refusal::Refusal refusal) {
  if (++region.budget.refused < kMostRefusals || region.statistics.replayed != 0) {
    return {Action::kFallBack, std::move(refusal)};
  }
  if (region.budget.refused >= kRefusedForLong) {
    region.budget.refusals.begin();
    if (region.is_found()) region.give_up();
  }
  if (config().strict) return {Action::kFallBack, std::move(refusal)};
  ++region.fell_back;
  return {Action::kPassOn, std::move(refusal)};
}

// PyTorch's state, or an argument, is refused. `known`: PyTorch's state is not.
Decision decide_unwritten(replay::Region& region, const replay::Call& call, walk::Walk& walk, bool known,
                          refusal::Form<0> blocked) {
  refusal::Refusal refusal = blocked ? refusal::make(blocked) : walk.refusal();
  if (config().strict && !works_on_gpu(region, call, walk)) return {Action::kRun, {}};
  return known ? decide_refused(region, std::move(refusal)) : Decision{Action::kFallBack, std::move(refusal)};
}

// The module, or the function, cannot be guarded in the state that it is in now: the next calls tell whether that
// lasts.
Decision decide_unguarded(replay::Region& region, refusal::Refusal refusal) {
  // Before its first call a module may hold what that replaces, and that is too large, on the CPU (weight_norm).
  if (++region.budget.guard_refusals < kMostGuardRefusals) {
    return {config().strict && !region.on_gpu ? Action::kRun : Action::kFallBack, std::move(refusal)};
  }
  region.given_up = true;
  region.drop_proofs();
  return {Action::kGivenUp, std::move(refusal)};
}

// Is the module in a state that proofs can stand on? False: `decision` is what that means.
bool decide_on_guard(replay::Region& region, const replay::Call& call, Decision& decision) {
  std::unique_ptr<guards::ModuleGuard>& guard = region.evidence.guard;
  if (guard != nullptr && guard->holds()) return true;
  const bool proofs = region.evidence.has_proofs();
  refusal::Refusal changed;
  if (guard != nullptr) {
    const bool itself = region.of_function() && call.self == nullptr;
    changed = refusal::make(itself ? refusal::function_not_as_it_was : refusal::module_not_as_it_was, guard->change());
  }
  if (region.evidence.change_state()) return true;
  refusal::Refusal refusal;
  guard = guards::ModuleGuard::take(call.root, call.self, refusal);
  if (guard == nullptr) {
    decision = decide_unguarded(region, refusal ? std::move(refusal) : refusal::out_of_memory());
    return false;
  }
  region.budget.guard_refusals = 0;
  if (changed) {
    log_line(LogLevel::kDebug, "%s: %s", region.name.c_str(), changed.text.c_str());
    region.reasons.add(changed);
  }
  if (!proofs || !config().strict) return true;
  decision = {Action::kRaise, std::move(changed)};
  return false;
}

// The call is proven, and its backward passes may be. True: the signature has a stage that tells what comes next.
bool settle_backward(replay::Region& region, replay::Signature& signature, const replay::Call& call) {
  constexpr std::uint32_t kMostAwaited = 8;       // calls at a time
  constexpr std::uint32_t kMostPasses = 16;       // observed for each that is proven
  constexpr std::uint32_t kMostPassFailures = 3;  // in a row
  constexpr std::uint32_t kMostUnused = 4;        // calls in a row without a backward pass
  replay::Passes& passes = *signature.passes;
  if (passes.ready()) {
    signature.stage = replay::Stage::kProven;
    return true;
  }
  if (passes.unused >= kMostUnused) passes.refusal = refusal::make(refusal::no_backward);
  const bool hopeless = passes.failures >= kMostPassFailures || passes.unused >= kMostUnused ||
                        passes.observed > kMostPasses * (passes.proven.size() + 1);
  if (hopeless && !passes.refusal) passes.refusal = refusal::make(refusal::pass_not_foreseen);
  if (passes.makes_graph || hopeless) {
    signature.stage = replay::Stage::kGivenUp;
    signature.proven = nullptr;
    signature.given_up_for = passes.makes_graph ? refusal::make(refusal::second_derivative) : passes.refusal;
    region.reasons.add(signature.given_up_for);
    region.autograd.begin();  // modules inside may be replayed with their own passes
    if (region.inner) replay::Siblings::refused(type_of(call.root));
    return true;
  }
  if (signature.stage == replay::Stage::kProven) region.reasons.add(refusal::make(refusal::pass_not_foreseen));
  if (passes.awaited >= kMostAwaited) return false;
  if (passes.refusal) region.reasons.add(passes.refusal);
  proof::observe_again(signature);
  return true;
}

// The call is proven; its numbers may be other ones. True: the signature has a stage that tells what comes next.
bool settle_numbers(replay::Signature& signature, const replay::Call& call) {
  const replay::Proven& proven = *signature.proven;
  const program::NumbersFit fit = program::numbers_fit(proven.numbers, proven.used_numbers, call.numbers);
  if (fit == program::NumbersFit::kNotSeen) proof::observe_again(signature);
  return fit != program::NumbersFit::kNotOrdinary;
}

// Seconds that a look at the signature's call may cost. A first one alone gains nothing: what comes after it has to be
// affordable as well, but in a loop.
double cost_of_look(const replay::Region& region, const replay::Signature& signature) noexcept {
  const replay::LookCosts* const costs = region.budget.costs.get();
  if (costs == nullptr) return 0;
  const double proof = costs->proof + costs->pass, first = costs->first + costs->pass;
  if (signature.stage == replay::Stage::kObserved) return proof;
  return region.budget.lent > 0 ? first : first + proof;
}

}  // namespace

bool affords_look(const replay::Region& region, double cost, double now) noexcept {
  return config().strict || config().unlimited_looks ||
         replay::LookBudget::affords(now, cost, region.budget.lent, region.is_found() ? 0.5 : 1);
}

Decision decide_unproven(replay::Region& region, replay::Signature& signature, const replay::Call& call) {
  if (!worth_observing(region, signature, call)) {
    if (signature.stage != replay::Stage::kGivenUp) {
      ++region.statistics.first_calls;
    } else if (config().strict) {
      return {Action::kRaise, signature.given_up_for};
    }
    return {Action::kRun, {}, &signature};
  }
  replay::LookBudget::note_device(!replay::has_work(call.work));
  if (!affords_look(region, cost_of_look(region, signature), replay::now())) {
    ++region.statistics.put_off;
    return {Action::kRun, {}, &signature};
  }
  return {Action::kObserve, {}, &signature};
}

Decision decide(replay::Region& region, replay::Call& call, walk::Walk& walk, Lookup& lookup) {
  lookup.began = replay::now();
  refusal::Form<0> blocked;
  walk.recall(&region.memo);
  call.walk = &walk;
  replay::take_numbers(region, call);
  const bool known = torch::take_dispatch_state(call.dispatch, blocked);
  if (!known || !replay::write_call(call, walk)) return decide_unwritten(region, call, walk, known, blocked);
  region.budget.refused = 0;
  Decision decision{Action::kRun, {}};
  const double walked = replay::now();
  region.on_gpu = region.on_gpu || !walk.extents().empty();
  const bool guarded = decide_on_guard(region, call, decision);
  lookup.guards = replay::now() - walked;
  if (!guarded) return decision;
  if (!walk.extents().empty() || !region.evidence.guard->extents().empty()) {
    region.on_gpu = true;
  } else if (!region.of_function()) {  // what a function works on may be in globals: its observed calls tell
    region.given_up = region.no_gpu = true;
    return {Action::kGivenUp, {}};
  }
  if (!replay::find_work_place(region, call, walk)) return {Action::kFallBack, refusal::make(refusal::place_unknown)};
  replay::FoundCasts casts;
  if (!casts.write(region, call, walk)) return {Action::kFallBack, walk.refusal()};
  replay::write_sharing(region, walk);
  replay::Signature* signature = replay::find_signature(region, walk.bytes());
  if (signature == nullptr) return {Action::kRun, {}};
  ++signature->calls;
  signature->rhythm.note(region.calls, lookup.began);
  region.budget.lent = signature->rhythm.lends(signature->times.as_always());
  if (proof::never_comes_again(region, *signature)) {
    region.give_up();
    return {Action::kGivenUp, refusal::make(refusal::module_never_the_same)};
  }
  const bool trains = signature->proven != nullptr && signature->proven->passes != nullptr;
  if (trains && !settle_backward(region, *signature, call)) return {Action::kRun, {}};
  if (signature->stage == replay::Stage::kProven && !settle_numbers(*signature, call))
    return {Action::kRun, {}, signature};
  if (signature->stage == replay::Stage::kProven) return {Action::kReplay, {}, signature};
  return decide_unproven(region, *signature, call);
}

}  // namespace grape::python::control
