// The shortest calls of one signature, in seconds: what disturbs a call makes it longer, never shorter.
#pragma once

#include <limits>

namespace grape::python::replay {

// Of an observed call's time: what the call takes at least unobserved.
constexpr double kOfObserved = 0.6;
// What recording takes of it, where nothing else is known.
constexpr double kRecording = 0.3;

struct CallTimes {
  static constexpr double kNone = std::numeric_limits<double>::infinity();
  double eager = kNone;     // as always
  double observed = kNone;  // as always, but looked at: somewhat more
  double replay = kNone;    // all that the replay takes, guards included

  // As always, as far as is known; kNone: it is not.
  double as_always() const noexcept { return eager < observed * kOfObserved ? eager : observed * kOfObserved; }
};

}  // namespace grape::python::replay
