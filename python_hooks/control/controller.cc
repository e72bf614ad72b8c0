#include "python_hooks/control/controller.h"

#include <cmath>
#include <new>
#include <utility>

#include "python_hooks/control/module_state.h"
#include "python_hooks/control/strict.h"
#include "python_hooks/control/under_autograd.h"
#include "python_hooks/discovery/outside.h"
#include "python_hooks/discovery/outside_regions.h"
#include "python_hooks/proof/cached_proofs.h"
#include "python_hooks/proof/functions.h"
#include "python_hooks/proof/observe.h"
#include "python_hooks/proof/validate.h"
#include "python_hooks/replay/casts.h"
#include "python_hooks/replay/clock.h"
#include "python_hooks/replay/regions_table.h"
#include "python_hooks/replay/run.h"
#include "python_hooks/replay/signature.h"
#include "shim/device/copy_memory.h"
#include "shim/driver/captures.h"
#include "shim/driver/kernel_content.h"
#include "shim/lifecycle/config.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/lifecycle/log.h"

namespace grape::python::replay {
namespace {

constexpr std::uint32_t kMostFailures = 3;        // observations of one signature in a row
constexpr std::uint32_t kMostRegionFailures = 3;  // the same of a region none of whose calls is proven
constexpr std::uint32_t kMostInnerFailures = 2;   // the same inside of a region that was given up
constexpr std::uint32_t kMostRefusals = 3;        // calls in a row with arguments that are refused
constexpr std::uint32_t kRefusedForLong = 32;     // the same: they are not even looked at for a while
// Of a function that nobody named, calls in a row that gained nothing:
constexpr std::uint32_t kBarren = 16;                // that were looked at; from then on there is a budget for them
constexpr std::uint32_t kMostBarren = 4096;          // the same: it is no region any more
constexpr std::uint32_t kMostBarrenObserved = 1024;  // that were observed: the same

__thread bool t_inside __attribute__((tls_model("initial-exec")));
__thread Region* t_found __attribute__((tls_model("initial-exec")));  // that the thread is inside of: a function

// While a region is decided on, and while its call runs as always, calls of its children are none of ours.
class Inside {
 public:
  explicit Inside(Region* region = nullptr) noexcept {
    t_inside = true;
    t_found = region != nullptr && region->automatic ? region : nullptr;
  }
  ~Inside() noexcept {
    t_inside = false;
    t_found = nullptr;
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

Object* run_eagerly(Region& region, const Call& call) {
  const double begin = now();
  const std::uint64_t loads = driver::code_loads();
  Object* result = run_as_it_is(call);
  region.times.eager += now() - begin;
  ++region.times.eager_calls;
  // A call that loads kernels tells nothing of those that follow.
  if (driver::code_loads() == loads) region.times.kind = Times::Kind::kEager;
  return result;
}

// Is any of it on a GPU, as far as can be seen? Else it is nobody's loss. Only for GRAPE_STRICT.
bool works_on_gpu(Region& region, const Call& call, state::Walk& walk) {
  if (walk.tensors().empty()) static_cast<void>(write_call(call, walk));  // it was not come to
  refusal::Refusal ignored;
  if (region.guard == nullptr) region.guard = state::ModuleGuard::take(call.root, call.self, ignored);
  region.on_gpu =
      region.on_gpu || !walk.extents().empty() || (region.guard != nullptr && !region.guard->extents().empty());
  return region.on_gpu;
}

// The call is not replayed, although the region was, or no call like it will be: as always, or an error.
Object* fall_back(Region& region, const Call& call, const refusal::Refusal& refusal) {
  region.reasons.add(refusal);
  ++region.fell_back;
  return config().strict ? raise_not_replayed(region, refusal) : run_eagerly(region, call);
}

// Given up: nothing ran yet. Null, with an error set only where that is asked for.
Object* give_up_first(Region& region, const refusal::Refusal& refusal) {
  region.reasons.add(refusal);
  return config().strict && region.on_gpu ? raise_not_replayed(region, refusal) : nullptr;
}

// A region's calls are observed at once until one was of use (the first one loads kernels, and PyTorch sets switches of
// its own in it); then those whose signatures come again, or that an earlier process proved, or all if some were
// replayed already: a program that never repeats itself pays for nothing.
bool worth_observing(const Region& region, Signature& signature, const Call& call) {
  if (signature.stage == Stage::kGivenUp) return false;
  return signature.calls > 1 || !region.useful || region.replayed != 0 || proven_earlier(region, signature, call);
}

refusal::Refusal last_refusal(const Region& region) noexcept {
  const Reason* last = region.reasons.last();
  try {
    return last != nullptr ? static_cast<const refusal::Refusal&>(*last) : refusal::Refusal();
  } catch (const std::bad_alloc&) {
    return {};
  }
}

// After an observation. True: the signature, or the region, is given up by it.
bool judge(Region& region, Signature& signature) noexcept {
  const bool signature_ends = signature.failures >= kMostFailures;
  const std::uint32_t most = region.inner ? kMostInnerFailures : kMostRegionFailures;
  const bool region_ends = region.replayed == 0 && region.failures >= most && !has_proofs(region.signatures);
  if (!signature_ends && !region_ends) return false;
  refusal::Refusal refusal = last_refusal(region);
  if (region_ends) {
    region.give_up();
    region.no_gpu = !region.on_gpu;
    log_line(LogLevel::kDebug, "%s: not replayed as a whole: %s%s%s", region.name.c_str(), refusal.text.c_str(),
             refusal.place.empty() ? "" : ", at ", refusal.place.c_str());
  } else {
    signature.stage = Stage::kGivenUp;
    signature.observation = nullptr;
    signature.given_up_for = std::move(refusal);
  }
  return true;
}

// It ran, and came to an end that is an error by GRAPE_STRICT.
Object* end_strictly(const Region& region, Object* result) noexcept {
  if (result == nullptr) return nullptr;  // the program's own exception
  g_api.Py_DecRef(result);
  return raise_not_replayed(region, last_refusal(region));
}

Object* observe_and_judge(Region& region, Signature& signature, const Call& call) {
  Object* result = observe(region, signature, call);
  return judge(region, signature) && config().strict && region.on_gpu ? end_strictly(region, result) : result;
}

// A replay of the region was wrong, or would have been: none of it from here on.
void drop_region(Region& region, const refusal::Refusal& difference) noexcept {
  log_line(LogLevel::kError,
           "%s: GRAPE_VALIDATE: a replay differs from the call itself: %s. It runs as always from now on",
           region.name.c_str(), difference.text.c_str());
  try {
    region.reasons.add(refusal::make(refusal::replay_differed, difference.text));
  } catch (const std::bad_alloc&) {
    region.reasons.add(refusal::out_of_memory());
  }
  if (CachedProofs* proofs = CachedProofs::in_use()) proofs->refute_region(region);
  region.give_up();
}

// A checked call has run, and `result` is its own. Throws nothing.
Object* end_check(Region& region, const Proven& proven, Checked checked, const refusal::Refusal& difference,
                  Object* result) {
  if (checked == Checked::kOtherValue) {
    ++region.fell_back;
    region.reasons.add(Why{refusal::other_value_read, nullptr, &proven.read_place}.refusal());
  } else if (checked == Checked::kDiffers) {
    drop_region(region, difference);
  } else {
    return result;
  }
  return config().strict ? end_strictly(region, result) : result;
}

// As always, to know whether replaying pays.
Object* measure(Region& region, Signature& signature, const Call& call) {
  const double begin = now();
  Object* result = run_eagerly(region, call);
  double eager = 0, replay = 0;
  if (region.payoff.measured(signature.times, now() - begin, eager, replay)) {
    const auto microseconds = [](double seconds) { return std::to_string(std::lround(seconds * 1e6)); };
    const auto refusal = refusal::make(refusal::no_gain, microseconds(replay), microseconds(eager));
    region.reasons.add(refusal);
    log_line(LogLevel::kDebug, "%s: %s", region.name.c_str(), refusal.text.c_str());
    if (region.automatic && region.payoff.never_pays()) region.give_up();
  }
  return result;
}

// May no more be spent on its calls than there is for such?
bool in_budget(const Region& region) noexcept { return (region.inner || region.automatic) && !config().strict; }

// The signature is not to be observed (now).
Object* run_unobserved(Region& region, const Signature& signature, const Call& call) {
  if (signature.stage == Stage::kGivenUp) {
    return config().strict ? raise_not_replayed(region, signature.given_up_for) : run_eagerly(region, call);
  }
  ++region.first_calls;
  return run_eagerly(region, call);
}

// Where the time before a replay went.
struct Lookup {
  double began = 0, guards = 0;
};

// The call's signature is proven. False: its proof is void, for `refusal`, and nothing was done.
bool run_proven(Region& region, Signature& signature, Call& call, const Lookup& lookup, Object*& result,
                refusal::Refusal& refusal) {
  if (validation_due(region)) {
    refusal::Refusal difference;
    const Checked checked = validate(region, *signature.proven, call, result, difference);
    if (checked != Checked::kNotPossible) {
      result = end_check(region, *signature.proven, checked, difference, result);
      return true;
    }
  }
  if (region.payoff.measures() && !config().strict) {
    result = measure(region, signature, call);
    return true;
  }
  Why why;
  const double looked_up = now();
  region.parts = {};
  switch (run(region, *signature.proven, call, result, why)) {
    case Ran::kReplayed: {
      const double seconds = now() - lookup.began;
      ++region.replayed;
      region.parts[ReplayPart::kGuards] += lookup.guards;
      region.parts[ReplayPart::kSignature] = looked_up - lookup.began - lookup.guards;
      region.latest_parts.add(region.parts);
      region.times.replayed += seconds;
      region.times.kind = Times::Kind::kReplay;
      region.payoff.replayed(signature.times, seconds);
      if (!in_budget(region)) InnerBudget::earn(signature.times, seconds, true);
      call.replayed = &signature.times;
      return true;
    }
    case Ran::kOther:
    case Ran::kNotNow:
      result = fall_back(region, call, why.refusal());
      return true;
    case Ran::kFailed:
      signature.stage = Stage::kGivenUp;
      signature.proven = nullptr;
      signature.given_up_for = why.refusal();
      result = fall_back(region, call, signature.given_up_for);
      return true;
    case Ran::kStale:
      break;
  }
  refusal = why.refusal();
  signature.stage = Stage::kSeen;
  signature.proven = nullptr;
  return false;
}

// As always, what is inside may be replayed. Null without an error: nothing ran yet.
Object* pass_on(Region& region, Call& call) noexcept {
  ++region.fell_back;
  call.passed_on = true;
  return nullptr;
}

Object* pass_on(Region& region, Call& call, const refusal::Refusal& refusal) {
  if (config().strict) return fall_back(region, call, refusal);
  region.reasons.add(refusal);
  return pass_on(region, call);
}

// Its arguments cannot be looked through. If that is so each time, the modules inside are regions.
Object* refuse(Region& region, Call& call, const refusal::Refusal& refusal) {
  if (++region.refused < kMostRefusals || region.replayed != 0) return fall_back(region, call, refusal);
  if (region.refused >= kRefusedForLong) {
    region.refusals.begin();
    if (region.automatic) region.give_up();
  }
  return pass_on(region, call, refusal);
}

Object* decide(Region& region, Call& call) {
  const double began = now();
  refusal::Form<0> blocked;
  state::Walk walk(false);
  walk.recall(&region.memo);
  call.walk = &walk;
  const bool known = state::take_dispatch_state(call.dispatch, blocked);
  if (!known || !write_call(call, walk)) {
    const refusal::Refusal refusal = blocked ? refusal::make(blocked) : walk.refusal();
    if (config().strict && !works_on_gpu(region, call, walk)) return run_eagerly(region, call);
    return known ? refuse(region, call, refusal) : fall_back(region, call, refusal);
  }
  region.refused = 0;
  refusal::Refusal refusal;
  const double walked = now();
  const Guarded guard = ensure_guard(region, call, refusal);
  const Lookup lookup{began, now() - walked};
  region.on_gpu = region.on_gpu || !walk.extents().empty();
  if (guard == Guarded::kRefused) return give_up_first(region, refusal);
  if (guard == Guarded::kNotNow) {
    return config().strict && !region.on_gpu ? run_eagerly(region, call) : fall_back(region, call, refusal);
  }
  if (guard == Guarded::kAnew && config().strict) return raise_not_replayed(region, refusal);
  if (!walk.extents().empty() || !region.guard->extents().empty()) {
    region.on_gpu = true;
  } else if (!region.function) {  // what a function works on may be in globals: its observed calls tell
    region.given_up = region.no_gpu = true;
    return nullptr;
  }
  if (!find_work_place(region, call, walk)) {
    return fall_back(region, call, refusal::make(refusal::place_unknown));
  }
  FoundCasts casts;
  if (!casts.write(region, call, walk)) return fall_back(region, call, walk.refusal());
  write_sharing(region, walk);
  Signature* signature = find_signature(region, walk.bytes());
  if (signature == nullptr) return run_eagerly(region, call);
  ++signature->calls;
  if (never_comes_again(region, *signature)) {
    region.give_up();
    return give_up_first(region, refusal::make(refusal::module_never_the_same));
  }
  if (signature->stage == Stage::kProven) {
    Object* result = nullptr;
    if (run_proven(region, *signature, call, lookup, result, refusal)) return result;
    if (config().strict) return fall_back(region, call, refusal);
    region.reasons.add(refusal);
  }
  if (!worth_observing(region, *signature, call)) return run_unobserved(region, *signature, call);
  if (region.automatic && !InnerBudget::affords(now())) {
    ++region.put_off;
    return run_eagerly(region, call);
  }
  return observe_and_judge(region, *signature, call);
}

// Counts a region's call and its time, children's included.
class Timed {
 public:
  explicit Timed(Region& region) noexcept : region_(region), began_(now()) {
    ++region_.calls;
    region_.times.begin(began_);
    ++thread_launches().depth;
  }
  ~Timed() noexcept {
    const double seconds = now() - began_;
    region_.times.all += seconds;
    if (--thread_launches().depth == 0) add_seconds_in_regions(seconds);
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  Region& region_;
  const double began_;
};

// Is it not known whether what is spent on the region will be saved?
bool is_uncertain(const Region& region) noexcept {
  return region.automatic ? region.replayed == 0 || region.barren >= kBarren : region.replayed == 0;
}

bool gains_nothing(const Region& region) noexcept {
  return region.automatic &&
         (region.barren >= kMostBarren || region.observed - region.gained_at >= kMostBarrenObserved);
}

// Decides on a call of a module inside of one that is not replayed as a whole, or of a function that nobody named. What
// that costs beside the call itself is counted, but for modules' replays, which have to pay for themselves.
Object* decide_in_budget(Region& region, Call& call) {
  const double began = now();
  if (gains_nothing(region)) {
    region.give_up();
    return give_up_first(region, refusal::make(refusal::found_without_gain));
  }
  if (is_uncertain(region) && !InnerBudget::affords(began)) {
    ++region.put_off;
    call.passed_on = region.autograd.began() || region.refused >= kMostRefusals;
    return call.passed_on ? nullptr : run_eagerly(region, call);
  }
  const double eager = region.times.eager, observed = region.times.observed;
  ++region.barren;
  Object* result = decide(region, call);
  const double ran = region.times.eager - eager + (region.times.observed - observed) * kOfObserved;
  if (call.replayed != nullptr && InnerBudget::earn(*call.replayed, now() - began)) {
    region.barren = 0;
    region.gained_at = region.observed;
  } else if (call.replayed == nullptr || region.automatic) {
    InnerBudget::spend(now() - began - ran);
  }
  return result;
}

Object* decide_or_rest(Region& region, Call& call) {
  if (!config().strict && region.payoff.rests()) return run_eagerly(region, call);
  if (!config().strict && region.refusals.rests()) {
    region.reasons.add_last();
    return pass_on(region, call);
  }
  return in_budget(region) ? decide_in_budget(region, call) : decide(region, call);
}

// It was given up before: its children may be regions.
Object* call_given_up(Region& region, const PlainCall& call) {
  if (region.no_gpu) return run_as_it_is(call);
  if (config().strict && region.on_gpu && thread_launches().depth == 0)
    return raise_not_replayed(region, last_refusal(region));
  const CountedCall counted(region);
  return run_as_it_is(call);
}

Object* decide_and_run(Region& region, Call& call) {
  Object* result = nullptr;
  const Inside inside(&region);
  const Busy busy(region);
  try {
    if (takes_self_as_argument(region)) give_self_as_argument(region, call);
    result = decide_or_rest(region, call);
  } catch (const std::bad_alloc&) {
    // Thrown before anything ran: what comes after keeps its own.
    lifecycle::give_up("out of memory");
    region.given_up = true;
  }
  if (!region.replaced.empty() || region.unfit) {
    const KeepException exception;
    drop(region.replaced);
    if (region.unfit && !region.given_up) {
      region.give_up();
      region.reasons.add(refusal::make(region.unfit));
    }
  }
  return result;
}

// The first question of every call: is it none of ours?
bool passes() noexcept { return t_inside || !lifecycle::active() || driver::g_captures.load() > 0; }

Object* decide_on(Region& region, const PlainCall& plain) {
  const Timed timed(region);
  Call call(plain);
  Object* result = decide_and_run(region, call);
  // Passed on, or given up just now, before anything ran: its children may be regions.
  const bool nothing_ran =
      result == nullptr && (call.passed_on || region.given_up) && g_api.PyErr_Occurred() == nullptr;
  if (!nothing_ran) return result;
  return call.passed_on ? run_eagerly(region, call) : run_as_it_is(call);
}

Object* call_region(const PlainCall& call) {
  grape::replay::CopyMemory::instance().note_call();
  look_for_regions_if_due();
  Region* region = region_of(call.root, call.self);
  // A function that nobody asked for, and that cannot be replayed, is no region at all.
  if (region == nullptr || (region->automatic && region->given_up)) return run_as_it_is(call);
  if (config().auto_regions && !region->function && thread_launches().depth == 0) note_module_call();
  if (region->busy) {
    // By another thread, and for a moment: what is inside is no region of its own for that.
    const Inside inside;
    return run_as_it_is(call);
  }
  if (region->calls == 0) {
    region->inner = thread_launches().depth != 0;
    refuse_deferred(*region, call.root);
  }
  if (region->given_up) return call_given_up(*region, call);
  return runs_under_autograd(*region) ? run_under_autograd(*region, call) : decide_on(*region, call);
}

}  // namespace

Enabled enabled() noexcept {
  if (config().mode != Mode::kReplay || !lifecycle::active()) return Enabled::kNo;
  if (state::load_torch_api()) return Enabled::kYes;
  return state::torch_api_settled() ? Enabled::kNo : Enabled::kNotYet;
}

Object* call(Vectorcall eager, Object* function, Object* const* arguments, std::size_t count, Object* names) {
  if (passes() || positional_count(count) == 0) {
    if (t_found != nullptr) t_found->unfit = refusal::found_around_modules;
    return eager(function, arguments, count, names);
  }
  return call_region({eager, function, arguments, count, names, arguments[0], nullptr, 1});
}

Object* call_function(Vectorcall eager, Object* function, Object* const* arguments, std::size_t count, Object* names) {
  if (passes()) return eager(function, arguments, count, names);
  Object* self = self_of(arguments, count);
  return call_region({eager, function, arguments, count, names, function, self, self != nullptr});
}

}  // namespace grape::python::replay
