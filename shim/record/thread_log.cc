#include "shim/record/thread_log.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "shim/record/block_pool.h"
#include "shim/record/recorder.h"

namespace grape::record {
namespace {

constexpr std::uint32_t kCacheLine = 64;
constexpr std::uint64_t kMarkFactor = 0x9e3779b97f4a7c15u;  // odd: marks look like nothing else on a stack
constexpr std::uint32_t kPrefetchBytes = 2048;              // one launch with its parameters, mostly

std::atomic<std::uint64_t> g_sequence{0};

// A library that is loaded at start has its thread-local variables at a fixed offset: no call to find them.
#define GRAPE_INITIAL_EXEC __attribute__((tls_model("initial-exec")))
GRAPE_INITIAL_EXEC thread_local ThreadLog* t_log = nullptr;
GRAPE_INITIAL_EXEC thread_local const Entry* t_outermost = nullptr;
GRAPE_INITIAL_EXEC thread_local std::uint64_t t_mark = 0;
GRAPE_INITIAL_EXEC thread_local bool t_refused = false;

}  // namespace

std::atomic<std::uint32_t> g_module_epoch{1};

std::uint64_t next_sequence() noexcept { return g_sequence.fetch_add(1, std::memory_order_relaxed) + 1; }

std::uint64_t* ThreadLog::begin(trace::EventKind kind, std::uint32_t key, std::uint32_t payload_words, Stamp stamp,
                                std::uint16_t flags, std::uint32_t duration) noexcept {
  const std::uint32_t bytes = static_cast<std::uint32_t>(sizeof(trace::EventHeader)) + payload_words * 8;
  if (__builtin_expect(block_ == nullptr || lost_ != 0 || bytes > kBlockRoom - used_, 0)) {
    return begin_in_new_block(kind, key, payload_words, stamp, flags, duration);
  }
  return place(kind, key, bytes, stamp, flags, duration);
}

std::uint64_t* ThreadLog::place(trace::EventKind kind, std::uint32_t key, std::uint32_t bytes, Stamp stamp,
                                std::uint16_t flags, std::uint32_t duration) noexcept {
  // A thread's events ascend in sequence and time, also where a definition was written after the stamp was taken.
  if (stamp.sequence <= last_sequence_) stamp.sequence = next_sequence();
  last_sequence_ = stamp.sequence;
  last_ticks_ = std::max(last_ticks_, stamp.ticks);
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

bool ThreadLog::next_block() noexcept {
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
  used_ = ahead_ = 0;
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
    Recorder::instance().count_lost();
    return nullptr;
  }
  if (lost_ != 0) {
    std::uint64_t* words = place(trace::EventKind::kLost, 0, kLostBytes, Stamp{last_ticks_, 0}, 0, 0);
    words[0] = lost_;
    lost_ = 0;
    commit();
  }
  return place(kind, key, bytes, stamp, flags, duration);
}

void ThreadLog::commit() noexcept {
  used_ += pending_;
  pending_ = 0;
  block_->committed.store(used_, std::memory_order_release);
  // The writer's core had these lines last: fetched only when they are written, each would cost a wait.
  const std::uint32_t wanted = std::min(used_ + kPrefetchBytes, kBlockRoom);
  for (; ahead_ < wanted; ahead_ += kCacheLine) __builtin_prefetch(block_->data + ahead_, 1);
}

ThreadLog* thread_log() noexcept {
  if (!lifecycle::active()) return nullptr;
  if (__builtin_expect(t_log == nullptr, 0)) {
    if (t_refused) return nullptr;
    const int saved = errno;
    t_log = Recorder::instance().start_thread();
    errno = saved;
    // Not asked again: the thread is being torn down, or there is no memory for it.
    t_refused = t_log == nullptr;
  }
  return Recorder::instance().recording() ? t_log : nullptr;
}

void forget_thread_log() noexcept {
  t_log = nullptr;
  t_refused = true;
}

// Is the outermost entry, which should be further up the stack, no longer there? Asked only on the rare nested call.
__attribute__((no_sanitize("address"))) bool Entry::left_behind(const Entry* entry) noexcept {
  const int saved = errno;
  // It may have been on a stack that is gone. A call with an invalid `how` does nothing but read the set.
  const bool gone =
      syscall(SYS_rt_sigprocmask, -1, &entry->mark_, nullptr, sizeof entry->mark_) != 0 && errno == EFAULT;
  errno = saved;
  return gone || *static_cast<const volatile std::uint64_t*>(&entry->mark_) != t_mark;
}

Entry::Entry() noexcept {
  // The stack grows down: a wrapper entered from within another one lies below it, with its whole frame.
  const void* frame = *static_cast<void* const*>(__builtin_frame_address(0));  // of the wrapper
  outermost_ = t_outermost == nullptr || t_outermost < frame || left_behind(t_outermost);
  if (outermost_) {
    t_outermost = this;
    mark_ = t_mark = (t_mark + 1) * kMarkFactor;
  }
  log_ = outermost_ ? thread_log() : nullptr;
}

Entry::~Entry() noexcept {
  if (outermost_) t_outermost = nullptr;
}

}  // namespace grape::record
