#include "compressor/families/family.h"

#include <algorithm>

namespace grape::families {
namespace {

// With the words in which other members refer to other memory, and without padding.
std::vector<Slot> real_differences(const Regime& regime, const program::Program& program, std::vector<Slot> slots,
                                   const IsPadding& is_padding) {
  for (const std::uint32_t word : regime.noise()) {
    const auto node = static_cast<std::uint32_t>(&program::node_of(program, word) - program.nodes.data());
    slots.push_back({Slot::Kind::kWord, node, word});
  }
  const auto known = [&](const Slot& slot) { return is_padding && is_padding(program, slot); };
  slots.erase(std::remove_if(slots.begin(), slots.end(), known), slots.end());
  return slots;
}

}  // namespace

bool Family::may_prove() const {
  return !lost_ && std::any_of(states_.begin(), states_.end(),
                               [](const State& each) { return each.repetitions >= kRepetitions; });
}

std::size_t Family::state_of(const Observed& observed, const Numbers& numbers) const {
  const auto holds = [&](const State& each) { return each.regime.holds(observed, numbers); };
  return static_cast<std::size_t>(std::find_if(states_.begin(), states_.end(), holds) - states_.begin());
}

// Two observed calls with one signature: the rule of all proofs.
void Family::observe_again(const Observed& observed, std::uint64_t call, Member& member, const IsPadding& is_padding,
                           Answer& answer) {
  answer.repeats = true;
  const bool others_between = call > member.call + 1;
  member.call = call;
  State& state = states_[member.state];
  if (!state.regime.holds(observed, state.regime.members()[member.number])) {
    lost_ = true;
    return;
  }
  answer.differences = real_differences(state.regime, observed.program,
                                        state.regime.differences_from(member.number, observed), is_padding);
  if (!answer.differences.empty()) {
    lost_ = true;
  } else if (!member.repeated && others_between) {
    member.repeated = true;
    ++state.repetitions;
  }
}

Family::Answer Family::observe(const Observed& observed, const Numbers& numbers, std::uint64_t call,
                               const IsPadding& is_padding) {
  Answer answer;
  const auto known = members_.find(numbers);
  if (known != members_.end()) {
    observe_again(observed, call, known->second, is_padding, answer);
    return answer;
  }
  const std::size_t at = state_of(observed, numbers);
  if (at == states_.size()) {
    members_[numbers] = {at, 0, call, false};
    states_.push_back({Regime(observed, numbers, identity_), 0, 0});
    return answer;
  }
  State& state = states_[at];
  answer.differences =
      real_differences(state.regime, observed.program, state.regime.differences(observed, numbers), is_padding);
  answer.foretold = answer.differences.empty();
  right_ += answer.foretold ? 1 : 0;
  wrong_ += !answer.foretold && state.regime.knows_all(numbers) ? 1 : 0;
  answer.proves = answer.foretold && !lost_ && state.repetitions >= kRepetitions;
  if (answer.proves) {
    answer.needs_shadow = state.proved < kShadowed || state.proved % kSampled == 0;
    ++state.proved;
  }
  members_[numbers] = {at, state.regime.member_count(), call, false};
  state.regime.add(observed, numbers);
  return answer;
}

}  // namespace grape::families
