#include "compressor/families/family.h"

#include <algorithm>

namespace grape::families {

bool Family::may_prove() const {
  return !lost_ && std::any_of(states_.begin(), states_.end(),
                               [](const State& each) { return each.repetitions >= kRepetitions; });
}

std::size_t Family::state_of(const Observed& observed, const Numbers& numbers) const {
  const auto holds = [&](const State& each) { return each.regime.holds(observed, numbers); };
  return static_cast<std::size_t>(std::find_if(states_.begin(), states_.end(), holds) - states_.begin());
}

// Two observed calls with one signature: the rule of all proofs.
void Family::observe_again(const Observed& observed, std::uint64_t call, Member& member, const UnknownPadding& unknown,
                           Answer& answer) {
  answer.repeats = true;
  const bool others_between = call > member.call + 1;
  member.call = call;
  State& state = states_[member.state];
  if (!state.regime.holds(observed, state.regime.members()[member.number])) {
    lost_ = true;
    return;
  }
  Regime::Differences found = state.regime.observe_again(member.number, observed, others_between);
  answer.differences = std::move(found.slots);
  answer.unknown = unknown(observed.program, found.noise);
  answer.takes_back = state.proved != 0 && !unknown(observed.program, found.first).empty();
  if (!answer.differences.empty()) {
    lost_ = true;
  } else if (!member.repeated && others_between) {
    member.repeated = true;
    if (++state.repetitions == kRepetitions) state.regime.learn();
  }
}

Family::Answer Family::observe(const Observed& observed, const Numbers& numbers, std::uint64_t call,
                               const UnknownPadding& unknown, bool did_more) {
  Answer answer;
  const auto known = members_.find(numbers);
  if (known != members_.end()) {
    if (!did_more) observe_again(observed, call, known->second, unknown, answer);
    return answer;
  }
  if (number_count_ + numbers.size() > kMostNumbers) return answer;
  const std::size_t at = state_of(observed, numbers);
  if (at == states_.size()) {
    if (did_more || at == kMostRegimes) return answer;
    number_count_ += numbers.size();
    members_[numbers] = {at, 0, call, false};
    states_.push_back({Regime(observed, numbers, identity_), 0, 0});
    return answer;
  }
  State& state = states_[at];
  Regime::Differences found = state.regime.differences(observed, numbers);
  answer.differences = std::move(found.slots);
  answer.unknown = unknown(observed.program, found.noise);
  answer.steady = found.steady;
  answer.foretold = answer.differences.empty() && answer.unknown.empty();
  if (did_more && !answer.foretold) return answer;
  right_ += answer.foretold ? 1 : 0;
  wrong_ += !answer.foretold && state.regime.knows_all(numbers) ? 1 : 0;
  answer.proves = answer.foretold && !lost_ && state.repetitions >= kRepetitions;
  if (answer.proves) {
    answer.needs_shadow = state.proved < kShadowed || state.proved % kSampled == 0;
    ++state.proved;
  }
  number_count_ += numbers.size();
  members_[numbers] = {at, state.regime.member_count(), call, false};
  state.regime.add(observed, numbers, state.repetitions >= kRepetitions);
  return answer;
}

}  // namespace grape::families
