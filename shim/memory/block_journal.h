// Keeps notes of the framework's blocks, in the order in which they come and go, until LiveBlocks is asked. Training
// allocates thousands of blocks a step, and asks LiveBlocks hardly ever. Any thread; the journal's own lock is held for
// a handful of instructions.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

namespace grape::memory {

struct BlockNote {
  std::uint64_t address;
  std::int64_t bytes;  // negative: it is freed
};

class alignas(64) BlockJournal {
 public:
  static constexpr std::uint32_t kRoom = 256;

  // False: it is full.
  bool append(std::uint64_t address, std::int64_t bytes) noexcept {
    lock();
    const std::uint32_t used = used_.load(std::memory_order_relaxed);
    if (__builtin_expect(used < kRoom, 1)) {
      notes_[used] = {address, bytes};
      used_.store(used + 1, std::memory_order_relaxed);
    }
    locked_.store(false, std::memory_order_release);
    return used < kRoom;
  }

  // All notes so far, as `count` of them; they are valid until the next take(). One thread at a time.
  const BlockNote* take(std::uint32_t& count) noexcept {
    lock();
    const BlockNote* taken = notes_;
    count = used_.load(std::memory_order_relaxed);
    used_.store(0, std::memory_order_relaxed);
    notes_ = notes_ == rooms_[0] ? rooms_[1] : rooms_[0];
    locked_.store(false, std::memory_order_release);
    return taken;
  }

  bool empty() const noexcept { return used_.load(std::memory_order_relaxed) == 0; }

 private:
  void lock() noexcept {
    while (__builtin_expect(locked_.exchange(true, std::memory_order_acquire), 0)) sched_yield();
  }

  std::atomic<bool> locked_{false};
  std::atomic<std::uint32_t> used_{0};
  BlockNote* notes_ = rooms_[0];
  BlockNote rooms_[2][kRoom] = {};  // so that nothing has to run before the first note
};

extern BlockJournal g_framework_notes;  // LiveBlocks takes them
// One came that has no room there.
__attribute__((cold)) void note_framework_block_aside(BlockNote note) noexcept;

// A block of the framework's came, or went (bytes below 0). As LiveBlocks::add() and remove(), for whoever asks no
// serial: it costs a fraction, and counts from the next question on. Keeps errno.
inline void note_framework_block(std::uint64_t address, std::int64_t bytes) noexcept {
  if (__builtin_expect(!g_framework_notes.append(address, bytes), 0)) note_framework_block_aside({address, bytes});
}

}  // namespace grape::memory
