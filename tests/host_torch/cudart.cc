// libcudart.so.13 by the driver's public functions, as far as PyTorch's core uses it: the real one asks the driver for
// tables that are documented nowhere, which the simulated driver does not have. Errors of both have the same numbers.
// Kernels that were compiled into libraries are no more than names: to launch one, but for the one that sleeps, fails,
// and says which.
#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "tests/host_torch/driver.h"

namespace {

using host_torch::Driver;

thread_local cudaError_t g_last = cudaSuccess;

cudaError_t said(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) g_last = error;
  return error;
}

// Of the launch that is being put together.
struct Configuration {
  dim3 grid, block;
  std::size_t shared;
  cudaStream_t stream;
};
thread_local Configuration g_configuration;

// What `call`, given the driver, says.
template <typename Call>
cudaError_t by_driver(Call call) {
  const Driver* functions = host_torch::driver();
  if (functions == nullptr) return said(cudaErrorInsufficientDriver);
  return said(static_cast<cudaError_t>(call(*functions)));
}

thread_local int g_device = 0;

// Retained once, and never released.
CUresult primary_context(const Driver& functions, int device, CUcontext& context) {
  static std::mutex mutex;
  static auto& retained = *new std::map<int, CUcontext>;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto known = retained.find(device);
  if (known == retained.end()) {
    const CUresult result = functions.cuDevicePrimaryCtxRetain(&context, device);
    if (result == CUDA_SUCCESS) retained.emplace(device, context);
    return result;
  }
  context = known->second;
  return CUDA_SUCCESS;
}

CUdeviceptr address_of(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

int attribute(const Driver& functions, CUdevice_attribute which) {
  int value = 0;
  functions.cuDeviceGetAttribute(&value, which, 0);
  return value;
}

cudaError_t not_there(const char* what) {
  std::fprintf(stderr, "host_torch: %s is not simulated\n", what);
  return said(cudaErrorNotSupported);
}

// Kernels by the host's function that stands for each.
std::map<const void*, std::string>& kernels() {
  static auto* known = new std::map<const void*, std::string>;
  return *known;
}
std::mutex g_kernels;

CUkernel delay_kernel(const Driver& functions) {
  constexpr char kImage[] = "SIMCUDA MODULE 1\n_Z5delayj\n";
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  functions.cuLibraryLoadData(&library, kImage, nullptr, nullptr, 0, nullptr, nullptr, 0);
  functions.cuLibraryGetKernel(&kernel, library, "_Z5delayj");
  return kernel;
}

// torch.cuda._sleep(); a device has some 1,000 cycles in a microsecond.
cudaError_t sleep(std::int64_t cycles, cudaStream_t stream) {
  return by_driver([&](const Driver& d) {
    static const CUkernel kernel = delay_kernel(d);
    auto microseconds = static_cast<unsigned>(cycles / 1000);
    void* parameters[] = {&microseconds};
    return d.cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
  });
}

cudaError_t launch(const std::string& kernel, void** parameters, cudaStream_t stream) {
  if (kernel.find("11spin_kernel") != std::string::npos)
    return sleep(*static_cast<std::int64_t*>(parameters[0]), stream);
  return not_there(("the kernel " + kernel).c_str());
}

std::string name_of(const void* function) {
  const std::lock_guard<std::mutex> lock(g_kernels);
  const auto found = kernels().find(function);
  return found != kernels().end() ? found->second : "of no name";
}

}  // namespace

