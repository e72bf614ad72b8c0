#include "python_hooks/control/controller.h"

#include <new>

#include "python_hooks/control/decision.h"
#include "python_hooks/control/under_autograd.h"
#include "python_hooks/discovery/outside.h"
#include "python_hooks/discovery/outside_regions.h"
#include "python_hooks/proof/functions.h"
#include "python_hooks/replay/clock.h"
#include "python_hooks/replay/regions_table.h"
#include "python_hooks/replay/run.h"
#include "python_hooks/torch/autograd_state.h"
#include "shim/device/copy_memory.h"
#include "shim/device/warm_up.h"
#include "shim/driver/captures.h"
#include "shim/driver/kernel_content.h"
#include "shim/lifecycle/config.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/lifecycle/log.h"

namespace grape::python::control {
namespace {

using Action = Decision::Action;

__thread bool t_inside __attribute__((tls_model("initial-exec")));
__thread replay::Region* t_found
    __attribute__((tls_model("initial-exec")));  // that the thread is inside of: a function

// While a region is decided on, and while its call runs as always, calls of its children are none of ours.
class Inside {
 public:
  explicit Inside(replay::Region* region = nullptr) noexcept {
    t_inside = true;
    t_found = region != nullptr && region->is_found() ? region : nullptr;
  }
  ~Inside() noexcept {
    t_inside = false;
    t_found = nullptr;
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

// True: the call has run, or is an error; see act().
bool decide_and_act(replay::Region& region, replay::Call& call, Decision& decision, Object*& result) {
  walk::Walk walk(false);
  Lookup lookup;
  decision = decide(region, call, walk, lookup);
  return act(region, call, decision, lookup, result);
}

// A module inside of others, under autograd, whose calls launch too little to pay for nodes and a pass of their own:
// its look would only tell so. Its first call tells what it launches.
bool has_little_work(replay::Region& region, Decision& decision) {
  using Work = replay::Region::Work;
  const bool counts = region.inner && replay::g_look_limits.least_inner_pass != 0;
  if (!counts || region.work == Work::kEnough || !torch::gradients_enabled()) return false;
  decision = {Action::kPassOn, {}};
  if (region.work == Work::kNotCounted) {
    ++region.statistics.first_calls;
    return true;
  }
  decision.refusal = refusal::make(refusal::small_under_autograd);
  region.work = Work::kNotCounted;  // once more after the rest
  region.autograd.begin();
  return true;
}

// Is it left out as its like were looked at for nothing?
bool fares_like_its_siblings(replay::Region& region, const replay::Call& call, Decision& decision) {
  if (!region.inner || region.of_function() || replay::Siblings::worth_a_look(type_of(call.root))) return false;
  ++region.statistics.put_off;
  decision = {Action::kPassOn, {}};
  return true;
}

// Is it not known whether what is spent on the region will be saved?
bool is_uncertain(const replay::Region& region) noexcept {
  return !region.budget.pays() || (region.is_found() && region.budget.gains_little());
}

// May the call be looked up at all? It always may as long as that takes a small part of what the region's calls take.
bool affords_lookup(const replay::Region& region, double now) noexcept {
  constexpr double kSmall = 0.02;
  const bool small = region.budget.searched <= kSmall * region.times.all;
  return (small && !region.inner && !region.is_found()) || affords_look(region, 0, now);
}

// Without the time that the call itself took.
void settle(replay::Region& region, const replay::Call& call, const Decision& decision, double seconds,
            double running) {
  if (call.check_asked) return;
  if (call.replayed != nullptr) {
    const double saved = replay::LookBudget::earn(*call.replayed, seconds);
    region.budget.saved += saved;
    if (saved > 0) region.budget.gained(region.statistics.observed);
    if (saved > 0 || !region.is_found()) return;  // modules' replays have to pay for themselves
  }
  replay::LookBudget::spend(seconds - running);
  if (decision.action != Action::kObserve) region.budget.searched += seconds - running;
}

// What a call costs beside itself is counted: the budget is the whole process's.
bool decide_in_budget(replay::Region& region, replay::Call& call, Decision& decision, Object*& result) {
  const double began = replay::now();
  replay::LookBudget::note_time(began, driver::code_loads());
  if (region.is_found() && region.budget.gains_nothing(region.statistics.observed)) {
    region.give_up();
    decision = {Action::kGivenUp, refusal::make(refusal::found_without_gain)};
    return act(region, call, decision, {}, result);
  }
  const bool uncertain = is_uncertain(region);
  if (uncertain && !affords_lookup(region, began)) {
    ++region.statistics.put_off;
    const bool passes_on = region.autograd.began() || region.budget.refused >= kMostRefusals;
    decision = {passes_on ? Action::kPassOn : Action::kRun, {}};
    return act(region, call, decision, {}, result);
  }
  if (uncertain && (has_little_work(region, decision) || fares_like_its_siblings(region, call, decision)))
    return act(region, call, decision, {}, result);
  const auto ran_for = [&region] { return region.times.eager + region.times.observed - region.budget.recording; };
  const double before = ran_for();
  ++region.budget.barren;
  const bool ran = decide_and_act(region, call, decision, result);
  settle(region, call, decision, replay::now() - began, ran_for() - before);
  return ran;
}

bool decide_or_rest(replay::Region& region, replay::Call& call, Decision& decision, Object*& result) {
  if (!config().strict && region.budget.payoff.rests()) return act(region, call, {Action::kRun, {}}, {}, result);
  if (!config().strict && region.budget.refusals.rests()) {
    region.reasons.add_last();
    ++region.fell_back;
    decision.action = Action::kPassOn;
    return false;
  }
  return config().strict ? decide_and_act(region, call, decision, result)
                         : decide_in_budget(region, call, decision, result);
}

// It was given up before: its children may be regions.
Object* call_given_up(replay::Region& region, const replay::PlainCall& call) {
  if (region.no_gpu) return replay::run_as_it_is(call);
  if (config().strict && region.on_gpu && discovery::thread_launches().depth == 0)
    return raise_not_replayed(region, region.reasons.last_refusal());
  const CountedCall counted(region, false);
  return replay::run_as_it_is(call);
}

// What replays replaced ends here, when nothing depends on it; other threads may run meanwhile.
void end_call(replay::Region& region) {
  if (region.replaced.empty() && !region.unfit) return;
  const KeepException exception;
  replay::drop(region.replaced);
  if (!region.unfit || region.given_up) return;
  region.give_up();
  region.reasons.add(refusal::make(region.unfit));
}

// True: the call has run, or is an error; see act().
bool run_inside(replay::Region& region, replay::Call& call, Decision& decision, Object*& result) {
  const Inside inside(&region);
  const replay::Busy busy(region);
  bool ran = false;
  try {
    if (proof::takes_self_as_argument(region)) proof::give_self_as_argument(region, call);
    ran = decide_or_rest(region, call, decision, result);
  } catch (const std::bad_alloc&) {
    // Thrown before anything ran: what comes after keeps its own.
    lifecycle::give_up("out of memory");
    region.given_up = true;
    decision.action = Action::kGivenUp;
  }
  end_call(region);
  return ran;
}

// The first question of every call: is it none of ours?
bool passes() noexcept {
  return t_inside || replay::makes_again() || !lifecycle::active() || driver::g_captures.load() > 0;
}

Object* decide_on(replay::Region& region, const replay::PlainCall& plain) {
  const CountedCall counted(region, true);
  replay::Call call(plain);
  Decision decision{Action::kGivenUp, {}};
  Object* result = nullptr;
  if (run_inside(region, call, decision, result)) return result;
  return decision.action == Action::kPassOn ? run_eagerly(region, call) : replay::run_as_it_is(call);
}

Object* call_region(const replay::PlainCall& call) {
  device::CopyMemory::instance().note_call();
  discovery::look_for_regions_if_due();
  replay::Region* region = replay::region_of(call.root, call.self);
  // A function that nobody asked for, and that cannot be replayed, is no region at all.
  if (region == nullptr || (region->given_up && region->is_found())) return replay::run_as_it_is(call);
  if (config().auto_regions && !region->of_function() && discovery::thread_launches().depth == 0)
    discovery::note_module_call();
  if (region->busy) {
    // By another thread, and for a moment: what is inside is no region of its own for that.
    const Inside inside;
    return replay::run_as_it_is(call);
  }
  if (region->calls == 0) {
    device::warm_up();
    region->inner = discovery::thread_launches().depth != 0;
    proof::refuse_deferred(*region, call.root);
  }
  if (region->given_up) return call_given_up(*region, call);
  return runs_under_autograd(*region) ? run_under_autograd(*region, call) : decide_on(*region, call);
}

}  // namespace

Enabled enabled() noexcept {
  if (config().mode != Mode::kReplay || !lifecycle::active()) return Enabled::kNo;
  if (torch::load_torch_api()) return Enabled::kYes;
  return torch::torch_api_settled() ? Enabled::kNo : Enabled::kNotYet;
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
  Object* self = proof::self_of(arguments, count);
  return call_region({eager, function, arguments, count, names, function, self, self != nullptr});
}

}  // namespace grape::python::control
