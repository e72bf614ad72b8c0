// What looking may cost, of the whole process: modules' calls, modules inside of others, functions that nobody named,
// and backward passes share it. With the GIL.
#pragma once

#include <cstdint>

#include "python_hooks/replay/call_times.h"

namespace grape::python::replay {

// How the calls of one signature come: in turn, as in a loop, or at random. A loop's looks will be paid back.
class Rhythm {
 public:
  // `number`: of the call, among all of the region's, from 1 on. `now`: when it began.
  void note(std::uint64_t number, double now) noexcept;
  // How often it came again after as many calls as the time before; 0: it came otherwise, or too seldom to tell.
  std::uint32_t steady() const noexcept { return steady_; }
  // Seconds that a loop's looks are lent: as long as it has been one, with `call` the time that its call takes. 0: it
  // is none.
  double lends(double call) const noexcept;

 private:
  static constexpr std::uint64_t kLongest = 4;  // calls in turn
  std::uint64_t last_ = 0, distance_ = 0;
  double began_ = 0, turn_ = 0;  // of the last one; from the one before to that
  std::uint32_t steady_ = 0;
};

// What looks at a region's calls cost beside the calls, in seconds: the worst of the latest.
struct LookCosts {
  double first = 0;  // of a signature
  double proof = 0;  // of a call that was observed before: its program runs in a shadow
  double pass = 0;   // of a backward pass

  static void note(double& worst, double seconds) noexcept;
};

// What was spent, less what replays have gained since, is at most 4.5% of the time that the program would have
// taken without Grape, or 25 ms (LookLimits). docs/replay/observation.md says more.
class LookBudget {
 public:
  // Told at each call, before affords(). `loads`: how often the driver has loaded code. If it has since the last call,
  // at most 0.1 s of that time counts. A first call takes seconds, and later ones do not.
  static void note_time(double now, std::uint64_t loads) noexcept;
  // May a look begin that costs `cost`, as far as is known? `lent`: so much more may be owed, as it is a loop's.
  // `part`: of the budget, from 0 to 1.
  static bool affords(double now, double cost = 0, double lent = 0, double part = 1) noexcept;
  static void spend(double seconds) noexcept;
  // After a replay that took so long: the seconds of the CPU that it saved; 0: none, as far as is known.
  static double earn(const CallTimes& times, double replay_seconds) noexcept;
  // A call that was not replayed began. `idle`: the device had nothing to do. Time of the CPU that is saved while the
  // device is busy is no gain.
  static void note_device(bool idle) noexcept;
};

}  // namespace grape::python::replay
