#include "compressor/families/family.h"

#include <algorithm>

namespace grape::families {
namespace {

void drop_padding(const program::Program& program, const IsPadding& is_padding, std::vector<Slot>& slots) {
  const auto known = [&](const Slot& slot) { return is_padding && is_padding(program, slot); };
  slots.erase(std::remove_if(slots.begin(), slots.end(), known), slots.end());
}

// Words in which other members refer to other memory.
void add_noise(const Regime& regime, const program::Program& program, std::vector<Slot>& slots) {
  for (const std::uint32_t word : regime.noise()) {
    const auto node = static_cast<std::uint32_t>(&program::node_of(program, word) - program.nodes.data());
    slots.push_back({Slot::Kind::kWord, node, word});
  }
}

}  // namespace

std::size_t Family::state_of(const program::Program& program, const Numbers& numbers) const {
  const auto holds = [&](const State& each) { return each.regime.holds(program, numbers); };
  return static_cast<std::size_t>(std::find_if(states_.begin(), states_.end(), holds) - states_.begin());
}

// Two observed calls with one signature: the rule of all proofs.
void Family::observe_again(const program::Program& program, Member& member, const IsPadding& is_padding,
                           Answer& answer) {
  answer.repeats = true;
  State& state = states_[member.state];
  const Numbers& numbers = state.regime.members()[member.number];
  if (!state.regime.holds(program, numbers)) {
    lost_ = true;
    return;
  }
  answer.differences = state.regime.differences_from(member.number, program);
  add_noise(state.regime, program, answer.differences);
  drop_padding(program, is_padding, answer.differences);
  if (!answer.differences.empty()) {
    lost_ = true;
  } else if (!member.repeated && last_ != numbers) {
    member.repeated = true;
    ++state.repetitions;
  }
}

Family::Answer Family::observe(const program::Program& program, const Numbers& numbers, const IsPadding& is_padding) {
  Answer answer;
  const auto known = members_.find(numbers);
  if (known != members_.end()) {
    observe_again(program, known->second, is_padding, answer);
    last_ = numbers;
    return answer;
  }
  last_ = numbers;
  const std::size_t at = state_of(program, numbers);
  if (at == states_.size()) {
    members_[numbers] = {at, 0, false};
    states_.push_back({Regime(program, numbers, identity_), 0, 0});
    return answer;
  }
  State& state = states_[at];
  answer.differences = state.regime.differences(program, numbers);
  add_noise(state.regime, program, answer.differences);
  drop_padding(program, is_padding, answer.differences);
  answer.foretold = answer.differences.empty();
  const bool complete = answer.foretold || state.regime.foretell(numbers).unknown.empty();
  right_ += answer.foretold ? 1 : 0;
  wrong_ += complete && !answer.foretold ? 1 : 0;
  answer.proves = answer.foretold && !lost_ && state.repetitions >= kRepetitions;
  if (answer.proves) {
    answer.needs_shadow = state.proved < kShadowed || state.proved % kSampled == 0;
    ++state.proved;
  }
  members_[numbers] = {at, state.regime.member_count(), false};
  state.regime.add(program, numbers);
  return answer;
}

}  // namespace grape::families
