#include "shim/observation/device_exclusion.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "shim/driver/captures.h"
#include "shim/driver/real_driver.h"
#include "shim/lifecycle/clock.h"
#include "shim/lifecycle/hot.h"
#include "shim/lifecycle/log.h"
#include "shim/memory/live_blocks.h"

namespace grape::observation {
namespace real = driver::real;
namespace {

using detail::ThreadWork;

// Others' calls wait for at most so long. A proof of a large model takes some 100 ms.
constexpr std::chrono::seconds kLongest{1};
constexpr std::chrono::microseconds kPause{50};

struct Gate {
  std::mutex mutex;
  std::condition_variable opened;
  bool closed = false;
  std::uint64_t times_closed = 0;
  const void* holder = nullptr;  // see whose_work()
};

struct Threads {
  std::mutex mutex;
  ThreadWork* all = nullptr;  // by next
  std::vector<ThreadWork*> free;
};

// Never destroyed: threads may launch until the very end.
struct Process {
  Gate gate;
  Threads threads;
  std::mutex asking;  // held while streams are asked, and by whoever is about to destroy one for a moment
};
Process& process() {
  static auto& one = *new Process;
  return one;
}

// With the lock held.
void open(Gate& one) noexcept {
  one.closed = false;
  one.holder = nullptr;
  detail::g_excluded.store(false);
  one.opened.notify_all();
}

// The call that the thread works for; the thread itself where it works for none.
const void* whose_work() noexcept {
  const CallScope* call = CallScope::current();
  return call != nullptr ? static_cast<const void*>(call) : &record::t_thread;
}

// A thread may end inside of a call.
void ended(void* work) {
  auto* mine = static_cast<ThreadWork*>(work);
  mine->depth = 0;
  if (mine->calls.load() % 2 != 0) mine->calls.fetch_add(1);
  record::t_thread.work = nullptr;
  Threads& all = process().threads;
  const std::lock_guard<std::mutex> lock(all.mutex);
  try {
    all.free.push_back(mine);
  } catch (const std::bad_alloc&) {
    // it is nobody's, and even
  }
}

pthread_key_t* end_key() {
  static pthread_key_t key;
  static const bool made = pthread_key_create(&key, ended) == 0;
  return made ? &key : nullptr;
}

// Those of all threads but this one. `under_way`: is one of them inside of a call?
std::uint64_t calls_of_others(bool& under_way) noexcept {
  Threads& all = process().threads;
  const std::lock_guard<std::mutex> lock(all.mutex);
  std::uint64_t calls = 0;
  under_way = false;
  for (const ThreadWork* one = all.all; one != nullptr; one = one->next) {
    if (one == detail::this_work()) continue;
    const std::uint64_t its = one->calls.load(std::memory_order_acquire);
    calls += its;
    under_way = under_way || its % 2 != 0;
  }
  return calls;
}

// Every other thread either has seen what this one stored, or what it stored itself before is seen by this one.
void meet_all_threads() noexcept {
  static const bool known = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0) == 0;
  if (known && syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0) == 0) return;
  // Stores do not stay in a core for so long.
  constexpr std::chrono::microseconds kLong{200};
  std::this_thread::sleep_for(kLong);
}

