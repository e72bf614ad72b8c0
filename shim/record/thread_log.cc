#include "shim/record/thread_log.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "shim/lifecycle/config.h"
#include "shim/lifecycle/hot.h"
#include "shim/record/block_pool.h"
#include "shim/record/recorder.h"

namespace grape::record {

GRAPE_HOT std::atomic<std::uint64_t> g_sequence{0};
GRAPE_HOT std::atomic<std::uint32_t> g_recording{0};
__thread ThreadState t_thread __attribute__((tls_model("initial-exec")));
GRAPE_HOT std::atomic<std::uint32_t> g_module_epoch{1};
GRAPE_HOT bool g_only_collected = false;

void EventSink::append(const trace::EventHeader& event) noexcept {
  if (lost || (event.bytes > room - used && !grow(*this, used + event.bytes))) {
    lost = true;
    return;
  }
  std::memcpy(data + used, &event, event.bytes);
  used += event.bytes;
}

void EventSink::append(trace::EventHeader header, const void* payload, std::size_t bytes) noexcept {
  const std::size_t padded = trace::words_for(bytes) * sizeof(std::uint64_t), all = sizeof header + padded;
  if (lost || (all > room - used && !grow(*this, used + all))) {
    lost = true;
    return;
  }
  header.bytes = static_cast<std::uint32_t>(all);
  std::memcpy(data + used, &header, sizeof header);
  std::memset(data + used + sizeof header, 0, padded);
  if (bytes != 0) std::memcpy(data + used + sizeof header, payload, bytes);
  used += all;
}

void ThreadLog::commit_to_sink() noexcept {
  const auto& event = *reinterpret_cast<const trace::EventHeader*>(block_->data + used_);
  const int saved = errno;
  t_thread.sink->take(t_thread.sink->collector, event);
  errno = saved;
  // What is defined once must be in the trace before it is used there.
  if (recording() || (taken() && trace::is_definition(event.kind))) publish();
}

bool ThreadLog::next_block() noexcept {
  if (block_ != nullptr && !taken()) {  // nobody takes what is in it
    used_ = 0;
    return true;
  }
  const int saved = errno;
  Block* block = Recorder::instance().take_block();
  errno = saved;
  if (block == nullptr) return false;
  if (block_ == nullptr) {
    first_.store(block, std::memory_order_release);
  } else {
    block_->next.store(block, std::memory_order_release);
  }
  block_ = block;
  used_ = 0;
  return true;
}

// The way less taken: no block yet, the block is full, or events were lost and that must be said first.
std::uint64_t* ThreadLog::begin_in_new_block(trace::EventKind kind, std::uint32_t key, std::uint32_t payload_words,
                                             Stamp stamp, std::uint16_t flags, std::uint32_t duration) noexcept {
  const std::uint32_t bytes = static_cast<std::uint32_t>(sizeof(trace::EventHeader)) + payload_words * 8;
  constexpr std::uint32_t kLostBytes = sizeof(trace::EventHeader) + 8;
  const std::uint32_t needed = bytes + (lost_ != 0 ? kLostBytes : 0);
  const bool fits = block_ != nullptr && needed <= kBlockRoom - used_;
  if (bytes > trace::kMaxEventBytes || (!fits && !next_block())) {
    ++lost_;
    limit_ = 0;
    if (t_thread.sink != nullptr) t_thread.sink->lost = true;
    Recorder::instance().count_lost();
    return nullptr;
  }
  if (lost_ != 0) {
    std::uint64_t* words = place(trace::EventKind::kLost, 0, kLostBytes, Stamp{last_ticks_, 0}, 0, 0);
    words[0] = lost_;
    lost_ = 0;
    commit();
  }
  limit_ = kBlockRoom;
  return place(kind, key, bytes, stamp, flags, duration);
}

namespace {

__attribute__((constructor(102))) void choose() {
  g_only_collected = config().mode == Mode::kReplay && !writes_trace(config());
}

void make_thread_log() noexcept {
  if (t_thread.refused) return;
  const int saved = errno;
  t_thread.log = Recorder::instance().start_thread();
  errno = saved;
  // Not asked again: the thread is being torn down, or there is no memory for it.
  t_thread.refused = t_thread.log == nullptr;
}

}  // namespace

ThreadLog* start_thread_log() noexcept {
  if (t_thread.sink == nullptr) {
    if (!writes_trace(config())) return nullptr;
    if (paused()) {
      Recorder::instance().note_passed_by();
      return nullptr;
    }
  }
  make_thread_log();
  return recording() || t_thread.sink != nullptr ? t_thread.log : nullptr;
}

ThreadLog* lasting_thread_log() noexcept {
  if (!lifecycle::active() || !writes_trace(config())) return nullptr;
  if (t_thread.log == nullptr) make_thread_log();
  bool written = false;
  ThreadLog* log = open_thread_log(written);
  return written ? log : nullptr;
}

void begin_range() noexcept {
  if (config().range != Range::kProfiler) return;
  Recorder::instance().note_range();
  g_recording.fetch_and(~std::uint32_t{kPaused}, std::memory_order_relaxed);
}

void end_range() noexcept {
  if (config().range == Range::kProfiler) g_recording.fetch_or(kPaused, std::memory_order_relaxed);
}

void forget_thread_log() noexcept {
  t_thread.log = nullptr;
  t_thread.sink = nullptr;
  t_thread.refused = true;
}

Entry::Entry(const void* frame) noexcept { enter(frame); }

// Is the outermost entry, which should be further up the stack, no longer there? Asked only on the rare nested call.
__attribute__((no_sanitize("address"))) bool Entry::left_behind(const Entry* entry) noexcept {
  const int saved = errno;
  // It may have been on a stack that is gone. A call with an invalid `how` does nothing but read the set.
  const bool gone =
      syscall(SYS_rt_sigprocmask, -1, &entry->mark_, nullptr, sizeof entry->mark_) != 0 && errno == EFAULT;
  errno = saved;
  return gone || *static_cast<const volatile std::uint64_t*>(&entry->mark_) != t_thread.mark;
}

}  // namespace grape::record
