#include "python_hooks/replay/gil_release.h"

#include <algorithm>
#include <new>
#include <utility>

#include "python_hooks/replay/casts.h"
#include "python_hooks/replay/clock.h"
#include "python_hooks/replay/optimizer_numbers.h"
#include "python_hooks/replay/proof_guards.h"
#include "python_hooks/replay/run.h"
#include "python_hooks/replay/signature.h"
#include "shim/driver/captures.h"
#include "shim/lifecycle/lifecycle.h"

namespace grape::python::replay {

GilRelease::GilRelease(Region& region, Proven* proven, const Call& call, bool keep,
                       device::ContextScope* scope) noexcept
    : region_(region), proven_(proven), call_(call), keep_(keep), scope_(scope) {}

bool GilRelease::expect() noexcept {
  if (keep_ && kept_.empty()) {
    try {
      kept_ = call_.walk->objects();
    } catch (const std::bad_alloc&) {
      return false;
    }
    for (Object* object : kept_) g_api.Py_IncRef(object);
  }
  asked_ = false;
  return true;
}

bool GilRelease::begin() {
  if (!expect()) return false;
  thread_ = g_api.PyEval_SaveThread();
  return true;
}

void GilRelease::end() { g_api.PyEval_RestoreThread(thread_); }

bool GilRelease::unchanged() {
  if (asked_) return true;
  asked_ = true;
  // Inert: what was freed since then is not known. Captures: the stream may be in one.
  if (!lifecycle::active() || driver::g_captures.load() > 0) return false;
  if (scope_ != nullptr) scope_->leave();
  bool same = false;
  try {
    same = same_call();
  } catch (const std::bad_alloc&) {  // not known
  }
  if (scope_ != nullptr) scope_->again();
  return same && (scope_ == nullptr || scope_->entered());
}

bool GilRelease::same_call() const {
  if (!region_.evidence.guard->holds()) return false;
  walk::Walk walk(false);
  Call call = call_;
  call.walk = &walk;
  take_numbers(region_, call);
  if (call.numbers != call_.numbers) return false;
  refusal::Form<0> blocked;
  if (!torch::take_dispatch_state(call.dispatch, blocked) || !write_call(call, walk)) return false;
  if (!find_work_place(region_, call, walk) || !(call.work == call_.work)) return false;
  FoundCasts casts;
  if (!casts.write(region_, call, walk)) return false;
  write_sharing(region_, walk);
  return same_walk(walk) && (proven_ == nullptr || (broken_guard(*proven_, call) == nullptr && same_random_state()));
}

bool GilRelease::same_random_state() const noexcept {
  if (proven_->program.head().random_increment == 0) return true;
  std::uint64_t seed = 0, offset = 0;
  return torch::random_state(call_.work.device, seed, offset) && seed == proven_->bindings.seed &&
         offset == proven_->bindings.offset;
}

// The same objects, not only equal ones, and their tensors' memory where it was.
bool GilRelease::same_walk(const walk::Walk& now) const noexcept {
  const auto same_extent = [](const walk::StorageExtent& a, const walk::StorageExtent& b) {
    return a.address == b.address && a.bytes == b.bytes;
  };
  const std::vector<walk::StorageExtent>&before = call_.walk->extents(), &after = now.extents();
  return now.bytes() == call_.walk->bytes() && now.objects() == call_.walk->objects() &&
         std::equal(before.begin(), before.end(), after.begin(), after.end(), same_extent);
}

void GilRelease::release() noexcept { drop(kept_); }

namespace {

// How long streams may have work before a call runs as always. Some never end it (a kernel that stays, a wait for what
// this thread has yet to do): what is spent on these becomes less and less. With the GIL.
class Patience {
 public:
  static double seconds() noexcept { return seconds_; }
  static void note(bool idle) noexcept { seconds_ = idle ? kMost : std::max(seconds_ / 2, grape::replay::kShortWait); }

 private:
  static constexpr double kMost = 1;
  static double seconds_;
};
double Patience::seconds_ = Patience::kMost;

// On the device of the call's work, whose default stream is asked with the others.
// In turns: with the GIL, as other threads put nothing on streams then, for `held` seconds at first; and without it,
// since a function that the device calls may need it.
bool wait_until_idle(GilRelease& pause, const Call& call, double held) {
  const device::ContextScope scope(call.work.context);
  if (!scope.entered()) return false;
  constexpr double kTurn = 20e-3, kHeldLater = 5e-3;  // the latter: as long as Python lets a thread go on
  const double until = now() + Patience::seconds();
  bool idle = grape::observation::idle_within(std::min(held, Patience::seconds()));
  while (!idle && now() < until && pause.begin()) {
    grape::observation::idle_within(std::min(kTurn, until - now()));
    pause.end();
    idle = grape::observation::idle_within(kHeldLater);
  }
  Patience::note(idle);
  return idle;
}

}  // namespace

Settled let_device_finish(Region& region, const Call& call) {
  GilRelease pause(region, nullptr, call);
  const bool idle = wait_until_idle(pause, call, grape::replay::kShortWait);
  const bool unchanged = pause.unchanged();
  pause.release();
  if (!unchanged) return Settled::kChanged;
  return idle ? Settled::kIdle : Settled::kBusy;
}

std::unique_ptr<grape::observation::DeviceExclusion> quiet_after_call(Region& region, const Call& call) {
  constexpr double kHeld = 0.2, kSoon = 5e-3;
  GilRelease pause(region, nullptr, call, false);
  const bool idle = wait_until_idle(pause, call, kHeld);
  pause.release();
  if (!idle) return nullptr;
  const device::ContextScope scope(call.work.context);
  if (!scope.entered()) return nullptr;
  auto quiet = std::make_unique<grape::observation::DeviceExclusion>();
  return quiet->reached(kSoon) ? std::move(quiet) : nullptr;
}

}  // namespace grape::python::replay
