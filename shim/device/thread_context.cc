#include "shim/device/thread_context.h"

#include "shim/driver/current_context.h"
#include "shim/driver/real_driver.h"

namespace grape::replay {
namespace real = driver::real;
namespace {

bool make_primary_current(std::int32_t device) noexcept {
  auto* set = real::get_cuCtxSetCurrent();
  CUcontext context = set != nullptr ? primary_context(device) : nullptr;
  return context != nullptr && set(context) == CUDA_SUCCESS;
}

}  // namespace

// The runtime keeps the primary context alive: what is retained here to get it is given back at once.
CUcontext primary_context(std::int32_t ordinal) noexcept {
  auto* get_device = real::get_cuDeviceGet();
  auto* state = real::get_cuDevicePrimaryCtxGetState();
  auto* retain = real::get_cuDevicePrimaryCtxRetain();
  auto* release = real::get_cuDevicePrimaryCtxRelease_v2();
  CUdevice device = 0;
  unsigned flags = 0;
  int active = 0;
  CUcontext context = nullptr;
  if (get_device == nullptr || state == nullptr || retain == nullptr || release == nullptr ||
      get_device(&device, ordinal) != CUDA_SUCCESS || state(device, &flags, &active) != CUDA_SUCCESS || active == 0 ||
      retain(&context, device) != CUDA_SUCCESS) {
    return nullptr;
  }
  release(device);
  return context;
}

bool have_context(std::int32_t device) noexcept {
  CUcontext context = nullptr;
  if (driver::current_context(context) != CUDA_SUCCESS) return false;
  return context != nullptr || make_primary_current(device);
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
  auto* set = real::get_cuCtxSetCurrent();
  if (set != nullptr) set(before_);
}

}  // namespace grape::replay
