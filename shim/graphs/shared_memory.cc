#include "shim/graphs/shared_memory.h"

#include "shim/driver/real_driver.h"

namespace grape::graphs {

namespace real = driver::real;

constexpr auto kLimit = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;

SharedMemoryLimit::SharedMemoryLimit(const CUDA_KERNEL_NODE_PARAMS& node) noexcept
    : kernel_(node.kern), function_(node.func) {
  const auto needed = static_cast<int>(node.sharedMemBytes);
  if (needed == 0 || real::call_cuCtxGetDevice(&device_) != CUDA_SUCCESS) return;
  raised_ = get(before_) && before_ < needed && set(needed);
}

SharedMemoryLimit::~SharedMemoryLimit() {
  if (raised_) set(before_);
}

bool SharedMemoryLimit::get(int& bytes) const noexcept {
  return (kernel_ != nullptr ? real::call_cuKernelGetAttribute(&bytes, kLimit, kernel_, device_)
                             : real::call_cuFuncGetAttribute(&bytes, kLimit, function_)) == CUDA_SUCCESS;
}

bool SharedMemoryLimit::set(int bytes) const noexcept {
  return (kernel_ != nullptr ? real::call_cuKernelSetAttribute(kLimit, bytes, kernel_, device_)
                             : real::call_cuFuncSetAttribute(function_, kLimit, bytes)) == CUDA_SUCCESS;
}

}  // namespace grape::graphs
