// The hot side of recording: each thread writes its events into its own blocks, and a writer thread takes them to disk.
// There is no lock, system call or allocation, except when a thread is first seen. When the bounded pool of blocks is
// empty, events are dropped and counted (kLost).
#pragma once

#include <x86intrin.h>

#include <atomic>
#include <cstdint>

#include "compressor/trace/event.h"
#include "compressor/trace/meta.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/record/block_pool.h"

namespace grape::record {

// When something happened. `sequence` 0: taken when the event is begun (right for calls that make things); calls that
// unmake things (free, destroy, unload) take it before the real call, since the name may be reused at once.
struct Stamp {
  std::uint64_t ticks = 0;
  std::uint64_t sequence = 0;
};

inline std::uint64_t ticks() noexcept { return __rdtsc(); }
extern std::atomic<std::uint64_t> g_sequence;  // the last number that a thread has taken

// Where a thread's events are copied to while somebody collects them (shim/observation/region_sink.h).
struct EventSink {
  std::uint8_t* data = nullptr;
  std::size_t used = 0, room = 0;  // bytes
  bool lost = false;               // an event is missing: no memory, or too much of it
  // Makes `room` at least `needed`. False: it cannot.
  bool (*grow)(EventSink& sink, std::size_t needed) noexcept = nullptr;
  // Called for every event, on its thread: appends it, and events of its own.
  void (*take)(void* collector, const trace::EventHeader& event) noexcept = nullptr;
  void* collector = nullptr;

  // Copies one event, or counts it as lost.
  void append(const trace::EventHeader& event) noexcept;
  // An event of `bytes` of payload, filled up with zeros to whole words. `header`: all but its size.
  void append(trace::EventHeader header, const void* payload, std::size_t bytes) noexcept;
};

class ThreadLog;
class Entry;

// Launches of a thread in mode replay, as python_hooks/discovery/outside.h counts them.
struct LaunchCount {
  std::uint32_t depth;    // regions' calls that the thread is in
  std::int32_t due;       // launches up to the one that is looked at
  std::uint32_t outside;  // since the last one that was, outside of regions
  std::uint32_t all;      // of the thread, modulo 2^32
};

// What the hot path keeps of a thread, in one cache line. A library that is loaded at start has its thread-local
// variables at a fixed offset: no call to find them.
struct alignas(64) ThreadState {
  ThreadLog* log;
  const Entry* outermost;
  std::uint64_t mark;  // of the outermost entry
  EventSink* sink;     // gets a copy of every event; null: nobody collects
  bool refused;        // no log for this thread, and no use to ask again
  LaunchCount launches;
  void* work;  // replay::detail::ThreadWork of shim/observation/device_exclusion.h
};
static_assert(sizeof(ThreadState) == 64);
extern __thread ThreadState t_thread __attribute__((tls_model("initial-exec")));

// What is recorded in this process just now: bits of RecordingState.
enum RecordingState : std::uint32_t {
  kTaken = 1,   // a writer takes to the trace what threads write down
  kPaused = 2,  // outside of the ranges that GRAPE_TRACE_RANGE asks for
};
extern std::atomic<std::uint32_t> g_recording;
inline bool recording() noexcept { return g_recording.load(std::memory_order_relaxed) == kTaken; }
inline bool taken() noexcept { return (g_recording.load(std::memory_order_relaxed) & kTaken) != 0; }
inline bool paused() noexcept { return (g_recording.load(std::memory_order_relaxed) & kPaused) != 0; }

// Mode replay without a trace: events are made only for those who collect a thread's.
extern bool g_only_collected;  // set before the program's own code runs
inline bool nobody_records() noexcept { return g_only_collected && t_thread.sink == nullptr; }

// A range begins and ends (cuProfilerStart, cuProfilerStop), for all threads. Nothing happens where none were asked
// for.
void begin_range() noexcept;
void end_range() noexcept;

class alignas(64) ThreadLog {
  // What every event reads and writes, in one cache line, up to python.data.
  Block* block_ = nullptr;
  std::uint32_t used_ = 0;                            // bytes of the current block, committed
  std::uint32_t pending_ = 0;                         // bytes of the event between begin() and commit()
  std::uint64_t next_sequence_ = 0, last_taken_ = 0;  // of the numbers taken: the last one used, and the end
  std::uint64_t last_sequence_ = 0;
  std::uint64_t last_ticks_ = 0;
  std::uint32_t limit_ = 0;  // of used_, without looking any further; 0: no block yet, or events were lost

