#include "compressor/families/regime.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include "compressor/families/search.h"
#include "compressor/program/prove.h"

namespace grape::families {

namespace {

bool before(const program::NoiseWord& a, const program::NoiseWord& b) { return a.word < b.word; }

bool is_noise(const Slot& slot, const std::vector<program::NoiseWord>& noise) {
  const bool lane = slot.kind == Slot::Kind::kLane;
  return (lane || slot.kind == Slot::Kind::kWord) &&
         std::binary_search(noise.begin(), noise.end(), program::NoiseWord{lane ? slot.index / 2 : slot.index, 0},
                            before);
}

std::vector<std::uint32_t> words_of(const std::vector<program::NoiseWord>& noise) {
  std::vector<std::uint32_t> words;
  words.reserve(noise.size());
  for (const program::NoiseWord& each : noise) words.push_back(each.word);
  return words;
}

}  // namespace

Regime::Regime(const Observed& first, Numbers numbers, KernelIdentity identity)
    : identity_(std::move(identity)),
      base_(first.program),
      beside_(first.beside),
      outside_(first.outside),
      slots_(slots_of(first)),
      sequence_of_(slots_.size(), kConstant),
      members_{std::move(numbers)} {}

bool Regime::holds(const Observed& observed, const Numbers& numbers) const {
  return numbers.size() == members_.front().size() && observed.outside == outside_ &&
         observed.beside.size() == beside_.size() && same_skeleton(base_, observed.program, identity_);
}

std::vector<program::NoiseWord> Regime::noise_with(const Observed& observed) const {
  std::vector<std::uint32_t> words;
  same_skeleton(base_, observed.program, identity_, &words);
  std::vector<program::NoiseWord> noise = noise_;
  program::add_noise(noise, base_, observed.program, words_of(noise_));
  program::add_noise(noise, base_, observed.program, words);
  return noise;
}

void Regime::add_noise(const Observed& observed) {
  const std::size_t count = noise_.size();
  noise_ = noise_with(observed);
  if (noise_.size() == count) return;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (is_noise(slots_[i], noise_)) sequence_of_[i] = kNoise;
  }
}

// Slots that had the same values so far and do not any more part ways.
void Regime::split(const Observed& observed) {
  struct Key {
    std::uint32_t sequence;
    std::int64_t base, value;  // `base`: of a slot that was constant; else 0
    bool operator<(const Key& o) const {
      return std::tie(sequence, base, value) < std::tie(o.sequence, o.base, o.value);
    }
  };
  std::map<Key, std::uint32_t> numbers;
  std::vector<Sequence> sequences;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const std::uint32_t before = sequence_of_[i];
    if (before == kNoise) continue;
    if (before == kUnsteady) {
      unsteady_[i] = varied(i, value_at(observed, slots_[i]));
      continue;
    }
    const std::int64_t value = value_at(observed, slots_[i]);
    const std::int64_t base = before == kConstant ? value_at(first(), slots_[i]) : 0;
    if (before == kConstant && value == base) continue;
    const auto [place, added] =
        numbers.try_emplace(Key{before, base, value}, static_cast<std::uint32_t>(sequences.size()));
    if (added) {
      Sequence sequence;
      if (before == kConstant) {
        sequence.values.assign(members_.size(), base);
      } else {
        sequence = sequences_[before];
      }
      sequence.values.push_back(value);
      sequences.push_back(std::move(sequence));
    }
    sequence_of_[i] = place->second;
  }
  sequences_ = std::move(sequences);
}

// Twice: a divisor's formula may be found after its multiplier was looked for.
void Regime::learn() {
  Search search(members_);
  bool found = true;
  for (int round = 0; round < 2 && found; ++round) {
    found = false;
    for (Sequence& sequence : sequences_) {
      if (sequence.formula || sequence.next_search > members_.size()) continue;
      sequence.formula = search.find(sequence.values);
      found = found || sequence.formula.has_value();
    }
  }
  for (Sequence& sequence : sequences_) {
    if (!sequence.formula && sequence.next_search <= members_.size())
      sequence.next_search = members_.size() + std::max<std::size_t>(1, members_.size() / 8 * 4);
  }
}

void Regime::add(const Observed& observed, Numbers numbers, bool learns) {
  add_noise(observed);
  split(observed);
  members_.push_back(std::move(numbers));
  bool unknown = false;
  for (Sequence& sequence : sequences_) {
    if (sequence.formula && evaluate(*sequence.formula, members_.back()) != sequence.values.back()) {
      sequence.formula.reset();
      sequence.next_search = 0;
    }
    unknown = unknown || (!sequence.formula && sequence.next_search <= members_.size());
  }
  if (unknown && learns) learn();
}

