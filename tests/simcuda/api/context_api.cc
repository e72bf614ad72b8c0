// Calls on the current (or a given) context.
#include "capture.h"
#include "context.h"
#include "handles.h"
#include "stream.h"

namespace simcuda {

namespace {

CUresult synchronize_checked(Context& context) {
  if (captures_active()) SIM_TRY(check_context_synchronization(context));
  return synchronize(context);
}

template <typename T, typename Field>
CUresult get_field(T* value, Field Context::*field) {
  Context* context = nullptr;
  SIM_TRY(current_context(&context));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *value = static_cast<T>((context->*field).load());
  return CUDA_SUCCESS;
}

}  // namespace

// The two signatures must not be mixed up: the older one ignores its argument register, the newer follows it.
CUresult api::cuCtxSynchronize() {
  Context* context = nullptr;
  SIM_TRY(current_context(&context));
  return synchronize_checked(*context);
}
CUresult api::cuCtxSynchronize_v2(CUcontext handle) {
  Context* context = nullptr;
  SIM_TRY(context_of(handle, &context));
  return synchronize_checked(*context);
}

CUresult api::cuCtxGetDevice(CUdevice* device) {
  Context* context = nullptr;
  SIM_TRY(current_context(&context));
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = context->device;
  return CUDA_SUCCESS;
}
CUresult api::cuCtxGetDevice_v2(CUdevice* device, CUcontext handle) {
  Context* context = nullptr;
  SIM_TRY(context_of(handle, &context));
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = context->device;
  return CUDA_SUCCESS;
}

CUresult api::cuCtxGetId(CUcontext handle, unsigned long long* id) {
  Context* context = nullptr;
  SIM_TRY(context_of(handle, &context));
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = context->id;
  return CUDA_SUCCESS;
}

CUresult api::cuCtxGetFlags(unsigned* flags) { return get_field(flags, &Context::flags); }

CUresult api::cuCtxSetFlags(unsigned flags) {
  Context* context = nullptr;
  SIM_TRY(current_context(&context));
  if ((flags & ~unsigned{CU_CTX_FLAGS_MASK}) != 0) return CUDA_ERROR_INVALID_VALUE;
  context->flags = flags;
  return CUDA_SUCCESS;
}

CUresult api::cuCtxSetLimit(CUlimit limit, size_t value) {
  Context* context = nullptr;
  SIM_TRY(current_context(&context));
  if (limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  context->limits[limit] = value;
  return CUDA_SUCCESS;
}

CUresult api::cuCtxGetLimit(size_t* value, CUlimit limit) {
  Context* context = nullptr;
  SIM_TRY(current_context(&context));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  *value = context->limits[limit];
  return CUDA_SUCCESS;
}

CUresult api::cuCtxGetCacheConfig(CUfunc_cache* config) { return get_field(config, &Context::cache_config); }
CUresult api::cuCtxSetCacheConfig(CUfunc_cache config) {
  Context* context = nullptr;
  SIM_TRY(current_context(&context));
  context->cache_config = config;
  return CUDA_SUCCESS;
}

CUresult api::cuCtxGetSharedMemConfig(CUsharedconfig* config) { return get_field(config, &Context::shared_config); }
CUresult api::cuCtxSetSharedMemConfig(CUsharedconfig config) {
  Context* context = nullptr;
  SIM_TRY(current_context(&context));
  context->shared_config = config;
  return CUDA_SUCCESS;
}

CUresult api::cuCtxGetApiVersion(CUcontext handle, unsigned* version) {
  Context* context = nullptr;
  SIM_TRY(context_of(handle, &context));
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = 3020;
  return CUDA_SUCCESS;
}

CUresult api::cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  Context* context = nullptr;
  SIM_TRY(current_context(&context));
  if (least != nullptr) *least = kLeastPriority;
  if (greatest != nullptr) *greatest = kGreatestPriority;
  return CUDA_SUCCESS;
}

CUresult api::cuCtxAttach(CUcontext* handle, unsigned) {
  Context* context = nullptr;
  SIM_TRY(current_context(&context));
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *handle = context->handle;
  return CUDA_SUCCESS;
}
CUresult api::cuCtxDetach(CUcontext handle) {
  Context* context = nullptr;
  return context_of(handle, &context);
}

CUresult api::cuCtxGetExecAffinity(CUexecAffinityParam*, CUexecAffinityType) {
  return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
}

CUresult api::cuCtxEnablePeerAccess(CUcontext, unsigned) { return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED; }
CUresult api::cuCtxDisablePeerAccess(CUcontext) { return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED; }

CUresult api::cuCtxRecordEvent(CUcontext handle, CUevent event_handle) {
  Context* context = nullptr;
  SIM_TRY(context_of(handle, &context));
  Event* event = find_handle<Event>(event_handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  record_event(*context->legacy_stream, *event);  // it comes behind all blocking streams
  return CUDA_SUCCESS;
}

CUresult api::cuCtxWaitEvent(CUcontext handle, CUevent event_handle) {
  Context* context = nullptr;
  SIM_TRY(context_of(handle, &context));
  Event* event = find_handle<Event>(event_handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::shared_ptr<EventRecord> record;
  {
    std::lock_guard<std::mutex> lock(event->mutex);
    record = event->record;
  }
  if (record != nullptr) context->legacy_stream->enqueue(EmptyWork{}, {{record->stream, record->ticket}});
  return CUDA_SUCCESS;
}

CUresult api::cuProfilerInitialize(const char*, const char*, CUoutput_mode) { return CUDA_ERROR_PROFILER_DISABLED; }
CUresult api::cuProfilerStart() { return initialized() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED; }
CUresult api::cuProfilerStop() { return initialized() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED; }

CUresult api::cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget, CUflushGPUDirectRDMAWritesScope) {
  Context* context = nullptr;
  return current_context(&context);
}

}  // namespace simcuda
