// A module's times as the host sees them, for the report. With the GIL.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace grape::python::replay {

// The latest intervals between the begins of two calls, of which the first was of one kind. A call may return before
// its work on the GPU is done; from begin to begin counts what the program waits for, and what it does in between.
class Intervals {
 public:
  void add(double seconds) noexcept { latest_[count_++ % kKept] = static_cast<float>(seconds); }
  // Seconds; 0: none.
  double median() const noexcept {
    const std::size_t kept = std::min<std::size_t>(count_, kKept);
    if (kept == 0) return 0;
    float sorted[kKept];
    std::copy(latest_, latest_ + kept, sorted);
    std::nth_element(sorted, sorted + kept / 2, sorted + kept);
    return static_cast<double>(sorted[kept / 2]);
  }

 private:
  static constexpr std::size_t kKept = 32;
  std::uint64_t count_ = 0;
  float latest_[kKept] = {};
};

struct Times {
  enum class Kind : std::uint8_t { kOther, kEager, kReplay };

  double all = 0;                                // seconds in calls, of whatever kind, what Grape does included
  double eager = 0, observed = 0, replayed = 0;  // inside the call itself, up to its return
  std::uint64_t eager_calls = 0, observed_calls = 0;
  Intervals eager_intervals, replay_intervals;

  // At each call's begin: the last one's interval ends.
  void begin(double now) noexcept {
    if (kind == Kind::kEager) eager_intervals.add(now - began);
    if (kind == Kind::kReplay) replay_intervals.add(now - began);
    kind = Kind::kOther;
    began = now;
  }
  Kind kind = Kind::kOther;  // of the last call
  double began = 0;
};

}  // namespace grape::python::replay
