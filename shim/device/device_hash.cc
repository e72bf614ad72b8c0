#include "shim/device/device_hash.h"

#include <algorithm>
#include <new>

#include "shim/device/own_kernels.h"
#include "shim/driver/real_driver.h"

namespace grape::device {
namespace {

namespace real = driver::real;

// Some ranges of a hash, with room for their sums on the device.
struct Batch {
  const DeviceHash::Range* ranges = nullptr;
  const std::uint64_t* copies = nullptr;  // null: none
  std::size_t count = 0;
};

// The ranges cut up, so that there are enough blocks for the whole device, and never more than there is room for.
void cut(const OwnKernels& kernels, const Batch& batch, std::vector<HashChunk>& chunks) {
  constexpr std::uint64_t kLeast = std::uint64_t{64} * kOwnKernelBlock;  // a round of the kernel's wide loop
  constexpr std::uint64_t kMost = OwnKernels::kChunks - OwnKernels::kSums;
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < batch.count; ++i) total += batch.ranges[i].bytes;
  const std::uint64_t chunk = std::max<std::uint64_t>((total / kMost + kLeast) / kLeast, 1) * kLeast;
  chunks.clear();
  for (std::size_t i = 0; i < batch.count; ++i) {
    const DeviceHash::Range& range = batch.ranges[i];
    for (std::uint64_t at = 0; at < range.bytes; at += chunk) {
      chunks.push_back({range.address + at, std::min(chunk, range.bytes - at), at / sizeof(std::uint64_t),
                        kernels.sums + i * sizeof(std::uint64_t), batch.copies != nullptr ? batch.copies[i] + at : 0});
    }
  }
}

CUresult enqueue(const OwnKernels& kernels, CUstream stream, const std::vector<HashChunk>& chunks) noexcept {
  if (chunks.empty()) return CUDA_SUCCESS;
  CUdeviceptr table = kernels.sums + OwnKernels::kSums * sizeof(std::uint64_t);
  const CUresult result =
      real::get_cuMemcpyHtoDAsync_v2()(table, chunks.data(), chunks.size() * sizeof(HashChunk), stream);
  if (result != CUDA_SUCCESS) return result;
  void* parameters[] = {&table};
  return real::get_cuLaunchKernel()(kernels.hash, static_cast<unsigned>(chunks.size()), 1, 1, kOwnKernelBlock, 1, 1, 0,
                                    stream, parameters, nullptr);
}

CUresult hash_batch(const OwnKernels& kernels, CUstream stream, const Batch& batch, std::vector<HashChunk>& chunks,
                    std::uint64_t* out) {
  const std::size_t bytes = batch.count * sizeof(std::uint64_t);
  cut(kernels, batch, chunks);
  CUresult result = real::get_cuMemsetD8Async()(kernels.sums, 0, bytes, stream);
  if (result == CUDA_SUCCESS) result = enqueue(kernels, stream, chunks);
  if (result == CUDA_SUCCESS) result = real::get_cuMemcpyDtoHAsync_v2()(out, kernels.sums, bytes, stream);
  // Also after an error: what was enqueued uses the sums and the chunks.
  const CUresult waited = real::get_cuStreamSynchronize()(stream);
  return result != CUDA_SUCCESS ? result : waited;
}

CUresult hash_all(CUstream stream, const std::vector<DeviceHash::Range>& ranges, const std::uint64_t* copies,
                  std::vector<std::uint64_t>& out) noexcept {
  out.clear();
  refusal::Refusal error;
  OwnKernels* kernels = own_kernels(error);
  if (kernels == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  try {
    std::vector<std::uint64_t> sums(ranges.size());
    std::vector<HashChunk> chunks;
    const std::lock_guard<std::mutex> lock(kernels->mutex);
    for (std::size_t first = 0; first < ranges.size(); first += OwnKernels::kSums) {
      const Batch batch{ranges.data() + first, copies != nullptr ? copies + first : nullptr,
                        std::min<std::size_t>(OwnKernels::kSums, ranges.size() - first)};
      const CUresult result = hash_batch(*kernels, stream, batch, chunks, sums.data() + first);
      if (result != CUDA_SUCCESS) return result;
    }
    out = std::move(sums);
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_SUCCESS;
}

}  // namespace

// One per context in name only: all that it has is in OwnKernels, found anew for each call.
DeviceHash* DeviceHash::of_current_context(refusal::Refusal& error) noexcept {
  static DeviceHash hash;
  if (real::get_cuLaunchKernel() == nullptr || real::get_cuMemsetD8Async() == nullptr ||
      real::get_cuMemcpyDtoHAsync_v2() == nullptr || real::get_cuMemcpyHtoDAsync_v2() == nullptr ||
      real::get_cuStreamSynchronize() == nullptr) {
    error = refusal::make(refusal::driver_without_functions);
    return nullptr;
  }
  return own_kernels(error) != nullptr ? &hash : nullptr;
}

CUresult DeviceHash::hash(CUstream stream, const std::vector<Range>& ranges, std::vector<std::uint64_t>& out) noexcept {
  return hash_all(stream, ranges, nullptr, out);
}

CUresult DeviceHash::hash_and_copy(CUstream stream, const std::vector<Range>& ranges,
                                   const std::vector<std::uint64_t>& copies, std::vector<std::uint64_t>& out) noexcept {
  if (copies.size() == ranges.size()) return hash_all(stream, ranges, copies.data(), out);
  out.clear();
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace grape::device
