#include <algorithm>
#include <cmath>
#include <utility>

#include "python_hooks/control/decision.h"
#include "python_hooks/discovery/outside.h"
#include "python_hooks/proof/cached_proofs.h"
#include "python_hooks/proof/observe.h"
#include "python_hooks/proof/validate.h"
#include "python_hooks/replay/clock.h"
#include "python_hooks/replay/run.h"
#include "python_hooks/torch/autograd_state.h"
#include "shim/driver/kernel_content.h"
#include "shim/lifecycle/config.h"
#include "shim/lifecycle/log.h"

namespace grape::python::control {
namespace {

constexpr std::uint32_t kMostFailures = 3;        // observations of one signature in a row
constexpr std::uint32_t kMostRegionFailures = 3;  // the same of a region none of whose calls is proven
constexpr std::uint32_t kMostInnerFailures = 2;   // the same inside of a region that was given up

// The call is not replayed, although the region was, or no call like it will be: as always, or an error.
Object* fall_back(replay::Region& region, const replay::Call& call, const refusal::Refusal& refusal) {
  region.reasons.add(refusal);
  ++region.fell_back;
  return config().strict ? raise_not_replayed(region, refusal) : run_eagerly(region, call);
}

// Equal values now and then, by chance, do not make a region one whose calls repeat.
void judge_decisions(replay::Region& region) noexcept {
  const std::uint64_t replayed = region.statistics.replayed;
  const bool draws = region.budget.decided.differ(replayed);
  if (region.given_up || (!draws && !region.budget.read.differs(replayed))) return;
  region.give_up();
  if (draws) region.reasons.add(refusal::make(refusal::draws_otherwise));
  log_line(LogLevel::kDebug, "%s: not replayed as a whole: %s too often", region.name.c_str(),
           draws ? "its random numbers decide otherwise" : "the host reads other values");
}

// After an observation. True: the signature, or the region, is given up by it.
bool judge(replay::Region& region, replay::Signature& signature) noexcept {
  const bool signature_ends = signature.failures >= kMostFailures;
  const std::uint32_t most = region.inner ? kMostInnerFailures : kMostRegionFailures;
  const bool region_ends =
      region.statistics.replayed == 0 && region.budget.failures >= most && !region.evidence.has_proofs();
  if (!signature_ends && !region_ends) return false;
  refusal::Refusal refusal = region.reasons.last_refusal();
  if (region_ends) {
    region.give_up();
    region.no_gpu = !region.on_gpu;
    log_line(LogLevel::kDebug, "%s: not replayed as a whole: %s%s%s", region.name.c_str(), refusal.text.c_str(),
             refusal.place.empty() ? "" : ", at ", refusal.place.c_str());
  } else {
    signature.stage = replay::Stage::kGivenUp;
    signature.observation = nullptr;
    signature.given_up_for = std::move(refusal);
  }
  return true;
}

// It ran, and came to an end that is an error by GRAPE_STRICT.
Object* end_strictly(const replay::Region& region, Object* result) noexcept {
  if (result == nullptr) return nullptr;  // the program's own exception
  g_api.Py_DecRef(result);
  return raise_not_replayed(region, region.reasons.last_refusal());
}

// A replay of the region was wrong, or would have been: none of it from here on.
void drop_region(replay::Region& region, const refusal::Refusal& difference) noexcept {
  try {
    region.reasons.add(refusal::make(refusal::replay_differed, difference.text));
  } catch (const std::bad_alloc&) {
    region.reasons.add(refusal::out_of_memory());
  }
  if (proof::CachedProofs* proofs = proof::CachedProofs::in_use()) proofs->refute_region(region);
  region.give_up();
}

// A checked call has run, and `result` is its own. Throws nothing.
Object* end_check(replay::Region& region, const replay::Proven& proven, proof::Checked checked,
                  const refusal::Refusal& difference, Object* result, bool asked) {
  if (checked == proof::Checked::kOtherValue) {
    ++region.fell_back;
    region.reasons.add(replay::at_read(refusal::other_value_read, proven));
  } else if (checked == proof::Checked::kDiffers) {
    log_line(LogLevel::kError, "%s: %s: a replay differs from the call itself: %s. It runs as always from now on",
             region.name.c_str(), asked ? "GRAPE_VALIDATE" : "a check", difference.text.c_str());
    drop_region(region, difference);
  } else {
    return result;
  }
  return config().strict ? end_strictly(region, result) : result;
}

// The backward pass of a checked call was another one than a replay's, as was said then.
bool has_wrong_pass(const replay::Signature& signature) noexcept {
  return signature.passes != nullptr && signature.passes->differs;
}

Object* drop_for_pass(replay::Region& region, const replay::Signature& signature, const replay::Call& call) {
  const refusal::Refusal difference = signature.passes->differs;
  drop_region(region, difference);
  if (config().strict) return raise_not_replayed(region, region.reasons.last_refusal());
  ++region.fell_back;
  return run_eagerly(region, call);
}

// As always, to know whether replaying pays.
Object* measure(replay::Region& region, replay::Signature& signature, const replay::Call& call) {
  const double begin = replay::now();
  Object* result = run_eagerly(region, call);
  double eager = 0, replay = 0;
  if (region.budget.payoff.measured(signature.times, replay::now() - begin, eager, replay)) {
    const auto microseconds = [](double seconds) { return std::to_string(std::lround(seconds * 1e6)); };
    const auto refusal = refusal::make(refusal::no_gain, microseconds(replay), microseconds(eager));
    region.reasons.add(refusal);
    log_line(LogLevel::kDebug, "%s: %s", region.name.c_str(), refusal.text.c_str());
    if (region.is_found() && region.budget.payoff.never_pays()) region.give_up();
  }
  return result;
}

// Words were shown to hold numbers in two calls or three; a replay puts others there. So such replays are checked now
// and then: the first, the second, the fourth, and ever more seldom.
bool checks_numbers(replay::Proven& proven) {
  const std::vector<bool>& moved = proven.numbers.moved;
  if (std::find(moved.begin(), moved.end(), true) == moved.end()) return false;
  const std::uint32_t calls = ++proven.numbered;
  return (calls & (calls - 1)) == 0;
}

// State that no program shows (a maximum so far, a mode that switched) fools a family as it does two equal calls. So
// one in so many of these replays is checked.
bool checks_family(replay::Region& region, const replay::Signature& signature) noexcept {
  constexpr std::uint32_t kForetold = 256;
  return signature.foretold && ++region.budget.foretold % kForetold == 0;
}

// As the budget allows, where nobody asked for it.
bool is_check_due(replay::Region& region, replay::Signature& signature, replay::Call& call) {
  call.check_asked = proof::validation_due(region);
  if (call.check_asked || config().strict) return call.check_asked;
  const bool of_numbers = checks_numbers(*signature.proven), of_family = checks_family(region, signature);
  const double cost = region.budget.costs != nullptr ? region.budget.costs->proof : 0;
  return (of_numbers || of_family) && affords_look(region, cost, replay::now());
}

// The call's signature is proven. False: its proof is void, for `refusal`, and nothing was done.
bool run_proven(replay::Region& region, replay::Signature& signature, replay::Call& call, const Lookup& lookup,
                Object*& result, refusal::Refusal& refusal) {
  if (is_check_due(region, signature, call)) {
    refusal::Refusal difference;
    const proof::Checked checked = proof::validate(region, *signature.proven, call, result, difference);
    call.checked = checked != proof::Checked::kNotPossible;
    if (call.checked) {
      result = end_check(region, *signature.proven, checked, difference, result, call.check_asked);
      return true;
    }
  }
  if (region.budget.payoff.measures() && !config().strict) {
    result = measure(region, signature, call);
    return true;
  }
  const double looked_up = replay::now();
  region.parts = {};
  switch (replay::run(region, *signature.proven, call, result, refusal)) {
    case replay::ReplayResult::kReplayed: {
      const double seconds = replay::now() - lookup.began;
      if (++region.statistics.replayed == 1 && region.inner) replay::Siblings::proven(type_of(call.root));
      region.parts[report::ReplayPart::kGuards] += lookup.guards;
      region.parts[report::ReplayPart::kSignature] = looked_up - lookup.began - lookup.guards;
      region.latest_parts.add(region.parts);
      region.times.replayed += seconds;
      region.times.kind = report::Times::Kind::kReplay;
      region.budget.payoff.replayed(signature.times, seconds);
      call.replayed = &signature.times;
      return true;
    }
    case replay::ReplayResult::kOther:
    case replay::ReplayResult::kNotNow:
      result = fall_back(region, call, refusal);
      if (refusal.id == refusal::RefusalId::draws_decide_otherwise) region.budget.decided.decided_otherwise();
      judge_decisions(region);
      return true;
    case replay::ReplayResult::kFailed:
      signature.stage = replay::Stage::kGivenUp;
      signature.proven = nullptr;
      signature.given_up_for = std::move(refusal);
      result = fall_back(region, call, signature.given_up_for);
      return true;
    case replay::ReplayResult::kStale:
      break;
  }
  signature.stage = replay::Stage::kSeen;
  signature.proven = nullptr;
  return false;
}

// Its proof was void: then it is a call like one that was never proven.
bool act_on_stale(replay::Region& region, replay::Call& call, const Decision& decision, const Lookup& lookup,
                  const refusal::Refusal& stale, Object*& result) {
  if (config().strict) {
    result = fall_back(region, call, stale);
    return true;
  }
  region.reasons.add(stale);
  return act(region, call, decide_unproven(region, *decision.signature, call), lookup, result);
}

// `signature`: null, or the call's, whose time as always is not known otherwise until it is replayed.
Object* run_timed(replay::Region& region, replay::Signature* signature, const replay::Call& call) {
  const double before = region.times.eager;
  Object* result = run_eagerly(region, call);
  if (signature != nullptr) signature->times.eager = std::min(signature->times.eager, region.times.eager - before);
  return result;
}

// An eager call's. Without gradients any work is enough.
void note_work(replay::Region& region, Object* result, std::uint32_t launches) noexcept {
  if (!torch::gradients_enabled()) return;
  const bool little = launches < replay::g_look_limits.least_inner_pass && torch::leads_to_gradients(result);
  region.work = little ? replay::Region::Work::kLittle : replay::Region::Work::kEnough;
}

}  // namespace

Object* raise_not_replayed(const replay::Region& region, const refusal::Refusal& refusal) noexcept {
  try {
    std::string text = "GRAPE_STRICT: " + region.name + " is not replayed: " + refusal::in_words(refusal);
    const char* const advice = refusal::advice_of(refusal.id);
    if (*advice != '\0') text += std::string(". ") + advice;
    g_api.PyErr_SetString(exception(g_api.PyExc_RuntimeError), text.c_str());
  } catch (const std::bad_alloc&) {
    g_api.PyErr_NoMemory();
  }
  return nullptr;
}

Object* run_eagerly(replay::Region& region, const replay::Call& call) {
  const double begin = replay::now();
  const std::uint64_t loads = driver::code_loads();
  const std::uint32_t launches = discovery::thread_launches().all;
  Object* result = replay::run_as_it_is(call);
  if (region.inner && region.work == replay::Region::Work::kNotCounted && result != nullptr)
    note_work(region, result, discovery::thread_launches().all - launches);
  region.times.eager += replay::now() - begin;
  ++region.times.eager_calls;
  // A call that loads kernels tells nothing of those that follow.
  if (driver::code_loads() == loads) region.times.kind = report::Times::Kind::kEager;
  return result;
}

bool act(replay::Region& region, replay::Call& call, const Decision& decision, const Lookup& lookup, Object*& result) {
  using Action = Decision::Action;
  switch (decision.action) {
    case Action::kRun:
      result = run_timed(region, decision.signature, call);
      return true;
    case Action::kFallBack:
      result = fall_back(region, call, decision.refusal);
      return true;
    case Action::kRaise:
      result = raise_not_replayed(region, decision.refusal);
      return true;
    case Action::kReplay: {
      refusal::Refusal stale;
      if (has_wrong_pass(*decision.signature)) {
        result = drop_for_pass(region, *decision.signature, call);
        return true;
      }
      if (run_proven(region, *decision.signature, call, lookup, result, stale)) return true;
      return act_on_stale(region, call, decision, lookup, stale, result);
    }
    case Action::kObserve:
      result = proof::observe(region, *decision.signature, call);
      if (judge(region, *decision.signature) && config().strict && region.on_gpu) result = end_strictly(region, result);
      judge_decisions(region);
      return true;
    case Action::kPassOn:
      if (decision.refusal) region.reasons.add(decision.refusal);
      return false;
    case Action::kGivenUp:
      break;
  }
  if (!decision.refusal) return false;
  region.reasons.add(decision.refusal);
  if (!config().strict || !region.on_gpu) return false;
  result = raise_not_replayed(region, decision.refusal);
  return true;
}

}  // namespace grape::python::control
