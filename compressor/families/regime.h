// Members of a family with one list of kernels, and what they foretell of others. The members' values are kept once for
// each sequence of them: 42,000 lanes of a decoding step have 48 (docs/FAMILIES.md).
// Core: no CUDA, no Python. Not shared between threads. Throws std::bad_alloc only.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "compressor/families/formula.h"
#include "compressor/families/slots.h"
#include "compressor/program/padding.h"
#include "compressor/program/program.h"

namespace grape::families {

class Regime {
 public:
  // With its first member.
  Regime(const Observed& first, Numbers numbers, KernelIdentity identity = nullptr);

  // Is it a call of this regime?
  bool holds(const Observed& observed, const Numbers& numbers) const;

  // `observed` is one that it holds. Formulas that were wrong about it are dropped, and those that are missing looked
  // for, if `learns`. Values without a formula are looked at again with half as many members more.
  void add(const Observed& observed, Numbers numbers, bool learns = true);
  // Looks for all formulas that are missing: what add() did not.
  void learn();

  // Kernels' handles are the first member's. `unknown`: slots whose values are not foretold: no formula, or none for
  // these numbers. They, and words that are noise(), have the first member's values.
  struct Foretold {
    program::Program program;
    std::vector<std::int64_t> beside;
    std::vector<Slot> unknown;
  };
  Foretold foretell(const Numbers& numbers) const;
  bool knows_all(const Numbers& numbers) const;  // is nothing unknown of a call with these numbers?

  // Where the call that was observed is not the one that is foretold. Slots without a formula are among them. Both are
  // empty: all of it was foretold.
  struct Differences {
    bool empty() const { return slots.empty() && noise.empty(); }

    std::vector<Slot> slots;
    std::vector<program::NoiseWord> noise;  // words that may be padding, with all bytes that varied. Ascending
  };
  Differences differences(const Observed& observed, const Numbers& numbers) const;

  // The same of another call with a member's numbers, against the member's own values; by its number in the order of
  // adding. What differs and may be padding is no function of numbers: no formula foretells it any more.
  Differences observe_again(std::size_t member, const Observed& observed);

  std::size_t member_count() const { return members_.size(); }
  const std::vector<Numbers>& members() const { return members_; }
  // Words in which members refer to different memory, or some to none, or which no numbers foretell: padding, or they
  // are no family. Ascending, with the bytes that varied.
  const std::vector<program::NoiseWord>& noise() const { return noise_; }
  // Different sequences of values, and those of them that have a formula.
  std::size_t sequence_count() const { return sequences_.size(); }
  std::size_t formula_count() const;

 private:
  // Values that some slots have in common in all members.
  struct Sequence {
    std::vector<std::int64_t> values;  // per member
    std::optional<Formula> formula;
    std::size_t next_search =
        0;  // with so many members: what the host left behind has no formula, however many there are
  };
  static constexpr std::uint32_t kConstant = ~0U, kNoise = ~0U - 1, kUnsteady = ~0U - 2;

  void add_noise(const Observed& observed, const std::vector<std::uint32_t>& words);
  void split(const Observed& observed);
  Observed first() const { return {base_, beside_, outside_}; }
  // Of the slots with other values than `value_of(slot)` says, by index; and of words that are noise. `lanes`: gets
  // those that may be padding.
  template <typename ValueOf>
  Differences unlike(const Observed& observed, ValueOf value_of, std::vector<std::size_t>* lanes) const;
  std::uint64_t varied(std::size_t slot, std::int64_t value) const;  // bits, in all members and in `value`
  std::optional<std::int64_t> foretold(std::size_t slot, const Numbers& numbers) const;

  KernelIdentity identity_;
  program::Program base_;  // the first member's
  std::vector<std::int64_t> beside_;
  std::uint64_t outside_ = 0;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> sequence_of_;         // per slot; kConstant: as in `base_`
  std::map<std::size_t, std::uint64_t> unsteady_;  // lanes that are kUnsteady, with the bits that varied
  std::vector<program::NoiseWord> noise_;
  std::vector<Sequence> sequences_;
  std::vector<Numbers> members_;
};

}  // namespace grape::families
