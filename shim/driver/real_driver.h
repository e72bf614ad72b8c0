// The driver's own functions that Grape itself calls: queries, and what it replays with. Looked up at their first use.
// Where the driver is too old, get_...() is null and call_...() gives CUDA_ERROR_NOT_SUPPORTED. Any thread.
#pragma once

#include <atomic>

#include "shim/driver/driver_api.h"

namespace grape::driver {

#define GRAPE_REAL_DRIVER(X)                                                         \
  X(cuDriverGetVersion, PFN_cuDriverGetVersion_v2020)                                \
  X(cuFuncGetName, PFN_cuFuncGetName_v12030)                                         \
  X(cuFuncGetAttribute, PFN_cuFuncGetAttribute_v2020)                                \
  X(cuFuncSetAttribute, PFN_cuFuncSetAttribute_v9000)                                \
  X(cuKernelGetAttribute, PFN_cuKernelGetAttribute_v12000)                           \
  X(cuKernelSetAttribute, PFN_cuKernelSetAttribute_v12000)                           \
  X(cuFuncGetParamInfo, PFN_cuFuncGetParamInfo_v12040)                               \
  X(cuFuncGetModule, PFN_cuFuncGetModule_v11000)                                     \
  X(cuKernelGetName, PFN_cuKernelGetName_v12030)                                     \
  X(cuKernelGetParamInfo, PFN_cuKernelGetParamInfo_v12040)                           \
  X(cuKernelGetLibrary, PFN_cuKernelGetLibrary_v12050)                               \
  X(cuStreamIsCapturing, PFN_cuStreamIsCapturing_v10000)                             \
  X(cuGraphGetNodes, PFN_cuGraphGetNodes_v10000)                                     \
  X(cuGraphGetEdges, PFN_cuGraphGetEdges_v10000)                                     \
  X(cuGraphGetEdges_v2, PFN_cuGraphGetEdges_v12030)                                  \
  X(cuGraphNodeGetType, PFN_cuGraphNodeGetType_v10000)                               \
  X(cuGraphKernelNodeGetParams, PFN_cuGraphKernelNodeGetParams_v10000)               \
  X(cuGraphKernelNodeGetParams_v2, PFN_cuGraphKernelNodeGetParams_v12000)            \
  X(cuGraphMemcpyNodeGetParams, PFN_cuGraphMemcpyNodeGetParams_v10000)               \
  X(cuGraphMemsetNodeGetParams, PFN_cuGraphMemsetNodeGetParams_v10000)               \
  X(cuGraphHostNodeGetParams, PFN_cuGraphHostNodeGetParams_v10000)                   \
  X(cuGraphChildGraphNodeGetGraph, PFN_cuGraphChildGraphNodeGetGraph_v10000)         \
  X(cuGraphEventRecordNodeGetEvent, PFN_cuGraphEventRecordNodeGetEvent_v11010)       \
  X(cuGraphEventWaitNodeGetEvent, PFN_cuGraphEventWaitNodeGetEvent_v11010)           \
  X(cuGraphMemAllocNodeGetParams, PFN_cuGraphMemAllocNodeGetParams_v11040)           \
  X(cuGraphMemFreeNodeGetParams, PFN_cuGraphMemFreeNodeGetParams_v11040)             \
  X(cuCtxGetCurrent, PFN_cuCtxGetCurrent_v4000)                                      \
  X(cuCtxSetCurrent, PFN_cuCtxSetCurrent_v4000)                                      \
  X(cuDeviceGet, PFN_cuDeviceGet_v2000)                                              \
  X(cuDevicePrimaryCtxGetState, PFN_cuDevicePrimaryCtxGetState_v7000)                \
  X(cuDevicePrimaryCtxRetain, PFN_cuDevicePrimaryCtxRetain_v7000)                    \
  X(cuDevicePrimaryCtxRelease_v2, PFN_cuDevicePrimaryCtxRelease_v11000)              \
  X(cuPointerGetAttribute, PFN_cuPointerGetAttribute_v4000)                          \
  X(cuMemGetAddressRange_v2, PFN_cuMemGetAddressRange_v3020)                         \
  X(cuStreamGetFlags, PFN_cuStreamGetFlags_v5050)                                    \
  X(cuStreamGetCtx, PFN_cuStreamGetCtx_v9020)                                        \
  X(cuStreamGetPriority, PFN_cuStreamGetPriority_v5050)                              \
  X(cuGetErrorName, PFN_cuGetErrorName_v6000)                                        \
  X(cuThreadExchangeStreamCaptureMode, PFN_cuThreadExchangeStreamCaptureMode_v10010) \
  X(cuDeviceGetCount, PFN_cuDeviceGetCount_v2000)                                    \
  X(cuDeviceGetName, PFN_cuDeviceGetName_v2000)                                      \
  X(cuDeviceGetAttribute, PFN_cuDeviceGetAttribute_v2000)                            \
  X(cuModuleLoadData, PFN_cuModuleLoadData_v2000)                                    \
  X(cuModuleGetFunction, PFN_cuModuleGetFunction_v2000)                              \
  X(cuModuleUnload, PFN_cuModuleUnload_v2000)                                        \
  X(cuMemAlloc_v2, PFN_cuMemAlloc_v3020)                                             \
  X(cuMemGetInfo_v2, PFN_cuMemGetInfo_v3020)                                         \
  X(cuMemcpyDtoDAsync_v2, PFN_cuMemcpyDtoDAsync_v3020)                               \
  X(cuMemHostRegister_v2, PFN_cuMemHostRegister_v6050)                               \
  X(cuMemHostGetDevicePointer_v2, PFN_cuMemHostGetDevicePointer_v3020)               \
  X(cuMemFree_v2, PFN_cuMemFree_v3020)                                               \
  X(cuMemAddressReserve, PFN_cuMemAddressReserve_v10020)                             \
  X(cuMemAddressFree, PFN_cuMemAddressFree_v10020)                                   \
  X(cuMemCreate, PFN_cuMemCreate_v10020)                                             \
  X(cuMemRelease, PFN_cuMemRelease_v10020)                                           \
  X(cuMemMap, PFN_cuMemMap_v10020)                                                   \
  X(cuMemUnmap, PFN_cuMemUnmap_v10020)                                               \
  X(cuMemSetAccess, PFN_cuMemSetAccess_v10020)                                       \
  X(cuMemsetD8Async, PFN_cuMemsetD8Async_v3020)                                      \
  X(cuMemsetD16Async, PFN_cuMemsetD16Async_v3020)                                    \
  X(cuMemsetD32Async, PFN_cuMemsetD32Async_v3020)                                    \
  X(cuMemcpy3DAsync_v2, PFN_cuMemcpy3DAsync_v3020)                                   \
  X(cuMemcpyDtoHAsync_v2, PFN_cuMemcpyDtoHAsync_v3020)                               \
  X(cuMemcpyHtoDAsync_v2, PFN_cuMemcpyHtoDAsync_v3020)                               \
  X(cuStreamSynchronize, PFN_cuStreamSynchronize_v2000)                              \
  X(cuStreamQuery, PFN_cuStreamQuery_v2000)                                          \
  X(cuStreamWaitEvent, PFN_cuStreamWaitEvent_v3020)                                  \
  X(cuStreamCreate, PFN_cuStreamCreate_v2000)                                        \
  X(cuEventSynchronize, PFN_cuEventSynchronize_v2000)                                \
  X(cuEventCreate, PFN_cuEventCreate_v2000)                                          \
  X(cuEventDestroy_v2, PFN_cuEventDestroy_v4000)                                     \
  X(cuEventRecord, PFN_cuEventRecord_v2000)                                          \
  X(cuLaunchKernel, PFN_cuLaunchKernel_v4000)                                        \
  X(cuLaunchKernelEx, PFN_cuLaunchKernelEx_v11060)                                   \
  X(cuGraphCreate, PFN_cuGraphCreate_v10000)                                         \
  X(cuGraphDestroy, PFN_cuGraphDestroy_v10000)                                       \
  X(cuGraphAddKernelNode_v2, PFN_cuGraphAddKernelNode_v12000)                        \
  X(cuGraphKernelNodeSetAttribute, PFN_cuGraphKernelNodeSetAttribute_v11000)         \
  X(cuGraphInstantiateWithFlags, PFN_cuGraphInstantiateWithFlags_v11040)             \
  X(cuGraphExecKernelNodeSetParams_v2, PFN_cuGraphExecKernelNodeSetParams_v12000)    \
  X(cuGraphExecDestroy, PFN_cuGraphExecDestroy_v10000)                               \
  X(cuGraphLaunch, PFN_cuGraphLaunch_v10000)                                         \
  X(cuGraphUpload, PFN_cuGraphUpload_v11010)                                         \
  X(cuGraphAddMemcpyNode, PFN_cuGraphAddMemcpyNode_v10000)                           \
  X(cuGraphAddMemsetNode, PFN_cuGraphAddMemsetNode_v10000)                           \
  X(cuGraphAddEmptyNode, PFN_cuGraphAddEmptyNode_v10000)                             \
  X(cuGraphAddDependencies, PFN_cuGraphAddDependencies_v10000)                       \
  X(cuGraphAddDependencies_v2, PFN_cuGraphAddDependencies_v12030)                    \
  X(cuGraphKernelNodeGetAttribute, PFN_cuGraphKernelNodeGetAttribute_v11000)         \
  X(cuGraphExecMemcpyNodeSetParams, PFN_cuGraphExecMemcpyNodeSetParams_v10020)       \
  X(cuGraphExecMemsetNodeSetParams, PFN_cuGraphExecMemsetNodeSetParams_v10020)       \
  X(cuGraphNodeSetEnabled, PFN_cuGraphNodeSetEnabled_v11060)                         \
  X(cuGraphExecGetFlags, PFN_cuGraphExecGetFlags_v12000)                             \
  X(cuCtxGetDevice, PFN_cuCtxGetDevice_v2000)                                        \
  X(cuCtxPushCurrent_v2, PFN_cuCtxPushCurrent_v4000)                                 \
  X(cuCtxPopCurrent_v2, PFN_cuCtxPopCurrent_v4000)                                   \
  X(cuEventQuery, PFN_cuEventQuery_v2000)                                            \
  X(cuLibraryGetModule, PFN_cuLibraryGetModule_v12000)

namespace detail {
void* look_up(std::atomic<void*>& slot, const char* symbol) noexcept;
}

namespace real {
// NOLINTBEGIN(bugprone-macro-parentheses): the parameters are types and names
#define GRAPE_X(symbol, type)                                                              \
  inline std::atomic<void*> slot_##symbol{nullptr};                                        \
  inline type get_##symbol() noexcept {                                                    \
    return reinterpret_cast<type>(grape::driver::detail::look_up(slot_##symbol, #symbol)); \
  }                                                                                        \
  template <class... A>                                                                    \
  CUresult call_##symbol(A... arguments) noexcept {                                        \
    auto* function = get_##symbol();                                                       \
    return function != nullptr ? function(arguments...) : CUDA_ERROR_NOT_SUPPORTED;        \
  }
GRAPE_REAL_DRIVER(GRAPE_X)
#undef GRAPE_X
// NOLINTEND(bugprone-macro-parentheses)
}  // namespace real

// Looks them all up anew: the driver was unloaded, and another one has taken its place.
void forget_real_functions() noexcept;

}  // namespace grape::driver
