#include "shim/replay/quiet.h"

#include <errno.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "shim/interpose/captures.h"
#include "shim/interpose/real_driver.h"
#include "shim/lifecycle/clock.h"
#include "shim/lifecycle/log.h"
#include "shim/replay/live_blocks.h"

namespace grape::replay {
namespace real = interpose::real;
namespace {

// Others' calls wait for at most so long. A proof of a large model takes some 100 ms.
constexpr std::chrono::seconds kLongest{1};

// Never destroyed: threads may launch until the very end.
struct Gate {
  std::mutex mutex;
  std::condition_variable opened;
  std::uint64_t closed = 0;  // how often
  std::thread::id holder;
};
Gate& gate() {
  static auto& one = *new Gate;
  return one;
}

// Held while streams are asked, and by whoever is about to destroy one for a moment. Never destroyed, as above.
std::mutex& asking() {
  static auto& one = *new std::mutex;
  return one;
}

void pause_for(std::chrono::microseconds time) { std::this_thread::sleep_for(time); }

}  // namespace

bool streams_idle() noexcept {
  auto* query = real::get_cuStreamQuery();
  if (query == nullptr || interpose::g_captures.load() > 0) return false;
  const auto idle = [query](CUstream stream) { return query(stream) != CUDA_ERROR_NOT_READY; };
  const std::lock_guard<std::mutex> lock(asking());
  std::vector<std::uint64_t> streams;
  if (!LiveBlocks::instance().snapshot_streams(streams)) return false;
  return idle(CU_STREAM_LEGACY) && idle(CU_STREAM_PER_THREAD) &&
         std::all_of(streams.begin(), streams.end(),
                     [&](std::uint64_t stream) { return idle(reinterpret_cast<CUstream>(stream)); });
}

// Most work is done soon; for what is not this thread keeps no core busy, nor the driver's lock.
bool idle_within(double seconds) noexcept {
  constexpr double kShort = 1e-3;
  constexpr std::chrono::microseconds kPause{50};
  const double begun = monotonic_seconds();
  for (;;) {
    if (streams_idle()) return true;
    const double waited = monotonic_seconds() - begun;
    if (waited >= seconds) return false;
    if (waited >= kShort) pause_for(kPause);
  }
}

void stream_goes() noexcept { const std::lock_guard<std::mutex> lock(asking()); }

namespace detail {

std::atomic<bool> g_quiet{false};

void wait_for_end_of_quiet() noexcept {
  Gate& one = gate();
  std::unique_lock<std::mutex> lock(one.mutex);
  if (!g_quiet.load() || one.holder == std::this_thread::get_id()) return;
  const int saved_errno = errno;
  const std::uint64_t closed = one.closed;
  const bool opened = one.opened.wait_for(lock, kLongest, [&] { return !g_quiet.load() || one.closed != closed; });
  errno = saved_errno;
  if (opened) return;
  g_quiet.store(false);
  one.opened.notify_all();
  log_line(LogLevel::kDebug, "a proof holds up another thread for too long: that one goes on");
}

}  // namespace detail

Quiet::Quiet() noexcept {
  Gate& one = gate();
  const std::lock_guard<std::mutex> lock(one.mutex);
  if (detail::g_quiet.load()) return;
  held_ = true;
  ++one.closed;
  one.holder = std::this_thread::get_id();
  detail::g_quiet.store(true);
}

Quiet::~Quiet() {
  if (!held_) return;
  Gate& one = gate();
  const std::lock_guard<std::mutex> lock(one.mutex);
  if (one.holder != std::this_thread::get_id()) return;
  one.holder = {};
  detail::g_quiet.store(false);
  one.opened.notify_all();
}

bool Quiet::reached(double seconds) const noexcept {
  // A call of another thread that had passed the gate already is in the driver by then.
  constexpr std::chrono::microseconds kPassing{200};
  if (!held_) return false;
  pause_for(kPassing);
  return idle_within(seconds);
}

}  // namespace grape::replay
