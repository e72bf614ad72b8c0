#include "shim/device/copy_memory.h"

#include "shim/device/own_kernels.h"
#include "shim/device/thread_context.h"
#include "shim/driver/current_context.h"
#include "shim/driver/listeners.h"
#include "shim/driver/real_driver.h"
#include "shim/lifecycle/clock.h"

namespace grape::device {
namespace {

namespace real = driver::real;

// Large pages of the driver's; and a little more than was asked for, since caches grow from call to call.
std::uint64_t rounded(std::uint64_t bytes) {
  constexpr std::uint64_t kPage = std::uint64_t{2} << 20;
  return (bytes + bytes / 16 + kPage - 1) / kPage * kPage;
}

std::int64_t seconds() noexcept { return static_cast<std::int64_t>(monotonic_seconds()); }

CUresult free_memory(std::size_t& bytes) noexcept {
  std::size_t total = 0;
  return real::call_cuMemGetInfo_v2(&bytes, &total);
}

void free_block(CopyMemory::Block& block) noexcept {
  const RelaxedCapture relaxed;
  if (block.address != 0) real::call_cuMemFree_v2(block.address);
  block = {};
}

}  // namespace

bool copy_on_device(CUstream stream, std::uint64_t to, std::uint64_t from, std::uint64_t bytes) noexcept {
  return real::get_cuMemcpyDtoDAsync_v2() != nullptr &&
         real::call_cuMemcpyDtoDAsync_v2(to, from, bytes, stream) == CUDA_SUCCESS;
}

bool device_memory(std::uint64_t& free, std::uint64_t& total) noexcept {
  std::size_t free_bytes = 0, total_bytes = 0;
  if (real::call_cuMemGetInfo_v2(&free_bytes, &total_bytes) != CUDA_SUCCESS) return false;
  free = free_bytes;
  total = total_bytes;
  return true;
}

CopyMemory& CopyMemory::instance() noexcept {
  static CopyMemory memory;
  return memory;
}

bool CopyMemory::take(std::uint64_t bytes, Block& block, refusal::Refusal& error) noexcept {
  const CUcontext context = driver::current_context();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (take_kept(context, bytes, block)) return true;
  release_in(context);  // none is large enough: room for one that is
  auto* allocate = real::get_cuMemAlloc_v2();
  std::size_t free = 0;
  const CUresult result = allocate != nullptr ? free_memory(free) : CUDA_ERROR_NOT_SUPPORTED;
  if (failed(result, "cuMemGetInfo", error)) return false;
  // The application's own next allocation must not suffer: half of what is free stays free.
  const std::uint64_t wanted = rounded(bytes);
  if (bytes > kMostBytes || wanted * 2 > free) {
    error = refusal::make(refusal::little_device_memory, std::to_string(bytes >> 20));
    return false;
  }
  const RelaxedCapture relaxed;
  CUdeviceptr address = 0;
  if (failed(allocate(&address, wanted), "cuMemAlloc", error)) return false;
  block = {context, address, wanted};
  return true;
}

// The smallest that is large enough.
bool CopyMemory::take_kept(CUcontext context, std::uint64_t bytes, Block& block) noexcept {
  Block* best = nullptr;
  for (Block& kept : blocks_) {
    const bool fits = kept.address != 0 && kept.context == context && kept.bytes >= bytes;
    if (fits && (best == nullptr || kept.bytes < best->bytes)) best = &kept;
  }
  if (best == nullptr) return false;
  block = *best;
  *best = {};
  count_kept();
  return true;
}

void CopyMemory::give(Block& block) noexcept {
  if (block.address == 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (keep(block)) {
    block = {};
  } else {
    free_block(block);
  }
}

// What is kept may be as much as a quarter of what is free without it.
bool CopyMemory::keep(const Block& block) noexcept {
  std::size_t free = 0;
  if (free_memory(free) != CUDA_SUCCESS) return false;
  std::uint64_t ours = block.bytes;
  Block* place = nullptr;
  for (Block& kept : blocks_) {
    if (kept.address == 0) {
      place = &kept;
    } else if (kept.context == block.context) {
      ours += kept.bytes;
    }
  }
  if (place == nullptr || ours > (free + ours) / 4) return false;
  *place = block;
  calls_ = 0;
  given_ = seconds();
  count_kept();
  return true;
}

void CopyMemory::note_call_while_kept() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (++calls_ <= kMostCalls && seconds() - given_ <= kMostSeconds) return;
  for (Block& kept : blocks_) {
    if (kept.address == 0) continue;
    const ContextScope scope(kept.context);  // of the device that a call works on, which need not be the current one
    if (scope.entered()) free_block(kept);
  }
  count_kept();
}

bool CopyMemory::release() noexcept {
  if (kept_.load(std::memory_order_relaxed) == 0) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  return release_in(driver::current_context());
}

bool CopyMemory::release_in(CUcontext context) noexcept {
  bool any = false;
  for (Block& kept : blocks_) {
    if (kept.address == 0 || kept.context != context) continue;
    free_block(kept);
    any = true;
  }
  if (any) count_kept();
  return any;
}

void CopyMemory::forget(CUcontext context) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (Block& kept : blocks_) {
    if (kept.context == context) kept = {};
  }
  count_kept();
}

void CopyMemory::count_kept() noexcept {
  std::uint64_t bytes = 0;
  for (const Block& kept : blocks_) bytes += kept.bytes;
  kept_.store(bytes, std::memory_order_relaxed);
}

namespace {
__attribute__((constructor)) void listen() {
  driver::add_context_listener([](CUcontext context) noexcept { CopyMemory::instance().forget(context); });
  driver::add_memory_keeper([]() noexcept { return CopyMemory::instance().release(); });
}
}  // namespace

}  // namespace grape::device
