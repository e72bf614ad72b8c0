#include "python_hooks/replay/budget.h"

#include <algorithm>
#include <unordered_map>

namespace grape::python::replay {
namespace {

constexpr double kFaster = 0.95;

// With the GIL. Of one class.
struct Looks {
  std::uint32_t refused = 0;  // in passing; one that lasts counts as kPassing of these
  std::uint32_t left_out = 0, next = Siblings::kFirstLeft;
  bool proven = false;
};
Looks& looks_of(const void* type) {
  static auto& looks = *new std::unordered_map<const void*, Looks>;
  return looks[type];
}

}  // namespace

bool Payoff::rests() noexcept {
  if (rest_ == 0) return false;
  --rest_;
  ++rested_;
  return true;
}

void Payoff::observed(CallTimes& times, double seconds) noexcept { times.observed = std::min(times.observed, seconds); }

void Payoff::replayed(CallTimes& times, double seconds) noexcept {
  times.replay = std::min(times.replay, seconds);
  seconds_ += times.replay;  // one that was disturbed says nothing
  eager_seconds_ += std::min(times.eager, times.observed);
  if (++replays_ < look_after_) return;
  if (seconds_ >= kOfObserved * eager_seconds_) to_measure_ = kMeasured;
  look_after_ = std::min(look_after_ * 2, kLastLook);
  replays_ = 0;
  seconds_ = eager_seconds_ = 0;
  measured_eager_ = measured_replay_ = 0;
}

bool Payoff::measured(CallTimes& times, double seconds, double& eager, double& replay) noexcept {
  times.eager = std::min(times.eager, seconds);
  if (times.replay == CallTimes::kNone) return false;  // nothing to compare it with
  measured_eager_ += times.eager;
  measured_replay_ += times.replay;
  if (--to_measure_ != 0) return false;
  if (measured_replay_ < kFaster * measured_eager_) return false;
  eager = measured_eager_ / kMeasured;
  replay = measured_replay_ / kMeasured;
  rest_ = next_rest_;
  next_rest_ = std::min(next_rest_ * 4, kLastRest);
  look_after_ = kFirstLook;
  return true;
}

bool Siblings::worth_a_look(const void* type) {
  constexpr std::uint32_t kMostLeft = 1u << 20;
  Looks& looks = looks_of(type);
  if (looks.proven || looks.refused < kRefused * kPassing) return true;
  if (++looks.left_out < looks.next) return false;
  looks.left_out = 0;
  looks.next = std::min(looks.next * 2, kMostLeft);
  return true;
}

void Siblings::refused(const void* type, bool passing) { looks_of(type).refused += passing ? 1 : kPassing; }

void Siblings::proven(const void* type) { looks_of(type).proven = true; }

}  // namespace grape::python::replay
