#include "compressor/families/regime.h"

#include <xxhash.h>

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

bool is_in_words(const Slot& slot) { return slot.kind == Slot::Kind::kLane || slot.kind == Slot::Kind::kWord; }

// Of its word.
std::uint8_t bytes_of(const Slot& slot) {
  if (slot.kind != Slot::Kind::kLane) return 0xff;
  return shift_of(slot) != 0 ? 0xf0 : 0x0f;
}

// `words` in ascending order.
void add_bytes(std::vector<program::NoiseWord>& words, std::uint32_t word, std::uint8_t bytes) {
  if (bytes == 0) return;
  if (words.empty() || words.back().word != word) words.push_back({word, 0});
  words.back().bytes = static_cast<std::uint8_t>(words.back().bytes | bytes);
}

const program::NoiseWord* noise_at(const Slot& slot, const std::vector<program::NoiseWord>& noise) {
  if (noise.empty() || !is_in_words(slot)) return nullptr;
  const program::NoiseWord its{word_of(slot), 0};
  const auto place = std::lower_bound(noise.begin(), noise.end(), its, before);
  return place != noise.end() && place->word == its.word ? &*place : nullptr;
}

bool is_noise(const Slot& slot, const std::vector<program::NoiseWord>& noise) {
  return noise_at(slot, noise) != nullptr;
}

std::vector<std::uint32_t> words_of(const std::vector<program::NoiseWord>& noise) {
  std::vector<std::uint32_t> words;
  words.reserve(noise.size());
  for (const program::NoiseWord& each : noise) words.push_back(each.word);
  return words;
}

// What the word refers to, and where; of a plain word its value.
std::uint64_t hash_of(const program::Program& program, const program::Reference* reference, std::uint32_t word) {
  std::uint64_t parts[] = {program.words[word], 0, 0, 0};
  if (reference != nullptr) {
    parts[1] = 1 + static_cast<std::uint64_t>(reference->role);
    parts[2] = reference->block;
    if (reference->role == program::Role::kStatic) {
      parts[2] = program.statics[reference->block].address;
      parts[3] = program.statics[reference->block].serial;
    }
  }
  return XXH3_64bits(parts, sizeof parts);
}

}  // namespace

Regime::Regime(const Observed& first, Numbers numbers, KernelIdentity identity)
    : identity_(std::move(identity)),
      base_(first.program),
      beside_(first.beside),
      outside_(first.outside),
      slots_(slots_of(first)),
      sequence_of_(slots_.size(), kConstant),
      slot_of_word_(base_.words.size(), kNone),
      varies_(base_.words.size(), 0),
      unsteady_(base_.words.size(), 0),
      members_{std::move(numbers)} {
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    if (!is_in_words(slots_[i])) {
      beside_words_.push_back(i);
    } else if (slot_of_word_[word_of(slots_[i])] == kNone) {
      slot_of_word_[word_of(slots_[i])] = i;
    }
  }
}

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

// A hash is no value that a slot could have: those are at most 48 bits wide, or lanes.
std::int64_t Regime::content(const Observed& observed, const std::vector<program::NoiseWord>& noise,
                             std::size_t slot) const {
  const Slot& its = slots_[slot];
  const std::int64_t value = value_at(observed, its);
  if (!is_noise(its, noise)) return value;
  const std::uint32_t word = word_of(its);
  const program::Reference* const reference = program::reference_at(observed.program, word);
  if (its.kind == Slot::Kind::kLane && reference == nullptr) return value;
  if (its.kind == Slot::Kind::kWord && same_reference(base_, observed.program, word)) return value;
  return static_cast<std::int64_t>(hash_of(observed.program, reference, word) | std::uint64_t{1} << 63);
}

std::vector<std::uint32_t> Regime::slots_to_ask(const Observed& observed,
                                                const std::vector<program::NoiseWord>& noise) const {
  std::vector<std::uint8_t> asked(base_.words.size());
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const bool other = observed.program.words[i] != base_.words[i];
    asked[i] = static_cast<std::uint8_t>(other ? 1 : unsteady_[i] | varies_[i]);
  }
  for (const program::NoiseWord& each : noise) asked[each.word] = 1;
  std::vector<std::uint32_t> in_words;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    if (asked[i] == 0 || slot_of_word_[i] == kNone) continue;
    const std::uint32_t slot = slot_of_word_[i];
    in_words.push_back(slot);
    if (slots_[slot].kind == Slot::Kind::kLane) in_words.push_back(slot + 1);
  }
  std::vector<std::uint32_t> slots;
  slots.reserve(in_words.size() + beside_words_.size());
  std::merge(in_words.begin(), in_words.end(), beside_words_.begin(), beside_words_.end(), std::back_inserter(slots));
  return slots;
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
  for (const std::uint32_t i : slots_to_ask(observed, noise_)) {
    const std::uint32_t before = sequence_of_[i];
    const std::int64_t value = content(observed, noise_, i);
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
    if (is_in_words(slots_[i])) varies_[word_of(slots_[i])] = 1;
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
  noise_ = noise_with(observed);
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
  if (unsteady_bytes(slots_[slot]) != 0) return std::nullopt;
  if (sequence == kConstant) return value_at(first(), slots_[slot]);
  const std::optional<Formula>& formula = sequences_[sequence].formula;
  return formula ? evaluate(*formula, numbers) : std::nullopt;
}

