#include "shim/device/device_spread.h"

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <new>

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
static_assert(sizeof(SpreadSums) <= OwnKernels::kSums * sizeof(std::uint64_t));

bool has_functions() noexcept {
  return real::get_cuLaunchKernel() != nullptr && real::get_cuMemsetD8Async() != nullptr &&
         real::get_cuMemcpyDtoHAsync_v2() != nullptr && real::get_cuStreamSynchronize() != nullptr;
}

// Few blocks, as each thread adds to the same results at its end.
CUresult launch(OwnKernels& kernels, CUstream stream, Element element, std::uint64_t one, std::uint64_t other,
                std::uint64_t bytes) noexcept {
  constexpr std::uint32_t kMostBlocks = 128;
  const std::uint32_t blocks = std::min(own_kernel_blocks(bytes, bytes_of(element)), kMostBlocks);
  std::uint64_t count = bytes / bytes_of(element), type = static_cast<std::uint64_t>(element);
  void* parameters[] = {&one, &other, &count, &type, &kernels.sums};
  return real::get_cuLaunchKernel()(kernels.spread, blocks, 1, 1, kOwnKernelBlock, 1, 1, 0, stream, parameters,
                                    nullptr);
}

// `call`: which one the result is of.
CUresult enqueue(OwnKernels& kernels, CUstream stream, Element element, std::uint64_t one, std::uint64_t other,
                 std::uint64_t bytes, SpreadSums& out, const char*& call) noexcept {
  call = "cuMemsetD8Async";
  CUresult result = real::get_cuMemsetD8Async()(kernels.sums, 0, sizeof out, stream);
  if (result != CUDA_SUCCESS) return result;
  call = "cuLaunchKernel";
  result = launch(kernels, stream, element, one, other, bytes);
  if (result != CUDA_SUCCESS) return result;
  call = "cuMemcpyDtoHAsync";
  return real::get_cuMemcpyDtoHAsync_v2()(&out, kernels.sums, sizeof out, stream);
}

}  // namespace

bool measure(CUstream stream, Element element, std::uint64_t one, std::uint64_t other, std::uint64_t bytes,
             Distance& out, refusal::Refusal& error) noexcept {
  out = {};
  try {
    if (element == Element::kOther || bytes % bytes_of(element) != 0) {
      error = driver_error("measure", CUDA_ERROR_INVALID_VALUE);
      return false;
    }
    if (bytes == 0) return true;
    if (!has_functions()) {
      error = refusal::make(refusal::driver_without_functions);
      return false;
    }
    OwnKernels* kernels = own_kernels(error);
    if (kernels == nullptr) return false;
    SpreadSums sums;
    const char* call = nullptr;
    const std::lock_guard<std::mutex> lock(kernels->mutex);
    const CUresult result = enqueue(*kernels, stream, element, one, other, bytes, sums, call);
    // Also after an error: what was enqueued uses the sums.
    const CUresult waited = real::get_cuStreamSynchronize()(stream);
    if (failed(result, call, error) || failed(waited, "cuStreamSynchronize", error)) return false;
    out = {sums.count, sums.most, sums.squares, sums.all};
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace grape::device