 public:
  // Caches of the rooms above, one slot each, freed through the given function when the thread ends.
  struct Slot {
    void* data = nullptr;
    void (*destroy)(void*) = nullptr;
  };
  Slot python;     // python_hooks: codes, frames, scopes → id. Its data is in that line as well
  Slot functions;  // shim/interpose: CUfunction → id
  Slot native;     // shim/record/native_stack: frames → id

  // Room for one event with `payload_words` words (uninitialised), header filled in. Null: no room, the event is lost
  // and counted. Each begin() that gave room is followed by commit() on the same thread, with no other begin() between.
  std::uint64_t* begin(trace::EventKind kind, std::uint32_t key, std::uint32_t payload_words, Stamp stamp,
                       std::uint16_t flags = 0, std::uint32_t duration = 0) noexcept {
    const std::uint32_t bytes = static_cast<std::uint32_t>(sizeof(trace::EventHeader)) + payload_words * 8;
    if (__builtin_expect(used_ + bytes > limit_, 0)) {
      return begin_in_new_block(kind, key, payload_words, stamp, flags, duration);
    }
    return place(kind, key, bytes, stamp, flags, duration);
  }

  void commit() noexcept {
    if (__builtin_expect(t_thread.sink != nullptr, 0)) return commit_to_sink();
    publish();
  }

  // The next number of the process-wide order. An atomic operation waits for all stores before it, so a thread takes
  // some numbers at once, and uses them up for as long as no other thread has taken any: what happens behind another
  // thread's event then never has the lower number.
  std::uint64_t next_sequence() noexcept {
    if (__builtin_expect(next_sequence_ == last_taken_ || g_sequence.load(std::memory_order_relaxed) != last_taken_,
                         0)) {
      return take_sequences();
    }
    return ++next_sequence_;
  }

  // This thread's number in the trace, dense from 1.
  std::uint32_t number() const noexcept { return number_; }

 private:
  friend class Recorder;
  static constexpr std::uint64_t kTakenAtOnce = 32;

  void publish() noexcept {
    used_ += pending_;
    block_->committed.store(used_, std::memory_order_release);
  }

  // Where no trace is written, or nothing but definitions, the event's place is free again at once.
  __attribute__((cold)) void commit_to_sink() noexcept;
  __attribute__((cold, noinline)) std::uint64_t take_sequences() noexcept {
    next_sequence_ = g_sequence.fetch_add(kTakenAtOnce, std::memory_order_relaxed);
    last_taken_ = next_sequence_ + kTakenAtOnce;
    return ++next_sequence_;
  }
  __attribute__((cold)) std::uint64_t* begin_in_new_block(trace::EventKind kind, std::uint32_t key,
                                                          std::uint32_t payload_words, Stamp stamp, std::uint16_t flags,
                                                          std::uint32_t duration) noexcept;
  bool next_block() noexcept;

  std::uint64_t* place(trace::EventKind kind, std::uint32_t key, std::uint32_t bytes, Stamp stamp, std::uint16_t flags,
                       std::uint32_t duration) noexcept {
    // A thread's events ascend in sequence and time, also where a definition was written after the stamp was taken.
    if (stamp.sequence <= last_sequence_) stamp.sequence = next_sequence();
    last_sequence_ = stamp.sequence;
    if (stamp.ticks > last_ticks_) last_ticks_ = stamp.ticks;
    auto* header = reinterpret_cast<trace::EventHeader*>(block_->data + used_);
    header->bytes = bytes;
    header->kind = kind;
    header->flags = flags;
    header->key = key;
    header->duration = duration;
    header->sequence = last_sequence_;
    header->ticks = last_ticks_;
    pending_ = bytes;
    return reinterpret_cast<std::uint64_t*>(header + 1);
  }

  std::uint64_t lost_ = 0;  // since the last kLost event
  std::uint32_t number_ = 0;
  std::uint32_t os_thread_ = 0;

