#include "python_hooks/replay/pause.h"

#include <algorithm>
#include <new>

#include "python_hooks/replay/run.h"
#include "python_hooks/replay/signature.h"
#include "shim/interpose/captures.h"
#include "shim/lifecycle/lifecycle.h"

namespace grape::python::replay {

GilPause::GilPause(Region& region, Proven* proven, const Call& call, bool keep) noexcept
    : region_(region), proven_(proven), call_(call), keep_(keep) {}

bool GilPause::begin() {
  if (keep_ && kept_.empty()) {
    try {
      kept_ = call_.walk->objects();
    } catch (const std::bad_alloc&) {
      return false;
    }
    for (Object* object : kept_) g_api.Py_IncRef(object);
  }
  asked_ = false;
  thread_ = g_api.PyEval_SaveThread();
  return true;
}

void GilPause::end() { g_api.PyEval_RestoreThread(thread_); }

bool GilPause::unchanged() {
  if (asked_) return true;
  asked_ = true;
  // Inert: what was freed since then is not known. Captures: the stream may be in one.
  if (!lifecycle::active() || interpose::g_captures.load() > 0) return false;
  try {
    return same_call();
  } catch (const std::bad_alloc&) {
    return false;
  }
}

bool GilPause::same_call() const {
  Why why;
  if (proven_ != nullptr && !guards_hold(*proven_, call_, why)) return false;
  if (!region_.guard->holds()) return false;
  state::Walk walk(false);
  Call call = call_;
  call.walk = &walk;
  const char* blocked = nullptr;
  if (!state::take_dispatch_state(call.dispatch, blocked) || !write_call(call, walk)) return false;
  write_sharing(region_, walk);
  return same_walk(walk) && (proven_ == nullptr || (shares_the_same(*proven_, call) && same_random_state()));
}

bool GilPause::same_random_state() const noexcept {
  if (proven_->program.head().random_increment == 0) return true;
  std::uint64_t seed = 0, offset = 0;
  return state::random_state(call_.dispatch.device, seed, offset) && seed == proven_->bindings.seed &&
         offset == proven_->bindings.offset;
}

// The same objects, not only equal ones, and their tensors' memory where it was.
bool GilPause::same_walk(const state::Walk& now) const noexcept {
  const auto same_extent = [](const state::StorageExtent& a, const state::StorageExtent& b) {
    return a.address == b.address && a.bytes == b.bytes;
  };
  const std::vector<state::StorageExtent>&before = call_.walk->extents(), &after = now.extents();
  return now.bytes() == call_.walk->bytes() && now.objects() == call_.walk->objects() &&
         std::equal(before.begin(), before.end(), after.begin(), after.end(), same_extent);
}

void GilPause::release() noexcept { drop(kept_); }

bool let_device_finish(Region& region, const Call& call, const std::vector<CUstream>& others) {
  GilPause pause(region, nullptr, call);
  grape::replay::let_finish(reinterpret_cast<CUstream>(call.dispatch.stream), others, grape::replay::kShortWait,
                            &pause);
  const bool unchanged = pause.unchanged();
  pause.release();
  return unchanged;
}

void let_call_finish(Region& region, const Call& call, const std::vector<CUstream>& others) {
  constexpr double kPatience = 0.2;
  GilPause pause(region, nullptr, call, false);
  grape::replay::let_finish(reinterpret_cast<CUstream>(call.dispatch.stream), others, kPatience, &pause);
  pause.release();
}

}  // namespace grape::python::replay