Regime::Foretold Regime::foretell(const Numbers& numbers) const {
  Foretold result{base_, beside_, {}};
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const bool constant = sequence_of_[i] == kConstant && unsteady_bytes(slots_[i]) == 0;
    if (constant || is_noise(slots_[i], noise_)) continue;
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
  if (sequence == kConstant) return bits;
  for (const std::int64_t each : sequences_[sequence].values) bits |= static_cast<std::uint64_t>(each ^ base);
  return bits;
}

std::int64_t Regime::value_of(std::size_t slot, std::size_t member) const {
  const std::uint32_t sequence = sequence_of_[slot];
  return sequence == kConstant ? value_at(first(), slots_[slot]) : sequences_[sequence].values[member];
}

std::uint8_t Regime::unsteady_bytes(const Slot& slot) const {
  return is_in_words(slot) ? static_cast<std::uint8_t>(unsteady_[word_of(slot)] & bytes_of(slot)) : std::uint8_t{0};
}

bool Regime::may_be_padding(const Observed& observed, std::size_t slot, std::uint64_t bits) const {
  const Slot& its = slots_[slot];
  return its.kind == Slot::Kind::kLane && bits != 0 &&
         program::may_be_noise(base_, observed.program, word_of(its), bits << shift_of(its), true);
}

// Two values at least: what was one value so far may be a mode that changes. Then it has to be that value again: calls
// in which a library sets something up leave other bytes, once. What has a formula is to follow it. Of what differed
// between equal calls, if it refers to memory, nobody knows which bytes are left.
bool Regime::is_steady(std::size_t slot, bool refers, std::int64_t value) const {
  const std::uint32_t sequence = sequence_of_[slot];
  if (again_.size() < kSteady || sequence == kConstant || sequences_[sequence].formula) return false;
  const std::uint8_t unsteady = unsteady_bytes(slots_[slot]);
  if (refers && unsteady != 0) return false;
  const std::vector<std::int64_t>& values = sequences_[sequence].values;
  const auto is_another = [&](std::int64_t each) {
    const auto bits = static_cast<std::uint64_t>(each ^ values[again_.front()]);
    if (unsteady == 0) return bits != 0;
    return (program::different_bytes(bits << shift_of(slots_[slot]), 0) & ~unsteady) != 0;
  };
  return std::any_of(again_.begin(), again_.end(), [&](std::size_t member) { return is_another(values[member]); }) ||
         !is_another(value);
}

std::optional<std::uint8_t> Regime::unforetold_bytes(const Observed& observed,
                                                     const std::vector<program::NoiseWord>& noise, std::size_t slot,
                                                     std::int64_t value) const {
  const program::NoiseWord* const refers = noise_at(slots_[slot], noise);
  const std::uint8_t unsteady = unsteady_bytes(slots_[slot]);
  if (refers != nullptr) return static_cast<std::uint8_t>(is_steady(slot, true, value) ? 0 : unsteady | refers->bytes);
  const std::uint64_t bits = varied(slot, value);
  const std::uint8_t bytes = program::different_bytes(bits << shift_of(slots_[slot]), 0);
  // Whether what differed between equal calls may be padding was asked then.
  const bool known = unsteady != 0 && (bytes & ~unsteady) == 0;
  if (!known && !may_be_padding(observed, slot, bits)) return std::nullopt;
  return static_cast<std::uint8_t>(unsteady | (is_steady(slot, false, value) ? 0 : bytes));
}

Regime::Differences Regime::differences(const Observed& observed, const Numbers& numbers) const {
  Differences result;
  const std::vector<program::NoiseWord> noise = noise_with(observed);
  for (const std::uint32_t i : slots_to_ask(observed, noise)) {
    const std::int64_t value = content(observed, noise, i);
    if (foretold(i, numbers) == value) continue;
    if (const auto bytes = unforetold_bytes(observed, noise, i, value)) {
      if (*bytes == 0) ++result.steady;
      add_bytes(result.noise, word_of(slots_[i]), *bytes);
    } else {
      result.slots.push_back(slots_[i]);
    }
  }
  return result;
}

Regime::Differences Regime::observe_again(std::size_t member, const Observed& observed, bool counts) {
  Differences result;
  noise_ = noise_with(observed);
  for (const std::uint32_t i : slots_to_ask(observed, noise_)) {
    const Slot& slot = slots_[i];
    const std::int64_t value = content(observed, noise_, i), then = value_of(i, member);
    if (value == then) continue;
    const auto bits = static_cast<std::uint64_t>(value ^ then);
    if (const program::NoiseWord* const refers = noise_at(slot, noise_)) {
      add_bytes(result.noise, word_of(slot), refers->bytes);
    } else if (may_be_padding(observed, i, bits)) {
      add_bytes(result.noise, word_of(slot), program::different_bytes(bits << shift_of(slot), 0));
    } else {
      result.slots.push_back(slot);
    }
  }
  for (const program::NoiseWord& each : result.noise) {
    std::uint8_t& bytes = unsteady_[each.word];
    add_bytes(result.first, each.word, static_cast<std::uint8_t>(each.bytes & ~bytes));
    bytes = static_cast<std::uint8_t>(bytes | each.bytes);
  }
  if (counts && std::find(again_.begin(), again_.end(), member) == again_.end()) again_.push_back(member);
  return result;
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
