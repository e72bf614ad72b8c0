// Decides how much longer a region's calls are looked at, and whether replaying them pays. Both follow from the CPU
// time that calls take up to their return, as always and as replays. The GPU does the same work in both. With the GIL.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "python_hooks/replay/call_times.h"
#include "python_hooks/replay/look_budget.h"
#include "python_hooks/replay/look_limits.h"

namespace grape::python::replay {

// One region's. Replays are taken to pay until they turn out to take most of what an observed call takes; then a few
// calls run as always and are measured. Where replaying is no faster, all calls run as always for a while, and it is
// looked at again.
class Payoff {
 public:
  // Asked at each call: run it as always, its children too?
  bool rests() noexcept;
  // Is this call, which could be replayed, to run as always and to be measured?
  bool measures() const noexcept { return to_measure_ != 0; }

  static void observed(CallTimes& times, double seconds) noexcept;
  void replayed(CallTimes& times, double seconds) noexcept;
  // True: it does not pay, and rests from now on; `eager` and `replay` are what the measured calls would take, in
  // seconds each.
  bool measured(CallTimes& times, double seconds, double& eager, double& replay) noexcept;

  std::uint64_t rested() const noexcept { return rested_; }  // calls that ran as always for it
  // It did not pay, was looked at again, and does not.
  bool never_pays() const noexcept { return next_rest_ > 4 * kFirstRest; }

 private:
  static constexpr std::uint32_t kFirstLook = 16, kLastLook = 1u << 16;
  static constexpr std::uint32_t kMeasured = 4;
  static constexpr std::uint32_t kFirstRest = 512, kLastRest = 1u << 20;

  std::uint32_t look_after_ = kFirstLook;  // replays
  std::uint32_t replays_ = 0;              // since the last look
  double seconds_ = 0, eager_seconds_ = 0;
  std::uint32_t to_measure_ = 0;
  double measured_eager_ = 0, measured_replay_ = 0;
  std::uint32_t rest_ = 0, next_rest_ = kFirstRest;  // calls
  std::uint64_t rested_ = 0;
};

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

// How often something of a region's calls, on which replays depend, came as the time before, or otherwise.
class Alike {
 public:
  void note(bool alike) noexcept { ++(alike ? alike_ : otherwise_); }
  // Was it otherwise in more than one call of five? Then replays of what is inside gain more.
  bool differs(std::uint64_t replayed) const noexcept {
    return otherwise_ >= kMostOtherwise && otherwise_ * 4 > replayed + alike_;
  }

 private:
  static constexpr std::uint64_t kMostOtherwise = 3;
  std::uint64_t otherwise_ = 0, alike_ = 0;
};

// What a region's calls decide by random numbers. Calls with other arguments mostly decide as often. So it is known
// before any signature came twice that their outcomes differ.
class Decided {
 public:
  // Of an observed call of any signature.
  void observed(std::vector<bool> outcomes) noexcept {
    if (outcomes.size() == last_.size() && !outcomes.empty()) outcomes_.note(outcomes == last_);
    last_ = std::move(outcomes);
  }
  // A call of a proven signature was no replay for it.
  void decided_otherwise() noexcept { outcomes_.note(false); }
  bool differ(std::uint64_t replayed) const noexcept { return outcomes_.differs(replayed); }

 private:
  std::vector<bool> last_;
  Alike outcomes_;
};

// One region's.
struct Budget {
  Payoff payoff;
  Decided decided;
  Alike read;                         // values that the host reads, in observed calls of one signature
  Rest refusals;                      // from calls with arguments that cannot be looked through
  std::shared_ptr<LookCosts> costs;   // null: no call was looked at. Shared with passes that are observed
  double lent = 0;                    // seconds that the latest call's rhythm lends (LookBudget)
  double recording = 0;               // seconds that observed calls took longer than they would have
  bool promises = false;              // a call was proven
  double searched = 0, saved = 0;     // seconds: of calls that were looked up for nothing; that replays took less
  bool useful = false;                // an observation of one of its calls was of use
  std::uint32_t failures = 0;         // observations in a row that were of no use, first ones of a signature aside
  std::uint32_t refused = 0;          // calls in a row with arguments that cannot be looked through
  std::uint32_t guard_refusals = 0;   // calls in a row whose module could not be guarded
  std::uint32_t self_changes = 0;     // observed calls that changed the module
  std::uint32_t states = 0;           // calls in a row whose module, which is an argument, was a new one
  std::uint32_t since_validated = 0;  // replays since the last check
  std::uint32_t foretold = 0;         // calls of signatures that their family proved
  std::uint32_t disturbed = 0;        // checks in a row of no use, as other threads worked meanwhile
  std::uint32_t barren = 0;           // calls in a row that were looked at, and by which nothing was gained
  std::uint64_t gained_at = 0;        // observed calls when something was gained last

  // Of a region that nobody asked for, `observed` calls of which were observed: calls in a row that gained nothing.
  bool gains_little() const noexcept { return barren >= kBarren; }
  bool gains_nothing(std::uint64_t observed) const noexcept {
    return barren >= kMostBarren || observed - gained_at >= kMostBarrenObserved;
  }
  // A call was proven: it is looked up from now on.
  void proven() noexcept {
    promises = true;
    searched = 0;
  }
  // Do its replays pay for looking its other calls up, or may they?
  bool pays() const noexcept { return promises && saved >= searched; }
  void gained(std::uint64_t observed) noexcept {
    barren = 0;
    gained_at = observed;
  }

 private:
  static constexpr std::uint32_t kBarren = 16;                // from then on there is a budget for them
  static constexpr std::uint32_t kMostBarren = 4096;          // it is no region any more
  static constexpr std::uint32_t kMostBarrenObserved = 1024;  // the same, if they were observed
};

// Modules of one class, inside of others, mostly fare alike: the layers of a model. Several looks without a proof make
// looks at the others ever more seldom.
class Siblings {
 public:
  // Asked at each call. `type`: the class, never followed. Throws std::bad_alloc.
  static bool worth_a_look(const void* type);
  // A look was refused. `passing`: the next one may not be (refusal::is_passing). Throws std::bad_alloc.
  static void refused(const void* type, bool passing = false);
  static void proven(const void* type);

  static constexpr std::uint32_t kRefused = 4;   // looks of a class, from then on calls are left out
  static constexpr std::uint32_t kPassing = 16;  // refusals in passing are worth one that lasts
  static constexpr std::uint32_t kFirstLeft =
      128;  // calls of all of the class between two looks, twice as many each time
};

}  // namespace grape::python::replay
