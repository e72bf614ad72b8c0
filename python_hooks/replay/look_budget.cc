#include "python_hooks/replay/look_budget.h"

#include <algorithm>
#include <utility>

#include "python_hooks/replay/look_limits.h"

namespace grape::python::replay {
namespace {

constexpr double kShare = 0.045;      // of the time that the program would have taken without Grape
constexpr double kMostSaved = 1;      // seconds that may be gained beforehand
constexpr double kReinvested = 0.8;   // of what replays gain
constexpr double kForgets = 0.9;      // how a worst cost fades, look by look
constexpr double kMostLoading = 0.1;  // seconds that count of the time between two calls in which code was loaded

// With the GIL. In seconds.
struct Account {
  double plain = 0;              // what the program would have taken without Grape, up to the last call
  double noted = -1;             // when that call began
  std::uint64_t loads = 0;       // of code, until then
  double spent = 0, gained = 0;  // since then
  double owed = 0;               // what was spent and is not gained yet; negative: the other way round
  double idle = 1, busy = 0;     // calls that found the device so
};
Account g_account;

}  // namespace

void Rhythm::note(std::uint64_t number, double now) noexcept {
  const std::uint64_t distance = number - last_;
  const bool in_turn = last_ != 0 && distance == distance_ && distance <= kLongest;
  steady_ = in_turn ? steady_ + 1 : 0;
  distance_ = last_ != 0 ? distance : 0;
  last_ = number;
  turn_ = now - std::exchange(began_, now);
}

double Rhythm::lends(double call) const noexcept {
  constexpr double kMostCalls = 8;  // of a turn: what is beside the call may be a pause
  return steady_ == 0 || call == CallTimes::kNone ? 0 : (steady_ + 1) * std::min(turn_, kMostCalls * call);
}

void LookCosts::note(double& worst, double seconds) noexcept { worst = std::max(seconds, worst * kForgets); }

void LookBudget::note_time(double now, std::uint64_t loads) noexcept {
  Account& account = g_account;
  if (account.noted >= 0) {
    const double plain = now - account.noted - account.spent + account.gained;
    account.plain += loads == account.loads ? plain : std::min(plain, kMostLoading);
  }
  account.noted = now;
  account.loads = loads;
  account.spent = account.gained = 0;
}

bool LookBudget::affords(double now, double cost, double lent, double part) noexcept {
  const Account& account = g_account;
  const double plain = account.plain + now - account.noted - account.spent + account.gained;
  const double budget = part * std::max(g_look_limits.looks_at_first, kShare * plain);
  return account.owed + cost <= budget + lent;
}

void LookBudget::spend(double seconds) noexcept {
  g_account.spent += seconds;
  g_account.owed += seconds;
}

double LookBudget::earn(const CallTimes& times, double replay_seconds) noexcept {
  const double plain = times.as_always();
  if (plain == CallTimes::kNone || plain <= replay_seconds) return 0;
  const double saved = plain - replay_seconds;
  const double gain = saved * g_account.idle / (g_account.idle + g_account.busy);
  g_account.gained += gain;
  g_account.owed = std::max(g_account.owed - kReinvested * gain, -kMostSaved);
  return saved;
}

void LookBudget::note_device(bool idle) noexcept {
  constexpr double kRemembered = 0.98;  // of some fifty calls
  g_account.idle *= kRemembered;
  g_account.busy *= kRemembered;
  (idle ? g_account.idle : g_account.busy) += 1;
}

}  // namespace grape::python::replay