  // Shared with the writer.
  enum class Phase : std::uint32_t { kFree, kRunning, kEnded };
  std::atomic<Phase> phase_{Phase::kFree};
  std::atomic<Block*> first_{nullptr};  // set by the thread with its first block, then the writer's
  ThreadLog* next_log_ = nullptr;       // list of all logs; never unlinked, but reused
  void* encoder_ = nullptr;             // the writer's own
};

__attribute__((cold)) ThreadLog* start_thread_log() noexcept;

// This thread's log; null: not recording (inert, finished, out of memory, thread already torn down), or there is no
// trace and this thread's events are not collected.
inline ThreadLog* thread_log() noexcept {
  if (nobody_records() || !lifecycle::active()) return nullptr;
  if (__builtin_expect(t_thread.log == nullptr, 0)) return start_thread_log();
  return recording() || t_thread.sink != nullptr ? t_thread.log : nullptr;
}

// The same outside of ranges too: for what must be known to understand what is recorded later.
__attribute__((cold)) ThreadLog* lasting_thread_log() noexcept;

// Of a thread that has one: for what began while it was recorded, and ends now. `written`: the end is recorded as well.
inline ThreadLog* open_thread_log(bool& written) noexcept {
  if (!lifecycle::active()) return nullptr;
  written = taken() || t_thread.sink != nullptr;
  return t_thread.log;
}

// Entered by every wrapper around what it does. Nested calls (the driver, or a library under us, calling a wrapped
// function again on the same thread) see log() == null. Survives a longjmp out of the wrapper: an entry left behind is
// recognised by its stack address, or by what has been written over it since.
class Entry {
 public:
  // Inlined always: the frame is that of the wrapper.
  __attribute__((always_inline)) Entry() noexcept { enter(__builtin_frame_address(0)); }
  // The same out of line, where a launch does not wait for it. `frame`: the wrapper's.
  explicit Entry(const void* frame) noexcept;
  ~Entry() noexcept {
    if (outermost_) t_thread.outermost = nullptr;
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;
  ThreadLog* log() const noexcept { return log_; }
  bool outermost() const noexcept { return outermost_; }
  ThreadLog* lasting_log() const noexcept { return outermost_ ? lasting_thread_log() : nullptr; }

 private:
  static constexpr std::uint64_t kMarkFactor = 0x9e3779b97f4a7c15u;  // odd: marks look like nothing else on a stack
  __attribute__((always_inline)) void enter(const void* frame) noexcept {
    // The stack grows down: a wrapper entered from within another one lies below it, with its whole frame.
    outermost_ = t_thread.outermost == nullptr || static_cast<const void*>(t_thread.outermost) < frame ||
                 left_behind(t_thread.outermost);
    if (outermost_) {
      t_thread.outermost = this;
      mark_ = t_thread.mark = (t_thread.mark + 1) * kMarkFactor;
    }
    log_ = outermost_ ? thread_log() : nullptr;
  }
  __attribute__((cold)) static bool left_behind(const Entry* entry) noexcept;

  ThreadLog* log_;
  std::uint64_t mark_ = 0;  // of the outermost one: equal to its thread's, as long as the entry is alive
  bool outermost_;
};

// Bumped when a module or library is unloaded: per-thread caches keyed by its handles are void.
extern std::atomic<std::uint32_t> g_module_epoch;

// A driver function of the call table in the trace's meta chunk; set once by shim/interpose before anything is
// recorded.
struct ApiRow {
  char symbol[50];  // as libcuda exports it; in place, so that the table has fewer addresses to relocate
  std::uint16_t version;
  bool per_thread;
  trace::ApiClass api_class;
  const char* arguments;  // as shim/driver/hooks.def has them: more than trace::ApiInfo::arguments
};
void set_api_table(const ApiRow* rows, std::uint32_t count) noexcept;
const ApiRow* api_table(std::uint32_t& count) noexcept;  // null: not set

// Called for the counts in End::unhandled: fills up to `room` names and counts, returns how many.
using UnhandledSource = std::uint32_t (*)(const char** names, std::uint64_t* counts, std::uint32_t room);
void set_unhandled_source(UnhandledSource source) noexcept;
void set_driver_version(int version) noexcept;
void set_python_version(const char* version) noexcept;  // copied

}  // namespace grape::record
