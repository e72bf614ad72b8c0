// The CUDA driver as libcudart takes it: by dlsym for cuGetProcAddress, and by that for the rest.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "tests/sim_torch/c10.h"

namespace simtorch {

#define SIM_TORCH_DRIVER(X)   \
  X(cuInit)                   \
  X(cuDevicePrimaryCtxRetain) \
  X(cuCtxSetCurrent)          \
  X(cuCtxGetCurrent)          \
  X(cuCtxSynchronize)         \
  X(cuLibraryLoadData)        \
  X(cuLibraryGetKernel)       \
  X(cuMemAlloc)               \
  X(cuMemFree)                \
  X(cuMemAllocHost)           \
  X(cuMemcpyHtoDAsync)        \
  X(cuMemcpyDtoHAsync)        \
  X(cuMemcpyDtoDAsync)        \
  X(cuMemsetD8Async)          \
  X(cuStreamCreate)           \
  X(cuStreamSynchronize)      \
  X(cuStreamWaitEvent)        \
  X(cuEventCreate)            \
  X(cuEventRecord)            \
  X(cuEventDestroy)           \
  X(cuLaunchKernel)

struct Driver {
#define SIM_TORCH_FIELD(name) decltype(&::name) name = nullptr;
  SIM_TORCH_DRIVER(SIM_TORCH_FIELD)
#undef SIM_TORCH_FIELD
};

// Throws without a driver. Makes the primary context current on the calling thread.
SIM_EXPORT const Driver& driver();
// Throws std::runtime_error, or c10::OutOfMemory.
SIM_EXPORT void check(CUresult result, const char* what);
// By the kernel's name, loaded at its first use.
SIM_EXPORT CUfunction kernel(const char* name);

}  // namespace simtorch
