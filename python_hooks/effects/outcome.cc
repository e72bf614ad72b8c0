#include "python_hooks/effects/outcome.h"

#include <algorithm>
#include <new>

#include "python_hooks/effects/describe.h"
#include "python_hooks/effects/effects.h"
#include "python_hooks/effects/outcome_state.h"
#include "python_hooks/walk/instance.h"

namespace grape::python::state {
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

Outcome::Outcome() = default;
Outcome::~Outcome() = default;

std::unique_ptr<Outcome> Outcome::learn(Object* result, const Before& before, ModuleGuard& module,
                                        refusal::Refusal& refusal, bool* autograd) noexcept {
  try {
    const KeepException keep;
    const NoCollection no_collection;
    refusal = {};
    if (!module.holds()) {
      refusal = refusal::make(refusal::changed_module, module.change());
      return nullptr;
    }
    const BeforeState& then = *before.state_;
    std::unique_ptr<Outcome> outcome(new Outcome);
    outcome->state_ = std::make_unique<OutcomeState>();
    OutcomeState& state = *outcome->state_;
    state.argument_objects = then.objects.size();
    Describer describer(then, module.objects(), state, refusal);
    EffectFinder effects(then, describer, state, refusal);
    bool good = effects.find();
    if (good) {
      state.result = describer.describe(result, "result");
      good = state.result != kNoNode && describer.held_by_nobody_else() && describer.relate_views() &&
             describer.tells_no_addresses();
    }
    effects.note_dropped();
    if (autograd != nullptr) *autograd = state.autograd;
    return good ? std::move(outcome) : nullptr;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

bool Outcome::same_as(const Outcome& other, refusal::Refusal& difference) const noexcept {
  try {
    const KeepException keep;
    difference = outcome_difference(*state_, *other.state_);
    return !difference;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

const std::vector<MadeTensor>& Outcome::made() const noexcept { return state_->made; }

const std::vector<StorageExtent>& Outcome::written() const noexcept { return state_->written; }

bool Outcome::lets_go() const noexcept { return !state_->dropped.empty(); }

bool Outcome::end_is_seen(const Walk& arguments) const noexcept {
  return std::any_of(state_->dropped.begin(), state_->dropped.end(),
                     [&](std::uint32_t place) { return weakly_held(arguments.objects()[place]); });
}

bool Outcome::fits(const Walk& arguments) const noexcept { return outcome_fits(*state_, arguments); }

void Outcome::fetch() const noexcept {
  fetch_items(state_->nodes);
  fetch_items(state_->links);
  fetch_items(state_->effects);
  fetch_items(state_->made);
}

Object* Outcome::repeat(Object* const* tensors, const Walk& arguments, References& replaced) const noexcept {
  return repeat_outcome(*state_, tensors, arguments, replaced);
}

}  // namespace grape::python::state
