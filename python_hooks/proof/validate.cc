#include "python_hooks/proof/validate.h"

#include <algorithm>
#include <memory>
#include <new>
#include <vector>

#include "python_hooks/interpreter/observers.h"
#include "python_hooks/observation/traps.h"
#include "python_hooks/proof/border.h"
#include "python_hooks/proof/functions.h"
#include "python_hooks/proof/observe_backward.h"
#include "python_hooks/proof/shadow_inputs.h"
#include "python_hooks/replay/clock.h"
#include "python_hooks/replay/gil_release.h"
#include "python_hooks/replay/proof_guards.h"
#include "shim/device/thread_context.h"
#include "shim/lifecycle/config.h"
#include "shim/lifecycle/log.h"

namespace grape::python::proof {
namespace {

using grape::replay::Shadow;

constexpr std::uint32_t kMostDisturbed = 8;  // checks in a row whose differences may be another thread's doing

// One checked call.
class Check {
 public:
  Check(replay::Region& region, replay::Proven& proven, const replay::Call& call)
      : region_(region), proven_(proven), call_(call) {}

  ~Check() {
    if (saved_memory_ != nullptr) g_api.Py_DecRef(saved_memory_);
  }
  Check(const Check&) = delete;
  Check& operator=(const Check&) = delete;

  // False: it cannot be checked; `error` says why, or a guard does not hold.
  bool begin(refusal::Refusal& error) {
    refusal::Refusal ignored;
    if (!replay::decides_the_same(region_, proven_, call_, ignored)) return false;
    if (replay::broken_guard(proven_, call_) != nullptr) return false;
    before_ = effects::ArgumentSnapshot::take(*call_.walk, *region_.evidence.guard, lasting_argument(region_), error,
                                              call_.steps_at != replay::Call::kNone);
    proven_.globals->take_versions(globals_before_);
    random_known_ = torch::random_state(call_.work.device, seed_, offset_);
    host_random_.take();
    if (proven_.border != nullptr && !targets_.take(region_, call_, error)) return false;
    if (before_ == nullptr || (proven_.program.head().random_increment != 0 && !random_known_)) return false;
    const auto memory = reachable_memory(region_, proven_.program.head(), proven_.globals.get(), call_);
    nodes_before_ = torch::autograd_nodes();
    others_changes_ = observation::setting_changes_of_others();
    const device::ContextScope scope(call_.work.context);
    if (!scope.entered()) error = refusal::make(refusal::no_context);
    return scope.entered() && claim_copies(region_, call_, memory, room_, error) &&
           shadow_.before(call_.work.driver_stream(), memory, error);
  }

  // After the call has returned `result`.
  Checked end(Object* result, refusal::Refusal& difference, refusal::Refusal& error) {
    const std::uint64_t nodes_made = torch::autograd_nodes() - nodes_before_;
    const bool host_random = !host_random_.moved_by(proven_.draws);
    if (host_random && other_threads()) return Checked::kInconclusive;  // it may be these that drew
    if (observation::setting_changes_of_others() != others_changes_) return Checked::kInconclusive;
    refusal::Refusal other = host_random ? refusal::make(refusal::draws_on_host) : other_state();
    const auto outcome = effects::CallOutcome::learn(result, *before_, *region_.evidence.guard, error, nullptr,
                                                     proven_.border != nullptr ? &border_.results : nullptr);
    if (outcome == nullptr && !error) return Checked::kInconclusive;
    if (outcome == nullptr) {
      if (!other) other = error;
      error = {};
    } else if (!proven_.outcome->same_as(*outcome, difference) && !other) {
      other = difference ? difference : refusal::out_of_memory();
    }
    if (nodes_made != proven_.nodes_made && !other) other = refusal::make(refusal::makes_other_nodes_than_replay);
    if (!other && !is_same_for_autograd(*outcome, other) && !other) return Checked::kInconclusive;
    // Where the host has read another value, the call may have done anything.
    if (other && !proven_.steps.reads()) {
      difference = other;
      return Checked::kDiffers;
    }
    const Checked checked = run_in_shadow(other ? nullptr : outcome.get(), difference, error);
    if (checked == Checked::kEqual && !other && replay::awaits_backward(proven_.border.get()))
      check_backward(region_, proven_, call_, {random_known_, seed_, offset_, 0}, border_, saved_memory_);
    if (checked != Checked::kEqual || !other) return checked;
    difference = other;
    return Checked::kDiffers;
  }

 private:
  // Does the call leave the casts and the nodes that a replay of it leaves? False: `difference`; none: no memory.
  bool is_same_for_autograd(const effects::CallOutcome& outcome, refusal::Refusal& difference) {
    addresses_.assign(proven_.program.head().outputs.size(), 0);
    for (const replay::OutputRecipe& recipe : proven_.recipes) {
      if (!recipe.has_block || recipe.saved_bytes != 0) continue;  // what is saved is no result of the call
      if (recipe.cast < 0) {
        addresses_[recipe.block] = outcome.made()[recipe.made.front()].storage;
      } else if (!replay::find_kept_cast(region_, recipe, border_.casts)) {
        return refusal::refuse(difference, refusal::other_casts_than_replay);
      } else {
        addresses_[recipe.block] = border_.casts.back().address;
      }
    }
    return proven_.border == nullptr ||
           is_border_of(proven_, call_, targets_, nodes_before_, addresses_, border_, difference);
  }

