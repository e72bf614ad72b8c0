#include "tests/shim/interpose/fake_driver.h"

#include <cstring>

#include "shim/driver/driver_api.h"

using grape::interpose::kRowCount;
using grape::interpose::test::FakeFunction;
using grape::interpose::test::FakeGraph;
using grape::interpose::test::FakeNode;
using grape::interpose::test::FakeState;

extern "C" {
__attribute__((visibility("hidden"))) std::uint64_t fake_counts[kRowCount];
__attribute__((visibility("hidden"))) int fake_result = 0;
#define GRAPE_HOOK(base, symbol, version, type, per_thread, class_, action, arguments, effects) \
  extern const char fake_address_of_##symbol[] __asm__(#symbol);
#include "shim/driver/hooks.def"
#undef GRAPE_HOOK
}

namespace {

FakeState g_state{fake_counts, &fake_result};

struct Entry {
  const char* base;
  int version;
  bool per_thread;
  const void* function;
};

// NOLINTBEGIN(bugprone-macro-parentheses): the parameters are numbers and names
const Entry kEntries[] = {
#define GRAPE_HOOK(base, symbol, version, type, per_thread, class_, action, arguments, effects) \
  {#base, version, per_thread != 0, fake_address_of_##symbol},
#include "shim/driver/hooks.def"
#undef GRAPE_HOOK
};
// NOLINTEND(bugprone-macro-parentheses)

CUresult unknown_function(int) {
  ++g_state.unknown_calls;
  return CUDA_SUCCESS;
}
CUresult newer_function(void*, void*) {
  ++g_state.newer_calls;
  return CUDA_SUCCESS;
}
CUresult query_function(void*) {
  ++g_state.query_calls;
  return CUDA_SUCCESS;
}

// The newest variant not newer than `version`, of the flavour if there is one.
const void* find(const char* name, int version, cuuint64_t flags) {
  if (version >= 14000 && std::strcmp(name, "cuCtxSynchronize") == 0) {
    return reinterpret_cast<const void*>(&newer_function);
  }
  if (std::strcmp(name, "cuQuiteUnknown") == 0) return reinterpret_cast<const void*>(&unknown_function);
  if (std::strcmp(name, "cuCtxGetCurrent") == 0) return reinterpret_cast<const void*>(&query_function);
  const Entry* best = nullptr;
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  for (const Entry& entry : kEntries) {
    if (std::strcmp(entry.base, name) != 0 || entry.version > version || entry.version > g_state.newest) continue;
    if (entry.per_thread && !per_thread) continue;
    if (best == nullptr || entry.per_thread > best->per_thread ||
        (entry.per_thread == best->per_thread && entry.version > best->version)) {
      best = &entry;
    }
  }
  return best != nullptr ? best->function : nullptr;
}

CUresult give(const char* name, void** function, int version, cuuint64_t flags) {
  if (name == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *function = const_cast<void*>(find(name, version, flags));
  return *function != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult name_of(const char** name, const void* handle, bool kernel) {
  ++g_state.names_asked;
  const auto* function = static_cast<const FakeFunction*>(handle);
  if (function->kernel != kernel) return CUDA_ERROR_INVALID_HANDLE;
  *name = function->name;
  return CUDA_SUCCESS;
}

CUresult parameter_of(const void* handle, std::size_t index, std::size_t* offset, std::size_t* bytes) {
  const auto* function = static_cast<const FakeFunction*>(handle);
  if (index >= function->parameter_count) return CUDA_ERROR_INVALID_VALUE;
  *offset = function->parameters[index].offset;
  *bytes = function->parameters[index].bytes;
  return CUDA_SUCCESS;
}

CUresult copy_params(const void* node, void* params) {
  const auto* fake = static_cast<const FakeNode*>(node);
  if (fake->params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(params, fake->params, fake->params_bytes);
  return CUDA_SUCCESS;
}

}  // namespace

#define FAKE extern "C" __attribute__((visibility("default")))

FAKE FakeState* fake_state() { return &g_state; }

FAKE CUresult fake_get_proc_address(const char* name, void** function, int version,
                                    cuuint64_t flags) __asm__("cuGetProcAddress");
FAKE CUresult fake_get_proc_address(const char* name, void** function, int version, cuuint64_t flags) {
  ++fake_counts[grape::interpose::kRow_cuGetProcAddress];
  return give(name, function, version, flags);
}
FAKE CUresult fake_get_proc_address_v2(const char* name, void** function, int version, cuuint64_t flags,
                                       CUdriverProcAddressQueryResult* status) __asm__("cuGetProcAddress_v2");
FAKE CUresult fake_get_proc_address_v2(const char* name, void** function, int version, cuuint64_t flags,
                                       CUdriverProcAddressQueryResult* status) {
  ++fake_counts[grape::interpose::kRow_cuGetProcAddress_v2];
  const CUresult result = give(name, function, version, flags);
  if (status != nullptr) {
    *status = result == CUDA_SUCCESS ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return result;
}

FAKE CUresult fake_stream_create(CUstream* stream, unsigned) __asm__("cuStreamCreate");
FAKE CUresult fake_stream_create(CUstream* stream, unsigned) {
  ++fake_counts[grape::interpose::kRow_cuStreamCreate];
  if (stream != nullptr && fake_result == 0) *stream = static_cast<CUstream>(g_state.out_handle);
  return static_cast<CUresult>(fake_result);
}
FAKE CUresult fake_instantiate(CUgraphExec* exec, CUgraph, unsigned long long) __asm__("cuGraphInstantiateWithFlags");
FAKE CUresult fake_instantiate(CUgraphExec* exec, CUgraph, unsigned long long) {
  ++fake_counts[grape::interpose::kRow_cuGraphInstantiateWithFlags];
  if (exec != nullptr && fake_result == 0) *exec = static_cast<CUgraphExec>(g_state.out_handle);
  return static_cast<CUresult>(fake_result);
}

// As a driver might: the function runs before the call returns, on the same thread.
FAKE CUresult fake_launch_host(CUstream, CUhostFn function, void* data) __asm__("cuLaunchHostFunc");
FAKE CUresult fake_launch_host(CUstream, CUhostFn function, void* data) {
  ++fake_counts[grape::interpose::kRow_cuLaunchHostFunc];
  if (function != nullptr && fake_result == 0) function(data);
  return static_cast<CUresult>(fake_result);
}

FAKE CUresult cuQuiteUnknown(int value) { return unknown_function(value); }
FAKE CUresult cuCtxGetCurrent(CUcontext* context) { return query_function(context); }
FAKE CUresult cuDriverGetVersion(int* version) {
  *version = g_state.newest;
  return CUDA_SUCCESS;
}
FAKE CUresult cuFuncGetName(const char** name, CUfunction function) { return name_of(name, function, false); }
FAKE CUresult cuKernelGetName(const char** name, CUkernel kernel) { return name_of(name, kernel, true); }
FAKE CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t* offset, size_t* bytes) {
  return parameter_of(function, index, offset, bytes);
}
FAKE CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t* offset, size_t* bytes) {
  return parameter_of(kernel, index, offset, bytes);
}

FAKE CUresult fake_is_capturing(CUstream, CUstreamCaptureStatus* status) __asm__("cuStreamIsCapturing");
FAKE CUresult fake_is_capturing(CUstream, CUstreamCaptureStatus* status) {
  ++g_state.captures_asked;
  *status = static_cast<CUstreamCaptureStatus>(g_state.capture_status);
  return CUDA_SUCCESS;
}
FAKE CUresult fake_is_capturing_ptsz(CUstream, CUstreamCaptureStatus* status) __asm__("cuStreamIsCapturing_ptsz");
FAKE CUresult fake_is_capturing_ptsz(CUstream stream, CUstreamCaptureStatus* status) {
  return fake_is_capturing(stream, status);
}

FAKE CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  const auto* fake = reinterpret_cast<const FakeGraph*>(graph);
  for (std::size_t i = 0; nodes != nullptr && i < *count && i < fake->node_count; ++i) {
    nodes[i] = reinterpret_cast<CUgraphNode>(fake->nodes[i]);
  }
  *count = fake->node_count;
  return CUDA_SUCCESS;
}
FAKE CUresult fake_get_edges(CUgraph graph, CUgraphNode* from, CUgraphNode* to,
                             size_t* count) __asm__("cuGraphGetEdges");
FAKE CUresult fake_get_edges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, size_t* count) {
  const auto* fake = reinterpret_cast<const FakeGraph*>(graph);
  for (std::size_t i = 0; from != nullptr && i < *count && i < fake->edge_count; ++i) {
    from[i] = reinterpret_cast<CUgraphNode>(fake->from[i]);
    to[i] = reinterpret_cast<CUgraphNode>(fake->to[i]);
  }
  *count = fake->edge_count;
  return CUDA_SUCCESS;
}
FAKE CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
  *type = static_cast<CUgraphNodeType>(reinterpret_cast<const FakeNode*>(node)->type);
  return CUDA_SUCCESS;
}
FAKE CUresult fake_kernel_params(CUgraphNode node, void* params) __asm__("cuGraphKernelNodeGetParams_v2");
FAKE CUresult fake_kernel_params(CUgraphNode node, void* params) { return copy_params(node, params); }
FAKE CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS_v1* params) {
  return copy_params(node, params);
}
FAKE CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph* graph) {
  *graph = static_cast<CUgraph>(const_cast<void*>(reinterpret_cast<const FakeNode*>(node)->params));
  return CUDA_SUCCESS;
}
