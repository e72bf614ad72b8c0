#include "shim/device/device_spread.h"

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <new>
#include <utility>

#include "shim/device/own_kernels.h"
#include "shim/driver/real_driver.h"

namespace grape::device {
namespace {

namespace real = driver::real;

// The kernel knows the types by these numbers, and the results by these offsets.
static_assert(static_cast<int>(Element::kFloat) == 0 && static_cast<int>(Element::kDouble) == 1 &&
              static_cast<int>(Element::kHalf) == 2 && static_cast<int>(Element::kBfloat16) == 3);
static_assert(offsetof(SpreadSums, most) == 8 && offsetof(SpreadSums, squares) == 12 &&
              offsetof(SpreadSums, all) == 16);
static_assert(sizeof(SpreadSums) % sizeof(std::uint64_t) == 0, "the kernel adds 64 bits to each");

bool has_functions() noexcept {
  return real::get_cuLaunchKernel() != nullptr && real::get_cuMemsetD8Async() != nullptr &&
         real::get_cuMemcpyDtoHAsync_v2() != nullptr && real::get_cuStreamSynchronize() != nullptr;
}

// Few blocks, as each adds to the same results at its end.
CUresult launch(OwnKernels& kernels, CUstream stream, const Pair& pair, CUdeviceptr sums) noexcept {
  constexpr std::uint32_t kMostBlocks = 128;
  const std::uint32_t blocks = std::min(own_kernel_blocks(pair.bytes, bytes_of(pair.element)), kMostBlocks);
  std::uint64_t one = pair.one, other = pair.other;
  std::uint64_t count = pair.bytes / bytes_of(pair.element), type = static_cast<std::uint64_t>(pair.element);
  void* parameters[] = {&one, &other, &count, &type, &sums};
  return real::get_cuLaunchKernel()(kernels.spread, blocks, 1, 1, kOwnKernelBlock, 1, 1, 0, stream, parameters,
                                    nullptr);
}

// `sums` has as many as there are pairs, and no more than there is room for. `call`: which one the result is of.
CUresult enqueue(OwnKernels& kernels, CUstream stream, const Pair* pairs, std::vector<SpreadSums>& sums,
                 const char*& call) noexcept {
  const std::size_t bytes = sums.size() * sizeof(SpreadSums);
  call = "cuMemsetD8Async";
  CUresult result = real::get_cuMemsetD8Async()(kernels.sums, 0, bytes, stream);
  if (result == CUDA_SUCCESS) call = "cuLaunchKernel";
  for (std::size_t i = 0; i < sums.size() && result == CUDA_SUCCESS; ++i) {
    if (pairs[i].bytes != 0) result = launch(kernels, stream, pairs[i], kernels.sums + i * sizeof(SpreadSums));
  }
  if (result != CUDA_SUCCESS) return result;
  call = "cuMemcpyDtoHAsync";
  return real::get_cuMemcpyDtoHAsync_v2()(sums.data(), kernels.sums, bytes, stream);
}

bool measure_batch(OwnKernels& kernels, CUstream stream, const Pair* pairs, std::vector<SpreadSums>& sums,
                   refusal::Refusal& error) {
  const char* call = nullptr;
  const std::lock_guard<std::mutex> lock(kernels.mutex);
  const CUresult result = enqueue(kernels, stream, pairs, sums, call);
  // Also after an error: what was enqueued uses the sums.
  const CUresult waited = real::get_cuStreamSynchronize()(stream);
  return !failed(result, call, error) && !failed(waited, "cuStreamSynchronize", error);
}

bool has_numbers(const Pair& pair) noexcept {
  return pair.element != Element::kOther && pair.bytes % bytes_of(pair.element) == 0;
}

}  // namespace

bool measure(CUstream stream, const std::vector<Pair>& pairs, std::vector<Distance>& out,
             refusal::Refusal& error) noexcept {
  constexpr std::size_t kBatch = OwnKernels::kSums * sizeof(std::uint64_t) / sizeof(SpreadSums);
  out.clear();
  try {
    if (!std::all_of(pairs.begin(), pairs.end(), has_numbers)) {
      error = driver_error("measure", CUDA_ERROR_INVALID_VALUE);
      return false;
    }
    if (!has_functions()) {
      error = refusal::make(refusal::driver_without_functions);
      return false;
    }
    OwnKernels* kernels = own_kernels(error);
    if (kernels == nullptr) return false;
    std::vector<Distance> distances;
    distances.reserve(pairs.size());
    for (std::size_t first = 0; first < pairs.size(); first += kBatch) {
      std::vector<SpreadSums> sums(std::min(kBatch, pairs.size() - first));
      if (!measure_batch(*kernels, stream, pairs.data() + first, sums, error)) return false;
      for (const SpreadSums& sum : sums) distances.push_back({sum.count, sum.most, sum.squares, sum.all});
    }
    out = std::move(distances);
    return true;
  } catch (const std::bad_alloc&) {
    error = refusal::make(refusal::no_host_memory);
    return false;
  }
}

}  // namespace grape::device
