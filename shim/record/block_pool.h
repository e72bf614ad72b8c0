// A bounded pool of fixed-size blocks that threads write events into. Lock-free. The system gives memory at the first
// touch. Blocks are reused last-in first-out, so that a light load stays small and warm.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace grape::record {

constexpr std::uint32_t kBlockBytes = 256 * 1024;
constexpr std::uint32_t kBlockCount = 512;  // 128 MiB at most

// Events lie back to back in `data`. The thread that owns the block appends and publishes `committed`; the writer
// reads up to it. When the thread goes on to another block it sets `next`, and adds nothing to this one any more.
struct Block {
  std::atomic<std::uint32_t> committed;  // bytes of `data` that are whole events
  std::uint32_t consumed;                // of these, bytes that the writer has taken; the writer's own
  std::atomic<Block*> next;
  std::uint64_t reserved;
  alignas(64) unsigned char data[kBlockBytes - 64];
};
static_assert(sizeof(Block) == kBlockBytes, "blocks lie side by side in one mapping");
constexpr std::uint32_t kBlockRoom = sizeof(Block::data);

class BlockPool {
 public:
  // Maps the pool's address range. False: no address space; take() then gives nothing.
  bool open() noexcept;
  Block* take() noexcept;  // null: all in use
  void give_back(Block* block) noexcept;
  std::uint32_t in_use() const noexcept { return in_use_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::uint32_t kNone = ~0u;
  // Stack of free blocks: index of the top in the low half, a change counter in the high half against ABA.
  std::atomic<std::uint64_t> free_{kNone};
  std::atomic<std::uint32_t> fresh_{0};  // blocks never used yet begin here
  std::atomic<std::uint32_t> in_use_{0};
  std::atomic<std::uint32_t> below_[kBlockCount] = {};
  Block* blocks_ = nullptr;
};

}  // namespace grape::record