std::optional<std::int64_t> Regime::foretold(std::size_t slot, const Numbers& numbers) const {
  const std::uint32_t sequence = sequence_of_[slot];
  if (sequence == kConstant) return value_at(first(), slots_[slot]);
  if (sequence == kUnsteady) return std::nullopt;
  const std::optional<Formula>& formula = sequences_[sequence].formula;
  return formula ? evaluate(*formula, numbers) : std::nullopt;
}

Regime::Foretold Regime::foretell(const Numbers& numbers) const {
  Foretold result{base_, beside_, {}};
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (sequence_of_[i] == kConstant || sequence_of_[i] == kNoise) continue;
    if (const auto value = foretold(i, numbers)) {
      if (slots_[i].kind == Slot::Kind::kBeside) result.beside[slots_[i].index] = *value;
      set_value(result.program, slots_[i], *value);
    } else {
      result.unknown.push_back(slots_[i]);
    }
  }
  return result;
}

std::uint64_t Regime::varied(std::size_t slot, std::int64_t value) const {
  const std::int64_t base = value_at(first(), slots_[slot]);
  auto bits = static_cast<std::uint64_t>(value ^ base);
  const std::uint32_t sequence = sequence_of_[slot];
  if (sequence == kUnsteady) return bits | unsteady_.at(slot);
  if (sequence == kConstant) return bits;
  for (const std::int64_t each : sequences_[sequence].values) bits |= static_cast<std::uint64_t>(each ^ base);
  return bits;
}

template <typename ValueOf>
Regime::Differences Regime::unlike(const Observed& observed, const std::vector<program::NoiseWord>& noise,
                                   ValueOf value_of, std::vector<std::size_t>& lanes) const {
  Differences result;
  std::vector<program::NoiseWord> words;  // of the lanes
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (sequence_of_[i] == kNoise || is_noise(slot, noise)) continue;
    const std::int64_t value = value_at(observed, slot);
    if (value_of(i) == value) continue;
    const bool lane = slot.kind == Slot::Kind::kLane;
    const std::uint64_t bits = lane ? varied(i, value) << ((slot.index & 1U) * 32) : 0;
    if (bits == 0 || !program::may_be_noise(base_, observed.program, slot.index / 2, bits, true)) {
      result.slots.push_back(slot);
      continue;
    }
    lanes.push_back(i);
    if (words.empty() || words.back().word != slot.index / 2) words.push_back({slot.index / 2, 0});
    words.back().bytes = static_cast<std::uint8_t>(words.back().bytes | program::different_bytes(bits, 0));
  }
  std::merge(noise.begin(), noise.end(), words.begin(), words.end(), std::back_inserter(result.noise), before);
  return result;
}

Regime::Differences Regime::differences(const Observed& observed, const Numbers& numbers) const {
  std::vector<std::size_t> ignored;
  return unlike(
      observed, noise_with(observed), [&](std::size_t slot) { return foretold(slot, numbers); }, ignored);
}

Regime::Differences Regime::observe_again(std::size_t member, const Observed& observed) {
  std::vector<std::size_t> lanes;
  const auto value_then = [&](std::size_t slot) -> std::optional<std::int64_t> {
    const std::uint32_t sequence = sequence_of_[slot];
    if (sequence == kUnsteady) return std::nullopt;
    return sequence == kConstant ? value_at(first(), slots_[slot]) : sequences_[sequence].values[member];
  };
  add_noise(observed);
  Differences found = unlike(observed, noise_, value_then, lanes);
  for (const std::size_t lane : lanes) {
    unsteady_[lane] = varied(lane, value_at(observed, slots_[lane]));
    sequence_of_[lane] = kUnsteady;
  }
  return found;
}

bool Regime::knows_all(const Numbers& numbers) const {
  return std::all_of(sequences_.begin(), sequences_.end(), [&](const Sequence& each) {
    return each.formula.has_value() && evaluate(*each.formula, numbers).has_value();
  });
}

std::size_t Regime::formula_count() const {
  return static_cast<std::size_t>(std::count_if(sequences_.begin(), sequences_.end(),
                                                [](const Sequence& each) { return each.formula.has_value(); }));
}

}  // namespace grape::families
