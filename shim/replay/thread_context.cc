#include "shim/replay/thread_context.h"

#include <cuda.h>

#include "shim/interpose/real_driver.h"

namespace grape::replay {
namespace real = interpose::real;
namespace {

// The runtime keeps the primary context alive: what is retained here to get it is given back at once.
bool make_primary_current(std::int32_t ordinal) noexcept {
  auto* get_device = real::get_cuDeviceGet();
  auto* state = real::get_cuDevicePrimaryCtxGetState();
  auto* retain = real::get_cuDevicePrimaryCtxRetain();
  auto* release = real::get_cuDevicePrimaryCtxRelease_v2();
  auto* set = real::get_cuCtxSetCurrent();
  CUdevice device = 0;
  unsigned flags = 0;
  int active = 0;
  CUcontext context = nullptr;
  if (get_device == nullptr || state == nullptr || retain == nullptr || release == nullptr || set == nullptr ||
      get_device(&device, ordinal) != CUDA_SUCCESS || state(device, &flags, &active) != CUDA_SUCCESS || active == 0 ||
      retain(&context, device) != CUDA_SUCCESS) {
    return false;
  }
  const bool done = set(context) == CUDA_SUCCESS;
  release(device);
  return done;
}

}  // namespace

bool have_context(std::int32_t device) noexcept {
  auto* get = real::get_cuCtxGetCurrent();
  CUcontext context = nullptr;
  if (get == nullptr || get(&context) != CUDA_SUCCESS) return false;
  return context != nullptr || make_primary_current(device);
}

}  // namespace grape::replay
