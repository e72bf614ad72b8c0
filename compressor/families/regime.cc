#include "compressor/families/regime.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include "compressor/families/search.h"

namespace grape::families {

namespace {

bool is_noise(const Slot& slot, const std::vector<std::uint32_t>& noise) {
  const bool lane = slot.kind == Slot::Kind::kLane;
  return (lane || slot.kind == Slot::Kind::kWord) &&
         std::binary_search(noise.begin(), noise.end(), lane ? slot.index / 2 : slot.index);
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

void Regime::add_noise(const std::vector<std::uint32_t>& words) {
  std::vector<std::uint32_t> all;
  std::set_union(noise_.begin(), noise_.end(), words.begin(), words.end(), std::back_inserter(all));
  if (all.size() == noise_.size()) return;
  noise_ = std::move(all);
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
  for (int round = 0; round < 2; ++round) {
    for (Sequence& sequence : sequences_) {
      if (!sequence.formula && sequence.next_search <= members_.size()) sequence.formula = search.find(sequence.values);
    }
  }
  for (Sequence& sequence : sequences_) {
    if (!sequence.formula && sequence.next_search <= members_.size())
      sequence.next_search = members_.size() + std::max<std::size_t>(1, members_.size() / 8 * 4);
  }
}

void Regime::add(const Observed& observed, Numbers numbers) {
  std::vector<std::uint32_t> noise;
  same_skeleton(base_, observed.program, identity_, &noise);
  add_noise(noise);
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
  if (unknown) learn();
}

std::optional<std::int64_t> Regime::foretold(std::size_t slot, const Numbers& numbers) const {
  const std::uint32_t sequence = sequence_of_[slot];
  if (sequence == kConstant) return value_at(first(), slots_[slot]);
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

template <typename ValueOf>
std::vector<Slot> Regime::slots_unlike(const Observed& observed, ValueOf value_of) const {
  std::vector<std::uint32_t> noise;
  same_skeleton(base_, observed.program, identity_, &noise);
  std::vector<Slot> different;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (sequence_of_[i] == kNoise) continue;
    if (is_noise(slots_[i], noise) || value_of(i) != value_at(observed, slots_[i])) different.push_back(slots_[i]);
  }
  return different;
}

std::vector<Slot> Regime::differences(const Observed& observed, const Numbers& numbers) const {
  return slots_unlike(observed, [&](std::size_t slot) { return foretold(slot, numbers); });
}

std::vector<Slot> Regime::differences_from(std::size_t member, const Observed& observed) const {
  return slots_unlike(observed, [&](std::size_t slot) {
    const std::uint32_t sequence = sequence_of_[slot];
    return sequence == kConstant ? value_at(first(), slots_[slot]) : sequences_[sequence].values[member];
  });
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
