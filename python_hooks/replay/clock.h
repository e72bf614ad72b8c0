// Seconds of a clock that only goes forward.
#pragma once

#include "shim/lifecycle/clock.h"

namespace grape::python::replay {

inline double now() noexcept { return monotonic_seconds(); }

// Tells how long the parts of something took, one after the other.
class Laps {
 public:
  explicit Laps(double begin) noexcept : last_(begin) {}
  void add_to(double& part) noexcept {
    const double time = now();
    part += time - last_;
    last_ = time;
  }

 private:
  double last_;
};

}  // namespace grape::python::replay
