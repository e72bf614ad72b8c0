// The driver's own functions that Grape itself calls, all of them queries. Looked up at their first use; null where
// the driver is too old. Any thread.
#pragma once

#include <atomic>

#include "shim/interpose/driver_api.h"

namespace grape::interpose {

#define GRAPE_REAL_DRIVER(X)                                                   \
  X(cuDriverGetVersion, PFN_cuDriverGetVersion_v2020)                          \
  X(cuFuncGetName, PFN_cuFuncGetName_v12030)                                   \
  X(cuFuncGetParamInfo, PFN_cuFuncGetParamInfo_v12040)                         \
  X(cuFuncGetModule, PFN_cuFuncGetModule_v11000)                               \
  X(cuKernelGetName, PFN_cuKernelGetName_v12030)                               \
  X(cuKernelGetParamInfo, PFN_cuKernelGetParamInfo_v12040)                     \
  X(cuKernelGetLibrary, PFN_cuKernelGetLibrary_v12050)                         \
  X(cuStreamIsCapturing, PFN_cuStreamIsCapturing_v10000)                       \
  X(cuStreamIsCapturing_ptsz, PFN_cuStreamIsCapturing_v10000_ptsz)             \
  X(cuGraphGetNodes, PFN_cuGraphGetNodes_v10000)                               \
  X(cuGraphGetEdges, PFN_cuGraphGetEdges_v10000)                               \
  X(cuGraphGetEdges_v2, PFN_cuGraphGetEdges_v12030)                            \
  X(cuGraphNodeGetType, PFN_cuGraphNodeGetType_v10000)                         \
  X(cuGraphKernelNodeGetParams, PFN_cuGraphKernelNodeGetParams_v10000)         \
  X(cuGraphKernelNodeGetParams_v2, PFN_cuGraphKernelNodeGetParams_v12000)      \
  X(cuGraphMemcpyNodeGetParams, PFN_cuGraphMemcpyNodeGetParams_v10000)         \
  X(cuGraphMemsetNodeGetParams, PFN_cuGraphMemsetNodeGetParams_v10000)         \
  X(cuGraphHostNodeGetParams, PFN_cuGraphHostNodeGetParams_v10000)             \
  X(cuGraphChildGraphNodeGetGraph, PFN_cuGraphChildGraphNodeGetGraph_v10000)   \
  X(cuGraphEventRecordNodeGetEvent, PFN_cuGraphEventRecordNodeGetEvent_v11010) \
  X(cuGraphEventWaitNodeGetEvent, PFN_cuGraphEventWaitNodeGetEvent_v11010)     \
  X(cuGraphMemAllocNodeGetParams, PFN_cuGraphMemAllocNodeGetParams_v11040)     \
  X(cuGraphMemFreeNodeGetParams, PFN_cuGraphMemFreeNodeGetParams_v11040)

namespace detail {
void* look_up(std::atomic<void*>& slot, const char* symbol) noexcept;
}

namespace real {
// NOLINTBEGIN(bugprone-macro-parentheses): the parameters are types and names
#define GRAPE_X(symbol, type)                                                                 \
  inline std::atomic<void*> slot_##symbol{nullptr};                                           \
  inline type get_##symbol() noexcept {                                                       \
    return reinterpret_cast<type>(grape::interpose::detail::look_up(slot_##symbol, #symbol)); \
  }
GRAPE_REAL_DRIVER(GRAPE_X)
#undef GRAPE_X
// NOLINTEND(bugprone-macro-parentheses)
}  // namespace real

// Looks them all up anew: the driver was unloaded, and another one has taken its place.
void forget_real_functions() noexcept;

}  // namespace grape::interpose
