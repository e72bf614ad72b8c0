// Seconds of a clock that only goes forward.
#pragma once

#include <time.h>

namespace grape::python::replay {

inline double now() noexcept {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace grape::python::replay
