// Asks the driver for the context that is current on the calling thread.
#pragma once

#include "shim/driver/real_driver.h"

namespace grape::driver {

// `out`: null where the thread has none; as it was where the driver does not say.
inline CUresult current_context(CUcontext& out) noexcept { return real::call_cuCtxGetCurrent(&out); }

// Null also where the driver does not say.
inline CUcontext current_context() noexcept {
  CUcontext context = nullptr;
  return current_context(context) == CUDA_SUCCESS ? context : nullptr;
}

}  // namespace grape::driver