// Devices.
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  return by_driver([&](const Driver& d) { return d.cuDeviceGetCount(count); });
}
// That of the context that is current, whoever made it that; where there is none, the one that was set last.
cudaError_t cudaGetDevice(int* device) {
  return by_driver([&](const Driver& d) {
    CUcontext current = nullptr;
    *device = g_device;
    const CUresult result = d.cuCtxGetCurrent(&current);
    return result == CUDA_SUCCESS && current != nullptr ? d.cuCtxGetDevice(device) : CUDA_SUCCESS;
  });
}
cudaError_t cudaSetDevice(int device) {
  return by_driver([&](const Driver& d) {
    CUcontext context = nullptr;
    CUresult result = primary_context(d, device, context);
    if (result == CUDA_SUCCESS) result = d.cuCtxSetCurrent(context);
    if (result == CUDA_SUCCESS) g_device = device;
    return result;
  });
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return by_driver([&](const Driver& d) {
    std::memset(properties, 0, sizeof *properties);
    const CUresult result = d.cuDeviceGetName(properties->name, sizeof properties->name, device);
    if (result != CUDA_SUCCESS) return result;
    d.cuDeviceTotalMem(&properties->totalGlobalMem, 0);
    properties->major = attribute(d, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    properties->minor = attribute(d, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    properties->multiProcessorCount = attribute(d, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    // Before CUDA 13 another number stood in its place, and it came next.
    if (HOST_TORCH_CUDA < 13) *(&properties->multiProcessorCount + 1) = properties->multiProcessorCount;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = 1024;
    properties->maxThreadsPerMultiProcessor = 2048;
    for (int i = 0; i < 3; ++i) properties->maxThreadsDim[i] = i == 2 ? 64 : 1024;
    for (int i = 0; i < 3; ++i) properties->maxGridSize[i] = i == 0 ? 0x7FFFFFFF : 65535;
    properties->sharedMemPerBlock = properties->sharedMemPerBlockOptin = properties->sharedMemPerMultiprocessor = 49152;
    properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
    properties->unifiedAddressing = properties->canMapHostMemory = properties->concurrentKernels = 1;
    properties->l2CacheSize = 1 << 25;
    properties->textureAlignment = 512;
    return CUDA_SUCCESS;
  });
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device) {
  return by_driver(
      [&](const Driver& d) { return d.cuDeviceGetAttribute(value, static_cast<CUdevice_attribute>(which), device); });
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int) {
  std::snprintf(id, static_cast<std::size_t>(length), "0000:00:00.0");
  return said(cudaSuccess);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return by_driver([&](const Driver& d) { return d.cuCtxGetStreamPriorityRange(least, greatest); });
}
cudaError_t cudaDeviceSynchronize() {
  return by_driver([](const Driver& d) { return d.cuCtxSynchronize(); });
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) { return *can = 0, said(cudaSuccess); }
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return said(cudaErrorInvalidDevice); }
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 0;
  return by_driver([&](const Driver& d) { return d.cuDriverGetVersion(version); });
}
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, said(cudaSuccess); }
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version,
                                             unsigned long long flags, cudaDriverEntryPointQueryResult* found) {
  CUdriverProcAddressQueryResult status{};
  if (host_torch::driver() == nullptr) return said(cudaErrorInsufficientDriver);
  const CUresult result = host_torch::get_proc_address()(name, function, static_cast<int>(version), flags, &status);
  if (found != nullptr) *found = static_cast<cudaDriverEntryPointQueryResult>(status);
  return said(static_cast<cudaError_t>(result));
}
cudaError_t cudaProfilerStart() {
  return by_driver([](const Driver& d) { return d.cuProfilerStart(); });
}
cudaError_t cudaProfilerStop() {
  return by_driver([](const Driver& d) { return d.cuProfilerStop(); });
}

// Errors.
const char* cudaGetErrorName(cudaError_t error) { return error == cudaSuccess ? "cudaSuccess" : "cudaError"; }
const char* cudaGetErrorString(cudaError_t error) {
  thread_local char text[64];
  std::snprintf(text, sizeof text, "error %d of the CUDA driver", static_cast<int>(error));
  return text;
}
cudaError_t cudaGetLastError() {
  const cudaError_t last = g_last;
  g_last = cudaSuccess;
  return last;
}
cudaError_t cudaPeekAtLastError() { return g_last; }

