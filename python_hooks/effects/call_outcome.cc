#include "python_hooks/effects/call_outcome.h"

#include <algorithm>
#include <new>

#include "python_hooks/effects/call_outcome_state.h"
#include "python_hooks/effects/describe.h"
#include "python_hooks/effects/effects.h"
#include "python_hooks/walk/instance.h"

namespace grape::python::effects {
namespace {

// Has it fetched ahead, of much only the first part.
template <typename Item>
void fetch_items(const std::vector<Item>& items) noexcept {
  constexpr std::size_t kLine = 64, kMost = std::size_t{16} << 10;
  const auto* at = reinterpret_cast<const char*>(items.data());
  const char* const end = at + std::min(items.size() * sizeof(Item), kMost);
  for (; at < end; at += kLine) __builtin_prefetch(at);
}

}  // namespace

CallOutcome::CallOutcome() = default;
CallOutcome::~CallOutcome() = default;

std::unique_ptr<CallOutcome> CallOutcome::learn(Object* result, const ArgumentSnapshot& before,
                                                guards::ModuleGuard& module, refusal::Refusal& refusal, bool* autograd,
                                                std::vector<GradientResult>* gradients) noexcept {
  try {
    const KeepException keep;
    const NoCollection no_collection;
    refusal = {};
    if (!module.holds()) return refusal::refuse(refusal, refusal::changed_module, module.change());
    const ArgumentSnapshotState& then = *before.state_;
    std::unique_ptr<CallOutcome> outcome(new CallOutcome);
    outcome->state_ = std::make_unique<CallOutcomeState>();
    CallOutcomeState& state = *outcome->state_;
    state.argument_objects = then.objects.size();
    state.gradients = gradients;
    Describer describer(then, module.objects(), state, refusal);
    EffectFinder effects(then, describer, state, refusal);
    bool good = effects.find();
    if (good) {
      state.result = describer.describe(result, "result");
      good = state.result != kNoNode && describer.held_by_nobody_else() && describer.relate_views() &&
             describer.tells_no_addresses();
    }
    effects.note_dropped();
    state.gradients = nullptr;
    if (autograd != nullptr) *autograd = state.autograd;
    return good ? std::move(outcome) : nullptr;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

bool CallOutcome::same_as(const CallOutcome& other, refusal::Refusal& difference) const noexcept {
  try {
    const KeepException keep;
    difference = outcome_difference(*state_, *other.state_);
    return !difference;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

const std::vector<MadeTensor>& CallOutcome::made() const noexcept { return state_->made; }

const std::vector<walk::StorageExtent>& CallOutcome::written() const noexcept { return state_->written; }

const std::vector<std::uint32_t>& CallOutcome::made_to_require_grad() const noexcept {
  return state_->made_to_require_grad;
}

bool CallOutcome::has_effects() const noexcept {
  return !state_->effects.empty() || !state_->made_to_require_grad.empty() || !state_->counted.empty();
}

bool CallOutcome::lets_go() const noexcept { return !state_->dropped.empty(); }

bool CallOutcome::end_is_seen(const walk::Walk& arguments) const noexcept {
  return std::any_of(state_->dropped.begin(), state_->dropped.end(),
                     [&](std::uint32_t place) { return walk::weakly_held(arguments.objects()[place]); });
}

void CallOutcome::fetch() const noexcept {
  fetch_items(state_->nodes);
  fetch_items(state_->links);
  fetch_items(state_->effects);
  fetch_items(state_->made);
}

}  // namespace grape::python::effects