  // What the call changed, or did not, unlike a replay of it. Random numbers of the host aside.
  refusal::Refusal other_state() {
    std::uint64_t seed = 0, offset = 0;
    if (random_known_ && (!torch::random_state(call_.work.device, seed, offset) || seed != seed_ ||
                          offset - offset_ != proven_.program.head().random_increment)) {
      return refusal::make(refusal::random_amount_unlike_replay);
    }
    refusal::Refusal changed = changed_by_call(region_, proven_.globals.get(), call_);
    return changed ? changed : moved_in_globals(globals_before_);
  }

  // `outcome`: the call's; null: only what the host reads is looked at.
  Checked run_in_shadow(const effects::CallOutcome* outcome, refusal::Refusal& difference, refusal::Refusal& error) {
    const program::Program& program = proven_.program.head();
    program::Bindings& bindings = proven_.bindings;
    std::vector<Shadow::Range> eager_outputs, outputs;
    if (outcome != nullptr) eager_outputs = output_ranges(program, addresses_, proven_.recipes, *outcome);
    const auto quiet = replay::quiet_after_call(region_, call_);
    const replay::OnWorkDevice device(call_.work);
    if (quiet == nullptr) error = refusal::make(refusal::never_idle);
    if (quiet == nullptr || !device.entered() ||
        !shadow_.after(call_.work.driver_stream(), std::move(eager_outputs), error))
      return Checked::kInconclusive;
    bindings.seed = seed_;
    bindings.numbers = call_.numbers;
    bindings.offset = offset_;
    std::vector<Object*> tensors;
    if (!replay::place_call(region_, proven_, proven_, call_, tensors)) {
      error = refusal::make(refusal::no_device_memory);
      return Checked::kInconclusive;
    }
    if (outcome != nullptr) shadow_.set_elements(output_elements(proven_.recipes, *outcome));
    if (outcome != nullptr) outputs = output_ranges(program, bindings.outputs, proven_.recipes, *outcome);
    auto found = Shadow::Found::kDifferent;
    const bool compared = proven_.steps.prepare(region_.execs, proven_.program, proven_.plan, bindings, error) &&
                          shadow_.compare(call_.work.driver_stream(), proven_.others, proven_.steps, outputs, false,
                                          found, difference, error);
    if (proven_.border != nullptr && proven_.border->saved_bytes != 0 && !tensors.empty()) {
      saved_memory_ = tensors.back();
      tensors.pop_back();
    }
    replay::drop(tensors);
    if (!compared) return Checked::kInconclusive;
    if (found != Shadow::Found::kSame && shadow_.others_worked() && ++region_.budget.disturbed <= kMostDisturbed) {
      error = refusal::make(refusal::others_worked);
      return Checked::kInconclusive;
    }
    region_.budget.disturbed = 0;
    if (found == Shadow::Found::kOtherValue) return Checked::kOtherValue;
    return is_good(found) || outcome == nullptr ? Checked::kEqual : Checked::kDiffers;
  }

  grape::observation::CallScope scope_;
  replay::Region& region_;
  replay::Proven& proven_;
  const replay::Call& call_;
  Shadow shadow_;
  LookRoom room_;
  GradientTargets targets_;
  ObservedBorder border_;
  std::vector<std::uint64_t> addresses_;  // of the blocks that the call left, but for what only its nodes keep
  Object* saved_memory_ = nullptr;        // owned; that of the shadow. Null: there is none
  std::unique_ptr<effects::ArgumentSnapshot> before_;
  std::vector<walk::TensorVersion> globals_before_;
  std::uint64_t seed_ = 0, offset_ = 0, nodes_before_ = 0, others_changes_ = 0;
  host_draws::HostRandom host_random_;
  bool random_known_ = false;
};

void say_unchecked(const replay::Region& region, const replay::Call& call, const refusal::Refusal& error) {
  if (error && call.check_asked)
    notice("GRAPE_VALIDATE: %s could not be checked: %s", region.name.c_str(), error.text.c_str());
}

}  // namespace

bool validation_due(replay::Region& region) noexcept {
  return config().validate != 0 && ++region.budget.since_validated >= config().validate;
}

Checked validate(replay::Region& region, replay::Proven& proven, const replay::Call& call, Object*& result,
                 refusal::Refusal& difference) {
  refusal::Refusal error;
  if (call.work.context == nullptr) device::have_context(call.work.device);
  const replay::Settled settled = replay::let_device_finish(region, call);
  if (settled != replay::Settled::kIdle) {
    if (settled == replay::Settled::kBusy) say_unchecked(region, call, refusal::make(refusal::never_idle));
    result = replay::run_as_it_is(call);
    return Checked::kInconclusive;
  }
  const auto check = std::make_unique<Check>(region, proven, call);  // as observe()'s: the thread refers to it
  if (!check->begin(error)) {
    say_unchecked(region, call, error);
    return Checked::kNotPossible;
  }
  region.budget.since_validated = 0;
  const double begin = replay::now();
  result = replay::run_as_it_is(call);
  region.times.eager += replay::now() - begin;
  ++region.times.eager_calls;
  if (result == nullptr) return Checked::kInconclusive;
  Checked checked = Checked::kInconclusive;
  try {
    checked = check->end(result, difference, error);
    say_unchecked(region, call, error);
  } catch (const std::bad_alloc&) {
    checked = Checked::kInconclusive;  // the call has run: nothing may be thrown
  }
  if (checked == Checked::kEqual) ++region.statistics.validated;
  return checked;
}

}  // namespace grape::python::proof