// Most is so soon; for what is not this thread keeps no core busy, nor the driver's lock.
template <class Condition>
bool holds_within(double seconds, const Condition& condition) {
  constexpr double kShort = 1e-3;
  const double begun = monotonic_seconds();
  for (;;) {
    if (condition()) return true;
    const double waited = monotonic_seconds() - begun;
    if (waited >= seconds) return false;
    if (waited >= kShort) std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

bool streams_idle() noexcept {
  auto* query = real::get_cuStreamQuery();
  if (query == nullptr || driver::g_captures.load() > 0) return false;
  const auto idle = [query](CUstream stream) { return query(stream) != CUDA_ERROR_NOT_READY; };
  const std::lock_guard<std::mutex> lock(process().asking);
  std::vector<std::uint64_t> streams;
  if (!memory::LiveBlocks::instance().snapshot_streams(streams)) return false;
  return idle(CU_STREAM_LEGACY) && idle(CU_STREAM_PER_THREAD) &&
         std::all_of(streams.begin(), streams.end(),
                     [&](std::uint64_t stream) { return idle(reinterpret_cast<CUstream>(stream)); });
}

bool has_work(std::uint64_t stream) noexcept {
  auto* query = real::get_cuStreamQuery();
  return query != nullptr && driver::g_captures.load() == 0 &&
         query(reinterpret_cast<CUstream>(stream)) == CUDA_ERROR_NOT_READY;
}

bool idle_within(double seconds) noexcept { return holds_within(seconds, streams_idle); }

void stream_goes() noexcept { const std::lock_guard<std::mutex> lock(process().asking); }

namespace detail {

GRAPE_HOT std::atomic<bool> g_excluded{false};

ThreadWork* first_work() noexcept {
  Threads& all = process().threads;
  const std::lock_guard<std::mutex> lock(all.mutex);
  pthread_key_t* key = end_key();
  if (all.free.empty()) {
    auto* made = new (std::nothrow) ThreadWork;
    if (made == nullptr) return nullptr;
    made->next = all.all;
    all.all = made;
    record::t_thread.work = made;
  } else {
    record::t_thread.work = all.free.back();
    all.free.pop_back();
  }
  if (key != nullptr) pthread_setspecific(*key, record::t_thread.work);
  return this_work();
}

void wait_for_end_of_exclusion(ThreadWork& mine) noexcept {
  Gate& one = process().gate;
  const int saved_errno = errno;
  std::unique_lock<std::mutex> lock(one.mutex);
  while (one.closed && one.holder != whose_work()) {
    const std::uint64_t times = one.times_closed;
    mine.calls.fetch_add(1);  // not inside of the call, as long as it waits
    const bool opened = one.opened.wait_for(lock, kLongest, [&] { return !one.closed || one.times_closed != times; });
    mine.calls.fetch_add(1);
    if (opened) continue;
    open(one);
    log_line(LogLevel::kDebug, "a proof holds up another thread for too long: that one goes on");
  }
  errno = saved_errno;
}

}  // namespace detail

Onlooker::Onlooker() noexcept : call_(CallScope::current()) {
  detail::work_of_thread();  // so that this thread's own is known
  calls_ = calls_of_others(under_way_);
  if (call_ == nullptr || call_->follow(*this)) return;
  call_ = nullptr;
  under_way_ = true;  // which threads are others is not known
}

Onlooker::~Onlooker() {
  if (call_ != nullptr) call_->unfollow(*this);
}

bool Onlooker::attached() noexcept {
  detail::ThreadWork* work = detail::work_of_thread();
  if (work != nullptr) work->calls_when_attached = work->calls.load();
  return work != nullptr;
}

void Onlooker::detached() noexcept {
  const detail::ThreadWork* work = detail::this_work();
  calls_ += work->calls.load() - work->calls_when_attached;  // these were the call's
}

bool Onlooker::others_worked() const noexcept {
  bool under_way = false;
  return calls_of_others(under_way) != calls_ || under_way_;
}

DeviceExclusion::DeviceExclusion() noexcept {
  {
    Gate& one = process().gate;
    const std::lock_guard<std::mutex> lock(one.mutex);
    if (one.closed) return;
    held_ = one.closed = true;
    ++one.times_closed;
    one.holder = whose_work();
    detail::g_excluded.store(true);
  }
  meet_all_threads();
}

DeviceExclusion::~DeviceExclusion() {
  if (!held_) return;
  Gate& one = process().gate;
  const std::lock_guard<std::mutex> lock(one.mutex);
  if (one.closed && one.holder == whose_work()) open(one);
}

bool DeviceExclusion::reached(double seconds) const noexcept {
  const auto alone = [] {
    bool under_way = false;
    calls_of_others(under_way);
    return !under_way && streams_idle();
  };
  return held_ && holds_within(seconds, alone);
}

}  // namespace grape::observation
