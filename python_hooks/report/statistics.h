// What became of a region's calls, in numbers and in times as the host sees them. For the report; with the GIL.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>

namespace grape::python::report {

// Signatures by stage.
struct StageCounts {
  std::size_t seen = 0, observed = 0, proven = 0, given_up = 0;
};

struct Statistics {
  std::uint64_t observed = 0, replayed = 0;
  std::uint64_t validated = 0;    // replays that were checked, and found good
  std::uint64_t first_calls = 0;  // ran as always because their signature had not come often enough
  std::uint64_t put_off = 0;      // ran as always because looking at them would have cost too much
  StageCounts signatures;         // of a region: that are not there any more
};

// A function that launches outside of regions.
struct OutsideFunction {
  std::string region;  // as GRAPE_REGIONS names it
  std::string place;   // where it is defined
  double share = 0;    // of the launches outside of regions
};

// Where a replay's time on the CPU goes (docs/replay/report.md, `replay_us`).
enum class ReplayPart : std::uint8_t {
  kSignature,  // arguments and dispatch state
  kGuards,     // module, globals, arguments
  kOutputs,    // their memory
  kPatches,    // addresses that moved
  kLaunch,
  kWait,     // for values that the host reads
  kResults,  // their objects
  kFreed,    // what these replaced comes to its end, as in the call itself
  kAhead,    // what the next replay needs, while the GPU works on this one
};
constexpr const char* kReplayPartNames[] = {"signature", "guards",  "outputs", "patches", "launch",
                                            "wait",      "results", "freed",   "ahead"};
constexpr std::size_t kReplayParts = std::size(kReplayPartNames);

// Seconds, of one replay or of several.
struct ReplayParts {
  double seconds[kReplayParts] = {};
  double& operator[](ReplayPart part) noexcept { return seconds[static_cast<std::size_t>(part)]; }
};

// The latest values of something that is measured again and again.
class Latest {
 public:
  void add(double value) noexcept { latest_[count_++ % kKept] = static_cast<float>(value); }
  // 0: none.
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

// The parts of the latest replays.
class LatestParts {
 public:
  void add(const ReplayParts& replay) noexcept {
    for (std::size_t i = 0; i < kReplayParts; ++i) latest_[i].add(replay.seconds[i]);
  }
  ReplayParts median() const noexcept {
    ReplayParts result;
    for (std::size_t i = 0; i < kReplayParts; ++i) result.seconds[i] = latest_[i].median();
    return result;
  }

 private:
  Latest latest_[kReplayParts];
};

struct Times {
  enum class Kind : std::uint8_t { kOther, kEager, kReplay };

  Kind kind = Kind::kOther;                      // of the last call
  double began = 0;                              // that call
  double all = 0;                                // seconds in calls, of whatever kind, what Grape does included
  double eager = 0, observed = 0, replayed = 0;  // inside the call itself, up to its return
  std::uint64_t eager_calls = 0, observed_calls = 0;
  // From the begin of such a call to the begin of the next one: a call may return before its work on the GPU is done;
  // from begin to begin counts what the program waits for, and what it does in between.
  Latest eager_intervals, replay_intervals;

  // At each call's begin: the last one's interval ends.
  void begin(double now) noexcept {
    if (kind == Kind::kEager) eager_intervals.add(now - began);
    if (kind == Kind::kReplay) replay_intervals.add(now - began);
    began = now;
  }
};

}  // namespace grape::python::report
