// The cold side of recording: starts with the first recorded thread, owns the blocks and the writer thread, and closes
// the trace when the process ends.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/record/block_pool.h"
#include "shim/record/thread_log.h"

namespace grape::record {

class TraceSession;

class Recorder {
 public:
  static Recorder& instance() noexcept { return g_recorder; }

  // This thread's log, from now until the thread ends; starts the writer at the first call. Null: cannot record.
  ThreadLog* start_thread() noexcept;
  Block* take_block() noexcept;
  void count_lost() noexcept { lost_.fetch_add(1, std::memory_order_relaxed); }
  // A range began; something would have been recorded, but no range was open.
  void note_range() noexcept { any_range_.store(true, std::memory_order_relaxed); }
  void note_passed_by() noexcept { passed_by_.store(true, std::memory_order_relaxed); }
  // At the process's end, where it was to leave a trace and recorded nothing: why.
  static void tell_why_nothing() noexcept;

  void set_api_table(const ApiRow* rows, std::uint32_t count) noexcept {
    apis_.store(rows);
    api_count_.store(count);
  }
  const ApiRow* api_table(std::uint32_t& count) const noexcept {
    count = api_count_.load();
    return apis_.load();
  }
  void set_unhandled_source(UnhandledSource source) noexcept { unhandled_.store(source); }
  void set_driver_version(int version) noexcept { driver_version_.store(version); }
  void set_python_version(const char* version) noexcept;

 private:
  friend class TraceSession;
  static Recorder g_recorder;  // no constructor runs, no destructor either: wrappers may run after both
  static void end_thread(void* log) noexcept;
  static void finish() noexcept;
  static void* run_writer(void* self) noexcept;
  bool start() noexcept;
  bool open() noexcept;
  bool start_writer() noexcept;
  void recycle(ThreadLog& log) noexcept;
  void write_until_stopped();
  void drain(TraceSession& session);
  void drain_log(ThreadLog& log, TraceSession& session);
  void wait(int milliseconds) noexcept;
  void wake() noexcept;

  enum class Started : int { kNo, kStarting, kYes, kFailed };
  std::atomic<Started> started_{Started::kNo};
  std::atomic<std::uint64_t> lost_{0};
  std::atomic<ThreadLog*> logs_{nullptr};
  std::atomic<std::uint32_t> threads_{0};
  std::atomic<const ApiRow*> apis_{nullptr};
  std::atomic<std::uint32_t> api_count_{0};
  std::atomic<UnhandledSource> unhandled_{nullptr};
  std::atomic<int> driver_version_{0};
  std::atomic<bool> python_known_{false};
  char python_version_[64] = {};
  // Futex words: bumped to wake the writer; set when the writer has closed the trace.
  std::atomic<std::uint32_t> wakeups_{0};
  std::atomic<std::uint32_t> sleeping_{0};
  std::atomic<std::uint32_t> closed_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> has_writer_{false};
  std::atomic<bool> any_range_{false};
  std::atomic<bool> passed_by_{false};
  std::uint32_t key_ = 0;  // pthread_key_t of end_thread
  // When recording began, on both clocks (the second is monotonic). Before any event's time.
  std::uint64_t start_ticks_ = 0, start_nanoseconds_ = 0;
  BlockPool pool_;
};

// Called when the thread's log is taken away (the thread ends): no new one is made for it.
void forget_thread_log() noexcept;

}  // namespace grape::record
