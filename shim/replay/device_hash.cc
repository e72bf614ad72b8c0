#include "shim/replay/device_hash.h"

#include <algorithm>
#include <new>

#include "shim/interpose/real_driver.h"
#include "shim/replay/own_kernels.h"

namespace grape::replay {
namespace {

namespace real = interpose::real;

constexpr std::uint64_t kBytesPerThread = 64;

CUresult enqueue(const OwnKernels& kernels, CUstream stream, DeviceHash::Range range, CUdeviceptr sum) noexcept {
  if (range.bytes == 0) return CUDA_SUCCESS;
  void* parameters[] = {&range.address, &range.bytes, &sum};
  return real::get_cuLaunchKernel()(kernels.hash, own_kernel_blocks(range.bytes, kBytesPerThread), 1, 1,
                                    kOwnKernelBlock, 1, 1, 0, stream, parameters, nullptr);
}

CUresult hash_batch(OwnKernels& kernels, CUstream stream, const DeviceHash::Range* ranges, std::size_t count,
                    std::uint64_t* out) noexcept {
  const std::size_t bytes = count * sizeof(std::uint64_t);
  CUresult result = real::get_cuMemsetD8Async()(kernels.slots, 0, bytes, stream);
  for (std::size_t i = 0; i < count && result == CUDA_SUCCESS; ++i) {
    result = enqueue(kernels, stream, ranges[i], kernels.slots + i * sizeof(std::uint64_t));
  }
  if (result == CUDA_SUCCESS) result = real::get_cuMemcpyDtoHAsync_v2()(out, kernels.slots, bytes, stream);
  // Also after an error: what was enqueued uses the slots.
  const CUresult waited = real::get_cuStreamSynchronize()(stream);
  return result != CUDA_SUCCESS ? result : waited;
}

}  // namespace

// One per context in name only: all that it has is in OwnKernels, found anew for each call.
DeviceHash* DeviceHash::of_current_context(std::string& error) noexcept {
  static DeviceHash hash;
  if (real::get_cuLaunchKernel() == nullptr || real::get_cuMemsetD8Async() == nullptr ||
      real::get_cuMemcpyDtoHAsync_v2() == nullptr || real::get_cuStreamSynchronize() == nullptr) {
    error = "the driver lacks functions";
    return nullptr;
  }
  return own_kernels(error) != nullptr ? &hash : nullptr;
}

CUresult DeviceHash::hash(CUstream stream, const std::vector<Range>& ranges, std::vector<std::uint64_t>& out) noexcept {
  out.clear();
  std::string error;
  OwnKernels* kernels = own_kernels(error);
  if (kernels == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  try {
    std::vector<std::uint64_t> sums(ranges.size());
    const std::lock_guard<std::mutex> lock(kernels->mutex);
    for (std::size_t first = 0; first < ranges.size(); first += OwnKernels::kSlots) {
      const std::size_t count = std::min<std::size_t>(OwnKernels::kSlots, ranges.size() - first);
      const CUresult result = hash_batch(*kernels, stream, ranges.data() + first, count, sums.data() + first);
      if (result != CUDA_SUCCESS) return result;
    }
    out = std::move(sums);
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_SUCCESS;
}

}  // namespace grape::replay
