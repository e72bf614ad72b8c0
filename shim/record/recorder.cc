#include "shim/record/recorder.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>

#include "shim/lifecycle/blocked_signals.h"
#include "shim/lifecycle/clock.h"
#include "shim/lifecycle/config.h"
#include "shim/lifecycle/log.h"
#include "shim/record/trace_session.h"

namespace grape::record {
namespace {

constexpr std::size_t kProbeBytes = 64 * 1024;
constexpr int kDrainMilliseconds = 50;
constexpr double kCloseSeconds = 10;                    // at exit, the longest wait for the disk
constexpr std::uint32_t kBusyBlocks = kBlockCount / 8;  // from here on the writer is woken early

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value, int milliseconds) noexcept {
  const timespec timeout{milliseconds / 1000, (milliseconds % 1000) * 1'000'000L};
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, &timeout, nullptr, 0);
}

void futex_wake(std::atomic<std::uint32_t>& word) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void stop_taking() noexcept { g_recording.fetch_and(~std::uint32_t{kTaken}, std::memory_order_relaxed); }

}  // namespace

Recorder Recorder::g_recorder;
static_assert(std::is_trivially_destructible_v<Recorder>);

namespace {

__attribute__((constructor(102))) void prepare() {  // behind lifecycle's
  if (!lifecycle::active() || !writes_trace(config())) return;
  if (config().range == Range::kProfiler) g_recording.fetch_or(kPaused, std::memory_order_relaxed);
  lifecycle::add_finish(&Recorder::tell_why_nothing);
}

}  // namespace

void Recorder::set_python_version(const char* version) noexcept {
  if (python_known_.exchange(true)) return;
  std::snprintf(python_version_, sizeof python_version_, "%s", version);
}

bool Recorder::start() noexcept {
  Started expected = started_.load(std::memory_order_acquire);
  if (expected == Started::kYes) return true;
  lifecycle::begin();
  expected = Started::kNo;
  {
    const BlockedSignals blocked;  // nor may a handler jump out of here
    if (started_.compare_exchange_strong(expected, Started::kStarting)) {
      const bool ok = open() && (!writes_trace(config()) || start_writer());
      started_.store(ok ? Started::kYes : Started::kFailed, std::memory_order_release);
      return ok;
    }
  }
  // Another thread is starting the writer: it does not wait for anything, so neither do we for long.
  while ((expected = started_.load(std::memory_order_acquire)) == Started::kStarting) sched_yield();
  return expected == Started::kYes;
}

bool Recorder::open() noexcept {
  // With no memory at all no exception can be made either, which ends the program: better found out now.
  void* volatile probe = std::malloc(kProbeBytes);
  const bool memory = probe != nullptr;
  std::free(probe);
  pthread_key_t key;
  if (!memory || !pool_.open() || pthread_key_create(&key, &Recorder::end_thread) != 0) {
    lifecycle::give_up("no memory for its buffers");
    return false;
  }
  key_ = key;
  return true;
}

bool Recorder::start_writer() noexcept {
  // Here, and not where the writer begins: that may be long after the first events.
  start_nanoseconds_ = nanoseconds(CLOCK_MONOTONIC);
  start_ticks_ = ticks();
  has_writer_.store(true);
  g_recording.fetch_or(kTaken, std::memory_order_relaxed);
  lifecycle::set_finish(&Recorder::finish);
  pthread_t writer;
  if (pthread_create(&writer, nullptr, &Recorder::run_writer, this) != 0) {
    stop_taking();
    lifecycle::give_up("cannot start its writer thread");
    return false;
  }
  pthread_setname_np(writer, "grape-writer");
  pthread_detach(writer);
  return true;
}

ThreadLog* Recorder::start_thread() noexcept {
  if (!start()) return nullptr;
  ThreadLog* log = logs_.load(std::memory_order_acquire);
  for (; log != nullptr; log = log->next_log_) {
    auto expected = ThreadLog::Phase::kFree;
    if (log->phase_.compare_exchange_strong(expected, ThreadLog::Phase::kRunning)) break;
  }
  const bool fresh = log == nullptr;
  if (fresh) {
    log = new (std::nothrow) ThreadLog;
    if (log == nullptr) return nullptr;
    log->phase_.store(ThreadLog::Phase::kRunning, std::memory_order_relaxed);
  }
  log->number_ = threads_.fetch_add(1) + 1;
  log->os_thread_ = static_cast<std::uint32_t>(syscall(SYS_gettid));
  if (fresh) {
    log->next_log_ = logs_.load(std::memory_order_relaxed);
    while (!logs_.compare_exchange_weak(log->next_log_, log, std::memory_order_release)) {
    }
  }
  if (pthread_setspecific(key_, log) != 0) {
    end_thread(log);
    return nullptr;
  }
  return log;
}

void Recorder::end_thread(void* data) noexcept {
  auto* log = static_cast<ThreadLog*>(data);
  forget_thread_log();
  for (ThreadLog::Slot* slot : {&log->functions, &log->python, &log->native}) {
    if (slot->data != nullptr && slot->destroy != nullptr) slot->destroy(slot->data);
    *slot = {};
  }
  if (!g_recorder.has_writer_.load()) g_recorder.recycle(*log);
  log->phase_.store(g_recorder.has_writer_.load() ? ThreadLog::Phase::kEnded : ThreadLog::Phase::kFree,
                    std::memory_order_release);
}