// Memory.
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  return by_driver([&](const Driver& d) { return d.cuMemAlloc(reinterpret_cast<CUdeviceptr*>(memory), bytes); });
}
cudaError_t cudaFree(void* memory) {
  return by_driver([&](const Driver& d) { return memory != nullptr ? d.cuMemFree(address_of(memory)) : CUDA_SUCCESS; });
}
cudaError_t cudaMallocAsync(void**, std::size_t, cudaStream_t) { return not_there("cudaMallocAsync"); }
cudaError_t cudaFreeAsync(void*, cudaStream_t) { return not_there("cudaFreeAsync"); }
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t*, int) { return not_there("cudaDeviceGetDefaultMemPool"); }
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return not_there("a pool of memory"); }
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return not_there("a pool of memory"); }
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, std::size_t) {
  return not_there("a pool of memory");
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, std::size_t) { return not_there("a pool of memory"); }
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned flags) {
  return by_driver([&](const Driver& d) { return d.cuMemHostAlloc(memory, bytes, flags); });
}
cudaError_t cudaFreeHost(void* memory) {
  return by_driver([&](const Driver& d) { return d.cuMemFreeHost(memory); });
}
cudaError_t cudaHostRegister(void* memory, std::size_t bytes, unsigned flags) {
  return by_driver([&](const Driver& d) { return d.cuMemHostRegister(memory, bytes, flags); });
}
cudaError_t cudaHostUnregister(void* memory) {
  return by_driver([&](const Driver& d) { return d.cuMemHostUnregister(memory); });
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return by_driver([&](const Driver& d) { return d.cuMemGetInfo(free, total); });
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return by_driver([&](const Driver& d) {
    CUmemorytype kind{};
    int device = 0;
    CUdeviceptr on_device = 0;
    void* on_host = nullptr;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                   CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void* values[] = {&kind, &device, &on_device, &on_host};
    const CUresult result = d.cuPointerGetAttributes(4, which, values, address_of(pointer));
    *attributes = {};
    attributes->type = kind == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice
                       : kind == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost
                                                    : cudaMemoryTypeUnregistered;
    attributes->device = device;
    attributes->devicePointer = reinterpret_cast<void*>(on_device);
    attributes->hostPointer = on_host;
    return result;
  });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return by_driver([&](const Driver& d) {
    switch (kind) {
      case cudaMemcpyHostToDevice:
        return d.cuMemcpyHtoDAsync(address_of(to), from, bytes, stream);
      case cudaMemcpyDeviceToHost:
        return d.cuMemcpyDtoHAsync(to, address_of(from), bytes, stream);
      case cudaMemcpyDeviceToDevice:
        return d.cuMemcpyDtoDAsync(address_of(to), address_of(from), bytes, stream);
      default:
        return d.cuMemcpyAsync(address_of(to), address_of(from), bytes, stream);
    }
  });
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  return by_driver([&](const Driver& d) { return d.cuMemcpy(address_of(to), address_of(from), bytes); });
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes, cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}
cudaError_t cudaMemcpy2DAsync(void*, std::size_t, const void*, std::size_t, std::size_t, std::size_t, cudaMemcpyKind,
                              cudaStream_t) {
  return not_there("cudaMemcpy2DAsync");
}
cudaError_t cudaMemset(void* memory, int value, std::size_t bytes) {
  return by_driver(
      [&](const Driver& d) { return d.cuMemsetD8(address_of(memory), static_cast<unsigned char>(value), bytes); });
}
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  return by_driver([&](const Driver& d) {
    return d.cuMemsetD8Async(address_of(memory), static_cast<unsigned char>(value), bytes, stream);
  });
}
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t*, void*) { return not_there("memory of other processes"); }
cudaError_t cudaIpcOpenMemHandle(void**, cudaIpcMemHandle_t, unsigned) {
  return not_there("memory of other processes");
}
cudaError_t cudaIpcCloseMemHandle(void*) { return not_there("memory of other processes"); }

// Streams.
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return by_driver([&](const Driver& d) { return d.cuStreamCreateWithPriority(stream, flags, priority); });
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return by_driver([&](const Driver& d) { return d.cuStreamDestroy(stream); });
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return by_driver([&](const Driver& d) { return d.cuStreamGetPriority(stream, priority); });
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return by_driver([&](const Driver& d) { return d.cuStreamQuery(stream); });
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return by_driver([&](const Driver& d) { return d.cuStreamSynchronize(stream); });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return by_driver([&](const Driver& d) { return d.cuStreamWaitEvent(stream, event, flags); });
}
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data, unsigned flags) {
  return by_driver([&](const Driver& d) {
    return d.cuStreamAddCallback(stream, reinterpret_cast<CUstreamCallback>(callback), data, flags);
  });
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return by_driver([&](const Driver& d) { return d.cuLaunchHostFunc(stream, function, data); });
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return by_driver(
      [&](const Driver& d) { return d.cuStreamIsCapturing(stream, reinterpret_cast<CUstreamCaptureStatus*>(status)); });
}
#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges,
                                     std::size_t* count) {
  return by_driver([&](const Driver& d) {
    cuuint64_t number = 0;
    const CUresult result =
        d.cuStreamGetCaptureInfo(stream, reinterpret_cast<CUstreamCaptureStatus*>(status), &number, graph, nodes,
                                 reinterpret_cast<const CUgraphEdgeData**>(edges), count);
    if (id != nullptr) *id = number;
    return result;
  });
}
#else
cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                        cudaGraph_t* graph, const cudaGraphNode_t** nodes, std::size_t* count) {
  return by_driver([&](const Driver& d) {
    cuuint64_t number = 0;
    const CUresult result = d.cuStreamGetCaptureInfo(stream, reinterpret_cast<CUstreamCaptureStatus*>(status), &number,
                                                     graph, nodes, count);
    if (id != nullptr) *id = number;
    return result;
  });
}
cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* found) {
  return cudaGetDriverEntryPointByVersion(name, function, CUDART_VERSION, flags, found);
}
#endif
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return by_driver(
      [&](const Driver& d) { return d.cuStreamBeginCapture(stream, static_cast<CUstreamCaptureMode>(mode)); });
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return by_driver([&](const Driver& d) { return d.cuStreamEndCapture(stream, graph); });
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return by_driver([&](const Driver& d) {
    return d.cuThreadExchangeStreamCaptureMode(reinterpret_cast<CUstreamCaptureMode*>(mode));
  });
}

