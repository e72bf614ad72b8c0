// What PyTorch's libraries link against besides cudart.cc and call for what is not simulated only. PyTorch 2.15 binds
// all of it as it is loaded; versions before find out that it is missing when they call it.
#include <cuda_runtime_api.h>

#include <cstdio>

namespace {

cudaError_t not_there(const char* name) {
  std::fprintf(stderr, "host_torch: %s is not simulated\n", name);
  return cudaErrorNotSupported;
}

}  // namespace

cudaError_t cudaDeviceGetGraphMemAttribute(int, cudaGraphMemAttributeType, void*) { return not_there(__func__); }
cudaError_t cudaDeviceSetGraphMemAttribute(int, cudaGraphMemAttributeType, void*) { return not_there(__func__); }
cudaError_t cudaMallocHost(void**, std::size_t) { return not_there(__func__); }
cudaError_t cudaMallocManaged(void**, std::size_t, unsigned) { return not_there(__func__); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t*, unsigned) { return not_there(__func__); }

cudaError_t cudaGraphAddNode(cudaGraphNode_t*, cudaGraph_t, const cudaGraphNode_t*, const cudaGraphEdgeData*,
                             std::size_t, cudaGraphNodeParams*) {
  return not_there(__func__);
}
cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle*, cudaGraph_t, unsigned, unsigned) {
  return not_there(__func__);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned long long) { return not_there(__func__); }
cudaError_t cudaGraphRetainUserObject(cudaGraph_t, cudaUserObject_t, unsigned, unsigned) { return not_there(__func__); }
cudaError_t cudaUserObjectCreate(cudaUserObject_t*, void*, cudaHostFn_t, unsigned, unsigned) {
  return not_there(__func__);
}
cudaError_t cudaUserObjectRelease(cudaUserObject_t, unsigned) { return not_there(__func__); }
cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t, cudaGraph_t, const cudaGraphNode_t*, const cudaGraphEdgeData*,
                                          std::size_t, cudaStreamCaptureMode) {
  return not_there(__func__);
}
#if CUDART_VERSION >= 13000
cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t, cudaGraphNode_t*, const cudaGraphEdgeData*, std::size_t,
                                                unsigned) {
  return not_there(__func__);
}
#else
cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t, cudaGraphNode_t*, std::size_t, unsigned) {
  return not_there(__func__);
}
cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t*, cudaGraph_t, const cudaGraphNode_t*, std::size_t) {
  return not_there(__func__);
}
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t, cudaGraphNodeType*) { return not_there(__func__); }
#endif

cudaError_t cudaLibraryLoadData(cudaLibrary_t*, const void*, cudaJitOption*, void**, unsigned, cudaLibraryOption*,
                                void**, unsigned) {
  return not_there(__func__);
}
cudaError_t cudaLibraryLoadFromFile(cudaLibrary_t*, const char*, cudaJitOption*, void**, unsigned, cudaLibraryOption*,
                                    void**, unsigned) {
  return not_there(__func__);
}
cudaError_t cudaLibraryUnload(cudaLibrary_t) { return not_there(__func__); }
cudaError_t cudaLibraryGetKernel(cudaKernel_t*, cudaLibrary_t, const char*) { return not_there(__func__); }
cudaError_t cudaLibraryGetKernelCount(unsigned*, cudaLibrary_t) { return not_there(__func__); }
cudaError_t cudaLibraryGetGlobal(void**, std::size_t*, cudaLibrary_t, const char*) { return not_there(__func__); }
cudaError_t cudaLibraryGetManaged(void**, std::size_t*, cudaLibrary_t, const char*) { return not_there(__func__); }
cudaError_t cudaLibraryGetUnifiedFunction(void**, cudaLibrary_t, const char*) { return not_there(__func__); }
cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t, cudaFuncAttribute, int, int) { return not_there(__func__); }
