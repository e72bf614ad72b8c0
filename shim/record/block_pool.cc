#include "shim/record/block_pool.h"

#include <sys/mman.h>

namespace grape::record {
namespace {

std::uint32_t top_of(std::uint64_t stack) { return static_cast<std::uint32_t>(stack); }
std::uint64_t with_top(std::uint64_t stack, std::uint32_t top) { return (((stack >> 32) + 1) << 32) | top; }

}  // namespace

bool BlockPool::open() noexcept {
  void* range = mmap(nullptr, std::size_t{kBlockCount} * kBlockBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return false;
  blocks_ = static_cast<Block*>(range);
  return true;
}

Block* BlockPool::take() noexcept {
  if (blocks_ == nullptr) return nullptr;
  Block* block = nullptr;
  std::uint64_t stack = free_.load(std::memory_order_acquire);
  while (top_of(stack) != kNone) {
    const std::uint32_t below = below_[top_of(stack)].load(std::memory_order_relaxed);
    if (free_.compare_exchange_weak(stack, with_top(stack, below), std::memory_order_acq_rel)) {
      block = &blocks_[top_of(stack)];
      break;
    }
  }
  if (block == nullptr) {
    if (fresh_.load(std::memory_order_relaxed) >= kBlockCount) return nullptr;
    const std::uint32_t index = fresh_.fetch_add(1, std::memory_order_relaxed);
    if (index >= kBlockCount) return nullptr;
    block = &blocks_[index];
  }
  in_use_.fetch_add(1, std::memory_order_relaxed);
  block->committed.store(0, std::memory_order_relaxed);
  block->consumed = 0;
  block->next.store(nullptr, std::memory_order_relaxed);
  return block;
}

void BlockPool::give_back(Block* block) noexcept {
  const auto index = static_cast<std::uint32_t>(block - blocks_);
  std::uint64_t stack = free_.load(std::memory_order_relaxed);
  do {
    below_[index].store(top_of(stack), std::memory_order_relaxed);
  } while (!free_.compare_exchange_weak(stack, with_top(stack, index), std::memory_order_acq_rel));
  in_use_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace grape::record
