// The programs of one skeleton of signatures, and whether a call that was observed once is proven by being what the
// others foretell. Each rule was found by an attack on simpler ones (docs/FAMILIES.md):
//
//   - The first member of a regime proves nothing.
//   - Each slot of the call's program is constant, has a formula, or is known to be padding.
//   - Words that may be padding may be steady instead. Four signatures came again, and these words with them. They had
//     two values at least.
//   - In the regime two signatures came again, with other calls between, and were the same. Else a counter of calls
//     looks like a function of a length. Bytes that may be padding may differ; they have to be known for it then.
//   - A signature that came again and was another program ends the family's right for good. Words that may be padding
//     make no other program.
//   - What was proven rests on bytes that may be padding. Once these differ between two calls with equal numbers, it
//     has to come twice.
//   - The first members of a regime need a shadow run as well, and later one of sixteen.
//
// Core: no CUDA, no Python. Not shared between threads. Throws std::bad_alloc only.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "compressor/families/regime.h"

namespace grape::families {

// Those bytes of `noise` that no shadow run has shown to be padding.
using UnknownPadding = std::function<std::vector<program::NoiseWord>(const program::Program& program,
                                                                     const std::vector<program::NoiseWord>& noise)>;

class Family {
 public:
  static constexpr std::size_t kRepetitions = 2, kShadowed = 4, kSampled = 16;
  // Calls beyond these are no members: a regime of a decoding step keeps a megabyte.
  static constexpr std::size_t kMostRegimes = 32;
  // Of all members' signatures. Some have thousands of numbers.
  static constexpr std::size_t kMostNumbers = std::size_t{1} << 20;

  explicit Family(KernelIdentity identity = nullptr) : identity_(std::move(identity)) {}

  struct Answer {
    bool repeats = false;      // its signature was observed before
    bool foretold = false;     // the regime's other members foretell this program
    bool proves = false;       // and that stands for a second call,
    bool needs_shadow = true;  // together with a shadow run
    // Where it is not what was foretold, or not what it was before.
    std::vector<Slot> differences;            // no padding
    std::vector<program::NoiseWord> unknown;  // may be padding, and is not known to be
    std::size_t steady = 0;                   // Regime::Differences::steady
    // Bytes that what was proven so far rests on are no function of the numbers, and not known to be padding.
    bool takes_back = false;
  };
  // `call`: its number among all calls, those that were replayed or not looked at as well. Ascending.
  // `did_more`: a library loaded code for it. Such a call may do what comes once only. It is a member if the others
  // foretell it, and teaches nothing.
  Answer observe(const Observed& observed, const Numbers& numbers, std::uint64_t call, const UnknownPadding& unknown,
                 bool did_more = false);
  // May the next call be proven? Else nothing has to be copied for it.
  bool may_prove() const;

  bool is_lost() const { return lost_; }  // its right to prove
  void end_right() { lost_ = true; }      // one of its calls did what no program tells
  std::size_t regime_count() const { return states_.size(); }
  // Programs that were foretold, and others where the regime had a value for each slot.
  std::uint64_t right_count() const { return right_; }
  std::uint64_t wrong_count() const { return wrong_; }

 private:
  struct State {
    Regime regime;
    std::size_t repetitions = 0;  // signatures that came again
    std::size_t proved = 0;
  };
  struct Member {
    std::size_t state = 0, number = 0;  // in its regime
    std::uint64_t call = 0;             // in which it was observed last
    bool repeated = false;
  };

  std::size_t state_of(const Observed& observed, const Numbers& numbers) const;  // states_.size(): none
  void observe_again(const Observed& observed, std::uint64_t call, Member& member, const UnknownPadding& unknown,
                     Answer& answer);

  KernelIdentity identity_;
  std::deque<State> states_;
  std::map<Numbers, Member> members_;
  std::size_t number_count_ = 0;
  bool lost_ = false;
  std::uint64_t right_ = 0, wrong_ = 0;
};

}  // namespace grape::families
