// The driver as libcudart takes it: by dlsym for cuGetProcAddress, and by that for the rest, so that whoever is
// preloaded sees each call.
#pragma once

#include <cuda.h>
#include <cudaProfiler.h>

namespace host_torch {

// All that both libraries call.
#define HOST_TORCH_DRIVER(X)           \
  X(cuInit)                            \
  X(cuDriverGetVersion)                \
  X(cuDeviceGetCount)                  \
  X(cuDeviceGetName)                   \
  X(cuDeviceTotalMem)                  \
  X(cuDeviceGetAttribute)              \
  X(cuDevicePrimaryCtxRetain)          \
  X(cuCtxGetCurrent)                   \
  X(cuCtxSetCurrent)                   \
  X(cuCtxGetDevice)                    \
  X(cuCtxGetStreamPriorityRange)       \
  X(cuCtxSynchronize)                  \
  X(cuMemAlloc)                        \
  X(cuMemFree)                         \
  X(cuMemHostAlloc)                    \
  X(cuMemFreeHost)                     \
  X(cuMemHostRegister)                 \
  X(cuMemHostUnregister)               \
  X(cuMemGetInfo)                      \
  X(cuMemcpy)                          \
  X(cuMemcpyAsync)                     \
  X(cuMemcpyHtoDAsync)                 \
  X(cuMemcpyDtoHAsync)                 \
  X(cuMemcpyDtoDAsync)                 \
  X(cuMemsetD8)                        \
  X(cuMemsetD8Async)                   \
  X(cuPointerGetAttributes)            \
  X(cuStreamCreateWithPriority)        \
  X(cuStreamDestroy)                   \
  X(cuStreamGetPriority)               \
  X(cuStreamQuery)                     \
  X(cuStreamSynchronize)               \
  X(cuStreamWaitEvent)                 \
  X(cuStreamIsCapturing)               \
  X(cuStreamGetCaptureInfo)            \
  X(cuStreamBeginCapture)              \
  X(cuStreamEndCapture)                \
  X(cuThreadExchangeStreamCaptureMode) \
  X(cuStreamAddCallback)               \
  X(cuLaunchHostFunc)                  \
  X(cuEventCreate)                     \
  X(cuEventDestroy)                    \
  X(cuEventQuery)                      \
  X(cuEventRecord)                     \
  X(cuEventRecordWithFlags)            \
  X(cuEventSynchronize)                \
  X(cuEventElapsedTime)                \
  X(cuGraphDestroy)                    \
  X(cuGraphExecDestroy)                \
  X(cuGraphGetNodes)                   \
  X(cuGraphInstantiateWithFlags)       \
  X(cuGraphLaunch)                     \
  X(cuLibraryLoadData)                 \
  X(cuLibraryGetKernel)                \
  X(cuLaunchKernel)                    \
  X(cuProfilerStart)                   \
  X(cuProfilerStop)

struct Driver {
#define HOST_TORCH_FIELD(name) decltype(&::name) name = nullptr;
  HOST_TORCH_DRIVER(HOST_TORCH_FIELD)
#undef HOST_TORCH_FIELD
};

using GetProcAddress = decltype(&::cuGetProcAddress);

// Null: there is no driver. The primary context is current on the calling thread from then on.
const Driver* driver() noexcept;
GetProcAddress get_proc_address() noexcept;

}  // namespace host_torch
