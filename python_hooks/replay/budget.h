// How much longer a region's calls are looked at: counts of looks that were of no use, and rests from them. With the
// GIL.
#pragma once

#include <cstdint>

#include "python_hooks/replay/look_limits.h"
#include "python_hooks/replay/payoff.h"

namespace grape::python::replay {

// Calls of a kind that cannot be replayed are looked at again ever more seldom. In between they run as always, what is
// inside may be replayed.
class Rest {
 public:
  bool rests() noexcept { return left_ != 0 && left_-- != 0; }  // asked at each call of that kind
  bool resting() const noexcept { return left_ != 0; }
  bool began() const noexcept { return next_ != 0; }
  void begin() noexcept {
    left_ = began() ? next_ : g_look_limits.first_rest;
    next_ = left_ < kLast ? left_ * 4 : kLast;
  }

 private:
  static constexpr std::uint32_t kLast = 1u << 18;  // calls
  std::uint32_t left_ = 0, next_ = 0;               // next_: 0: it never began
};

// One region's.
struct Budget {
  Payoff payoff;
  Rest refusals;                      // from calls with arguments that cannot be looked through
  bool useful = false;                // an observation of one of its calls was of use
  std::uint32_t failures = 0;         // observations in a row that were of no use
  std::uint32_t refused = 0;          // calls in a row with arguments that cannot be looked through
  std::uint32_t guard_refusals = 0;   // calls in a row whose module could not be guarded
  std::uint32_t self_changes = 0;     // observed calls that changed the module
  std::uint32_t states = 0;           // calls in a row whose module, which is an argument, was a new one
  std::uint32_t since_validated = 0;  // replays since the last check
  std::uint32_t disturbed = 0;        // checks in a row of no use, as other threads worked meanwhile
  std::uint32_t barren = 0;           // calls in a row that were looked at, and by which nothing was gained
  std::uint64_t gained_at = 0;        // observed calls when something was gained last

  // Of a region that nobody asked for, `observed` calls of which were observed: calls in a row that gained nothing.
  bool gains_little() const noexcept { return barren >= kBarren; }
  bool gains_nothing(std::uint64_t observed) const noexcept {
    return barren >= kMostBarren || observed - gained_at >= kMostBarrenObserved;
  }
  void gained(std::uint64_t observed) noexcept {
    barren = 0;
    gained_at = observed;
  }

 private:
  static constexpr std::uint32_t kBarren = 16;                // from then on there is a budget for them
  static constexpr std::uint32_t kMostBarren = 4096;          // it is no region any more
  static constexpr std::uint32_t kMostBarrenObserved = 1024;  // the same, if they were observed
};

}  // namespace grape::python::replay
