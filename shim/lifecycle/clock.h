// Times of the system's clocks. Any thread.
#pragma once

#include <time.h>

#include <cstdint>

namespace grape {

inline std::uint64_t nanoseconds(clockid_t clock) noexcept {
  timespec time;
  clock_gettime(clock, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(time.tv_nsec);
}

// Of a clock that only goes forward, as are those below.
inline double monotonic_seconds() noexcept {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Cheaper, and only as exact as the system's tick: some milliseconds.
inline std::int64_t coarse_milliseconds() noexcept {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
  return std::int64_t{time.tv_sec} * 1000 + time.tv_nsec / 1000000;
}

}  // namespace grape