// Events.
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return by_driver([&](const Driver& d) { return d.cuEventCreate(event, flags); });
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return by_driver([&](const Driver& d) { return d.cuEventDestroy(event); });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return by_driver([&](const Driver& d) { return d.cuEventQuery(event); });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return by_driver([&](const Driver& d) { return d.cuEventRecord(event, stream); });
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return by_driver([&](const Driver& d) { return d.cuEventRecordWithFlags(event, stream, flags); });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return by_driver([&](const Driver& d) { return d.cuEventSynchronize(event); });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  return by_driver([&](const Driver& d) { return d.cuEventElapsedTime(milliseconds, begin, end); });
}
cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t*, cudaEvent_t) { return not_there("events of other processes"); }
cudaError_t cudaIpcOpenEventHandle(cudaEvent_t*, cudaIpcEventHandle_t) {
  return not_there("events of other processes");
}

// Graphs.
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return by_driver([&](const Driver& d) { return d.cuGraphDestroy(graph); });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return by_driver([&](const Driver& d) { return d.cuGraphExecDestroy(exec); });
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  return by_driver([&](const Driver& d) { return d.cuGraphGetNodes(graph, nodes, count); });
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags) {
  return by_driver([&](const Driver& d) { return d.cuGraphInstantiateWithFlags(exec, graph, flags); });
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return by_driver([&](const Driver& d) { return d.cuGraphLaunch(exec, stream); });
}
cudaError_t cudaGraphDebugDotPrint(cudaGraph_t, const char*, unsigned) { return not_there("cudaGraphDebugDotPrint"); }
#if CUDART_VERSION >= 13000
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t, cudaGraphNode_t*, cudaGraphEdgeData*, std::size_t*) {
#else
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t, cudaGraphNode_t*, std::size_t*) {
#endif
  return not_there("cudaGraphNodeGetDependencies");
}

// Compiled kernels.
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void** parameters) {
  return launch(name_of(function), parameters, config->stream);
}
cudaError_t cudaLaunchKernel(const void* function, dim3, dim3, void** parameters, std::size_t, cudaStream_t stream) {
  return launch(name_of(function), parameters, stream);
}
cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3, dim3, void** parameters, std::size_t,
                                        cudaStream_t stream) {
  return launch(name_of(function), parameters, stream);
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  return said(cudaSuccess);
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return said(cudaSuccess); }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, std::size_t,
                                                                   unsigned) {
  return *blocks = 1, said(cudaSuccess);
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, std::size_t) {
  return *blocks = 1, said(cudaSuccess);
}
cudaError_t cudaGetSymbolAddress(void**, const void*) { return not_there("a kernel's variable"); }
cudaError_t cudaMemcpyToSymbol(const void*, const void*, std::size_t, std::size_t, cudaMemcpyKind) {
  return not_there("a kernel's variable");
}

extern "C" {
void** __cudaRegisterFatBinary(void* image) {
  static void* handles[1];
  handles[0] = image;
  return handles;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  const std::lock_guard<std::mutex> lock(g_kernels);
  kernels()[function] = name;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void** parameters, std::size_t, cudaStream_t stream) {
  return launch(name_of(kernel), parameters, stream);
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, cudaStream_t stream) {
  g_configuration = {grid, block, shared, stream};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
  *grid = g_configuration.grid;
  *block = g_configuration.block;
  *shared = g_configuration.shared;
  *static_cast<cudaStream_t*>(stream) = g_configuration.stream;
  return cudaSuccess;
}
}
