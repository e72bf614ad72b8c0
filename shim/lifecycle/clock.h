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
inline double monotonic_seconds() noexcept { return static_cast<double>(nanoseconds(CLOCK_MONOTONIC)) * 1e-9; }

// Cheaper, and only as exact as the system's tick: some milliseconds.
inline std::int64_t coarse_milliseconds() noexcept {
  return static_cast<std::int64_t>(nanoseconds(CLOCK_MONOTONIC_COARSE) / 1'000'000);
}

}  // namespace grape