// The log of a thread that has ended, for another thread.
void Recorder::recycle(ThreadLog& log) noexcept {
  if (Block* block = log.first_.load(std::memory_order_relaxed)) pool_.give_back(block);
  log.first_.store(nullptr, std::memory_order_relaxed);
  log.block_ = nullptr;
  log.used_ = log.pending_ = log.limit_ = 0;
  log.next_sequence_ = log.last_taken_ = log.last_sequence_ = log.last_ticks_ = log.lost_ = 0;
}

Block* Recorder::take_block() noexcept {
  Block* block = pool_.take();
  if (block == nullptr || pool_.in_use() > kBusyBlocks) wake();
  return block;
}

void Recorder::wake() noexcept {
  if (sleeping_.load(std::memory_order_relaxed) == 0) return;
  wakeups_.fetch_add(1);
  futex_wake(wakeups_);
}

void Recorder::wait(int milliseconds) noexcept {
  const std::uint32_t seen = wakeups_.load();
  sleeping_.store(1);
  if (!stop_.load()) futex_wait(wakeups_, seen, milliseconds);
  sleeping_.store(0);
}

// Takes what one thread has committed.
void Recorder::drain_log(ThreadLog& log, TraceSession& session) {
  // Read first: what was committed before the thread ended is then surely seen below.
  const bool ended = log.phase_.load(std::memory_order_acquire) == ThreadLog::Phase::kEnded;
  Block* block = log.first_.load(std::memory_order_acquire);
  while (block != nullptr) {
    Block* next = block->next.load(std::memory_order_acquire);
    const std::uint32_t committed = block->committed.load(std::memory_order_acquire);
    while (block->consumed < committed) {
      const auto* event = reinterpret_cast<const trace::EventHeader*>(block->data + block->consumed);
      session.add(log.number_, log.os_thread_, log.encoder_, *event);
      block->consumed += event->bytes;
    }
    if (next == nullptr) break;
    log.first_.store(next, std::memory_order_relaxed);
    pool_.give_back(block);
    block = next;
  }
  if (ended) {
    session.close_thread(log.encoder_);
    recycle(log);
    log.phase_.store(ThreadLog::Phase::kFree, std::memory_order_release);
  }
}

void Recorder::drain(TraceSession& session) {
  for (ThreadLog* log = logs_.load(std::memory_order_acquire); log != nullptr; log = log->next_log_) {
    if (log->phase_.load(std::memory_order_acquire) != ThreadLog::Phase::kFree) drain_log(*log, session);
  }
}

void Recorder::write_until_stopped() {
  TraceSession session(*this);
  bool stopping = false;
  while (!stopping && session.ok()) {
    if (pool_.in_use() <= kBusyBlocks) wait(kDrainMilliseconds);
    stopping = stop_.load();
    drain(session);
    session.flush(stopping);
  }
  stop_taking();
  session.close();
}

void* Recorder::run_writer(void* self) noexcept {
  auto* recorder = static_cast<Recorder*>(self);
  try {
    recorder->write_until_stopped();
  } catch (const std::bad_alloc&) {
    lifecycle::give_up("out of memory while writing the trace");
  }
  stop_taking();
  recorder->closed_.store(1);
  futex_wake(recorder->closed_);
  return nullptr;
}

// At the process's end: everything committed so far goes to the file.
void Recorder::finish() noexcept {
  Recorder& recorder = instance();
  recorder.stop_.store(true);
  recorder.wakeups_.fetch_add(1);
  futex_wake(recorder.wakeups_);
  const double begin = monotonic_seconds();
  while (recorder.closed_.load() == 0) {
    futex_wait(recorder.closed_, 0, 100);
    if (monotonic_seconds() - begin > kCloseSeconds) {
      log_line(LogLevel::kWarning, "the disk is slow; the trace is left incomplete");
      return;
    }
  }
}

void Recorder::tell_why_nothing() noexcept {
  const Recorder& recorder = instance();
  if (recorder.passed_by_.load() && !recorder.any_range_.load()) {
    log_line(LogLevel::kWarning,
             "nothing was recorded: GRAPE_TRACE_RANGE=profiler, and the program never called cuProfilerStart "
             "(torch.cuda.profiler.start())");
  } else if (recorder.started_.load() == Started::kNo && config().run_pid == static_cast<std::uint32_t>(getpid())) {
    log_line(LogLevel::kInfo, "no trace: the program made no call to the CUDA driver");
  }
}

void set_api_table(const ApiRow* rows, std::uint32_t count) noexcept {
  Recorder::instance().set_api_table(rows, count);
}
const ApiRow* api_table(std::uint32_t& count) noexcept { return Recorder::instance().api_table(count); }
void set_unhandled_source(UnhandledSource source) noexcept { Recorder::instance().set_unhandled_source(source); }
void set_driver_version(int version) noexcept { Recorder::instance().set_driver_version(version); }
void set_python_version(const char* version) noexcept { Recorder::instance().set_python_version(version); }

}  // namespace grape::record
