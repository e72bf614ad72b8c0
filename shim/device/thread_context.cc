#include "shim/device/thread_context.h"

#include "shim/driver/current_context.h"
#include "shim/driver/real_driver.h"

namespace grape::device {
namespace real = driver::real;

// The runtime keeps the primary context alive: what is retained here to get it is given back at once.
CUcontext primary_context(std::int32_t ordinal) noexcept {
  CUdevice device = 0;
  unsigned flags = 0;
  int active = 0;
  CUcontext context = nullptr;
  if (real::get_cuDevicePrimaryCtxRelease_v2() == nullptr || real::call_cuDeviceGet(&device, ordinal) != CUDA_SUCCESS ||
      real::call_cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || active == 0 ||
      real::call_cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS) {
    return nullptr;
  }
  real::call_cuDevicePrimaryCtxRelease_v2(device);
  return context;
}

bool have_context(std::int32_t device) noexcept {
  CUcontext context = nullptr;
  if (driver::current_context(context) != CUDA_SUCCESS) return false;
  if (context != nullptr) return true;
  context = primary_context(device);
  return context != nullptr && real::call_cuCtxSetCurrent(context) == CUDA_SUCCESS;
}

void ContextScope::enter() noexcept {
  auto* push = real::get_cuCtxPushCurrent_v2();
  // Who cannot pop must not push.
  const bool able = push != nullptr && real::get_cuCtxPopCurrent_v2() != nullptr;
  result_ = able ? driver::current_context(before_) : CUDA_ERROR_NOT_SUPPORTED;
  if (result_ != CUDA_SUCCESS || before_ == context_) return;
  result_ = push(context_);
  pushed_ = result_ == CUDA_SUCCESS;
}

void ContextScope::leave() noexcept {
  if (!pushed_) return;
  pushed_ = false;
  CUcontext popped = nullptr;
  if (real::get_cuCtxPopCurrent_v2()(&popped) == CUDA_SUCCESS) return;
  // It lies deeper than before, but it is the one that is current.
  real::call_cuCtxSetCurrent(before_);
}

}  // namespace grape::device
