// Device memory for the copies that a proof makes. Allocating and freeing such memory waits for the device, and takes
// as long as the rest of the proof. So the blocks of one proof are kept for the next. They are released when no proof
// came for a while, or when the program is refused memory of its own. Blocks that would be much of the free memory are
// not kept.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <mutex>

#include "compressor/refusal/refusal.h"

namespace grape::device {

// Bytes that a copy takes up among others: whole words, and the driver copies fast.
constexpr std::uint64_t copy_bytes(std::uint64_t bytes) noexcept {
  constexpr std::uint64_t kAlignment = 256;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Bytes of the current context's device, and how many of them nobody has. False: the driver does not say.
bool device_memory(std::uint64_t& free, std::uint64_t& total) noexcept;

// Copies on the device, in the order of `stream`; nobody hears of it.
bool copy_on_device(CUstream stream, std::uint64_t to, std::uint64_t from, std::uint64_t bytes) noexcept;

class CopyMemory {
 public:
  struct Block {
    CUcontext context = nullptr;
    std::uint64_t address = 0, bytes = 0;  // 0: none
  };

  // The process's. Any thread, all of it; what allocates and frees wants a context current.
  static CopyMemory& instance() noexcept;

  // At least `bytes`, whose content is anything. False: `error` is one line.
  bool take(std::uint64_t bytes, Block& block, refusal::Refusal& error) noexcept;
  // No work on any stream uses it any more. `block` is none after that.
  void give(Block& block) noexcept;
  // A call came: releases what no proof wanted for kMostCalls calls or kMostSeconds. Free of cost if nothing is kept.
  void note_call() noexcept {
    if (kept_.load(std::memory_order_relaxed) != 0) note_call_while_kept();
  }
  // Releases all that is kept in the current context. False: there was nothing.
  bool release() noexcept;
  // The context is gone, and its memory with it.
  void forget(CUcontext context) noexcept;
  // Kept for the next proof, in all contexts.
  std::uint64_t kept_bytes() const noexcept { return kept_.load(std::memory_order_relaxed); }

  // More than this many bytes are not given.
  static constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 30;
  static constexpr std::uint32_t kMostCalls = 64;
  static constexpr std::int64_t kMostSeconds = 2;

 private:
  void note_call_while_kept() noexcept;
  bool take_kept(CUcontext context, std::uint64_t bytes, Block& block) noexcept;
  bool keep(const Block& block) noexcept;
  bool release_in(CUcontext context) noexcept;
  void count_kept() noexcept;

  std::mutex mutex_;
  Block blocks_[4];                     // kept; a proof has two
  std::atomic<std::uint64_t> kept_{0};  // bytes of all of them
  std::uint32_t calls_ = 0;             // since a block was given back
  std::int64_t given_ = 0;              // when that was, in seconds of the steady clock
};

}  // namespace grape::device
