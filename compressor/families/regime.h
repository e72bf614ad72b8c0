// Members of a family with one list of kernels, and what they foretell of others. The members' values are kept once for
// each sequence of them: 42,000 lanes of a decoding step have 48 (docs/FAMILIES.md).
// Core: no CUDA, no Python. Not shared between threads. Throws std::bad_alloc only.
#pragma once

#include <cstdint>
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

  // `observed` is one that it holds. Formulas that were wrong about it are dropped. `learns`: learn() follows.
  void add(const Observed& observed, Numbers numbers, bool learns = true);
  // Looks for missing formulas. After a search in vain, again with half as many members more.
  void learn();

  // Kernels' handles are the first member's. `unknown`: slots whose values are not foretold: no formula, or none for
  // these numbers. They have the first member's values, and so have words in which members refer to different memory.
  struct Foretold {
    program::Program program;
    std::vector<std::int64_t> beside;
    std::vector<Slot> unknown;
  };
  Foretold foretell(const Numbers& numbers) const;
  bool knows_all(const Numbers& numbers) const;  // is nothing unknown of a call with these numbers?

  // Where an observed call is not the one that is foretold.
  struct Differences {
    bool empty() const { return slots.empty() && noise.empty(); }  // all of it was foretold

    std::vector<Slot> slots;  // those without a formula as well, but for steady ones
    // Words that may be padding, with all bytes that varied. Ascending.
    std::vector<program::NoiseWord> noise;
    std::vector<program::NoiseWord> first;  // of observe_again(): those of `noise` that never differed so before
    std::size_t steady = 0;                 // slots without a formula that are a function of the numbers nevertheless
  };
  Differences differences(const Observed& observed, const Numbers& numbers) const;

  // Another call with a member's numbers, against that member. `member`: its number, in the order of adding. Bytes that
  // differ and may be padding are no function of numbers: no formula foretells their lane any more. `counts`: other
  // calls were between. What is equal in kSteady members that count is steady, if it has two values at least.
  Differences observe_again(std::size_t member, const Observed& observed, bool counts);
  static constexpr std::size_t kSteady = 4;

  std::size_t member_count() const { return members_.size(); }
  const std::vector<Numbers>& members() const { return members_; }
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
  static constexpr std::uint32_t kConstant = ~0U, kNone = ~0U;

  std::vector<program::NoiseWord> noise_with(const Observed& observed) const;
  void split(const Observed& observed);
  // Of 42,000 lanes some hundreds. All others are in words that are constant, and as always in this call. Ascending.
  std::vector<std::uint32_t> slots_to_ask(const Observed& observed, const std::vector<program::NoiseWord>& noise) const;
  Observed first() const { return {base_, beside_, outside_}; }
  // May what differs in these bits of the slot be padding? Not of a word that refers to memory.
  bool may_be_padding(const Observed& observed, std::size_t slot, std::uint64_t bits) const;
  // Of a slot in which a new member is not what was foretold: the bytes of its word that have to be padding. A steady
  // one has none. No value: it cannot be padding.
  std::optional<std::uint8_t> unforetold_bytes(const Observed& observed, const std::vector<program::NoiseWord>& noise,
                                               std::size_t slot, std::int64_t value) const;
  // Do members that came again show a function of the numbers? May it have this value now? Bytes that differed in these
  // are left out. `refers`: members refer to different memory there.
  bool is_steady(std::size_t slot, bool refers, std::int64_t value) const;
  // Of a slot: its value. Where it refers to other memory than the first member's: which.
  std::int64_t content(const Observed& observed, const std::vector<program::NoiseWord>& noise, std::size_t slot) const;
  // The bits that differ among the members and `value`. Not of a word that refers to memory.
  std::uint64_t varied(std::size_t slot, std::int64_t value) const;
  std::int64_t value_of(std::size_t slot, std::size_t member) const;
  std::uint8_t unsteady_bytes(const Slot& slot) const;  // of its word, as far as they belong to it
  std::optional<std::int64_t> foretold(std::size_t slot, const Numbers& numbers) const;

  KernelIdentity identity_;
  program::Program base_;  // the first member's
  std::vector<std::int64_t> beside_;
  std::uint64_t outside_ = 0;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> sequence_of_;   // per slot; kConstant: as in `base_`
  std::vector<std::uint32_t> slot_of_word_;  // per word: its first one, or kNone.
  std::vector<std::uint32_t> beside_words_;  // slots in no word.
  std::vector<std::uint8_t> varies_;         // per word: 1: a slot in it is not constant.
  std::vector<std::uint8_t> unsteady_;       // per word: bytes that differed in calls with equal numbers
  std::vector<program::NoiseWord> noise_;    // members refer to different memory there, or some to none. Ascending
  std::vector<std::size_t> again_;           // members that came again
  std::vector<Sequence> sequences_;
  std::vector<Numbers> members_;
};

}  // namespace grape::families
