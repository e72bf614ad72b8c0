#include "context.h"

#include <array>

#include "capture.h"
#include "faults.h"
#include "handles.h"
#include "memory.h"
#include "module.h"
#include "stream.h"

namespace simcuda {

namespace {

std::atomic<bool> driver_initialized{false};
std::atomic<std::uint64_t> next_context_id{1};

// Contexts are few; their memory stays for ever, since workers and events point to it.
struct Registry {
  std::mutex mutex;
  std::vector<std::shared_ptr<Context>> all;
};
Registry& registry() {
  static Registry& made = *new Registry;
  return made;
}

struct PrimaryContext {
  std::mutex mutex;
  Context* context = nullptr;
  unsigned references = 0;
  unsigned flags = 0;
};
PrimaryContext& primary(CUdevice device) {
  static auto& made = *new std::array<PrimaryContext, kMostDevices>;
  return made[static_cast<std::size_t>(device)];
}

// Plain data, so that it works until the thread's very end.
struct ContextStack {
  CUcontext entries[64];
  unsigned depth;
};
thread_local ContextStack stack;

CUcontext top() { return stack.depth == 0 ? nullptr : stack.entries[stack.depth - 1]; }

Context* create_context(CUdevice device, unsigned flags, bool is_primary) {
  auto context = std::make_shared<Context>();
  context->device = device;
  context->flags = flags;
  context->primary = is_primary;
  context->id = next_context_id.fetch_add(1);
  context->limits[CU_LIMIT_STACK_SIZE] = 1024;
  context->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20;
  context->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
  context->limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
  context->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
  context->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 128;
  context->legacy_stream = std::make_shared<Stream>(context.get(), CU_STREAM_DEFAULT, 0);
  context->legacy_stream->legacy = true;
  context->legacy_stream->handle = CU_STREAM_LEGACY;
  context->handle = create_handle<CUcontext>(context);
  std::lock_guard<std::mutex> lock(registry().mutex);
  registry().all.push_back(context);
  return context.get();
}

CUresult create_current(CUcontext* result, unsigned flags, CUdevice device) {
  SIM_TRY(check_device(device));
  if (result == nullptr || (flags & ~unsigned{CU_CTX_FLAGS_MASK}) != 0) return CUDA_ERROR_INVALID_VALUE;
  *result = create_context(device, flags, false)->handle;
  return api::cuCtxPushCurrent_v2(*result);
}

// Ends the primary context; the next retain makes a new one, which often gets the same handle.
void drop_primary(PrimaryContext& p) {
  Context* gone = p.context;
  p.context = nullptr;
  if (gone != nullptr) destroy_context(*gone);
}

}  // namespace

bool initialized() { return driver_initialized.load(std::memory_order_acquire); }

CUresult check_device(CUdevice device) {
  if (!initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  return device >= 0 && device < settings.devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult context_of(CUcontext handle, Context** context) {
  if (handle == nullptr) return current_context(context);
  if (!initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  *context = find_handle<Context>(handle);
  if (*context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return static_cast<CUresult>((*context)->sticky.load(std::memory_order_relaxed));
}

CUresult current_context(Context** context) {
  if (!initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  const CUcontext handle = top();
  if (handle == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *context = find_handle<Context>(handle);
  if (*context == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return static_cast<CUresult>((*context)->sticky.load(std::memory_order_relaxed));
}

void for_each_context(const std::function<void(Context&)>& visit) {
  std::vector<std::shared_ptr<Context>> all;
  {
    std::lock_guard<std::mutex> lock(registry().mutex);
    all = registry().all;
  }
  for (const auto& context : all) {
    if (!context->destroyed) visit(*context);
  }
}

void fail_context(Context& context, CUresult error) {
  int none = 0;
  context.sticky.compare_exchange_strong(none, static_cast<int>(error));
}

void forget_sticky_errors() {
  for_each_context([](Context& context) { context.sticky = 0; });
}

CUresult synchronize(Context& context, bool blocking_only) {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    std::lock_guard<std::mutex> lock(context.streams_mutex);
    streams = context.streams;
    for (const auto& entry : context.per_thread) streams.push_back(entry.second);
  }
  streams.push_back(context.legacy_stream);
  for (const auto& stream : streams) {
    if (stream->blocking() || !blocking_only) stream->wait_all();
  }
  return static_cast<CUresult>(context.sticky.load());
}

void destroy_context(Context& context) {
  synchronize(context);
  context.destroyed = true;
  std::vector<std::shared_ptr<Stream>> streams;
  {
    std::lock_guard<std::mutex> lock(context.streams_mutex);
    streams.swap(context.streams);
    for (const auto& entry : context.per_thread) streams.push_back(entry.second);
    context.per_thread.clear();
  }
  for (const auto& stream : streams) {
    if (stream->handle != CU_STREAM_PER_THREAD) destroy_handle<Stream>(stream->handle);
    stream->close();
  }
  context.legacy_stream->close();
  unload_context_modules(context.handle);
  Memory::instance().release_context(context.handle);
  destroy_handle<Context>(context.handle);
}

CUresult api::cuInit(unsigned flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  driver_initialized.store(true, std::memory_order_release);
  return CUDA_SUCCESS;
}

CUresult api::cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  SIM_TRY(check_device(device));
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  PrimaryContext& p = primary(device);
  std::lock_guard<std::mutex> lock(p.mutex);
  if (p.context == nullptr) p.context = create_context(device, p.flags, true);
  ++p.references;
  *context = p.context->handle;
  return CUDA_SUCCESS;
}

CUresult api::cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  SIM_TRY(check_device(device));
  PrimaryContext& p = primary(device);
  std::lock_guard<std::mutex> lock(p.mutex);
  if (p.references == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--p.references == 0) drop_primary(p);
  return CUDA_SUCCESS;
}

CUresult api::cuDevicePrimaryCtxReset_v2(CUdevice device) {
  SIM_TRY(check_device(device));
  PrimaryContext& p = primary(device);
  std::lock_guard<std::mutex> lock(p.mutex);
  drop_primary(p);
  p.references = 0;
  return CUDA_SUCCESS;
}

CUresult api::cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
  SIM_TRY(check_device(device));
  PrimaryContext& p = primary(device);
  std::lock_guard<std::mutex> lock(p.mutex);
  p.flags = flags;
  if (p.context != nullptr) p.context->flags = flags;
  return CUDA_SUCCESS;
}

CUresult api::cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  SIM_TRY(check_device(device));
  PrimaryContext& p = primary(device);
  std::lock_guard<std::mutex> lock(p.mutex);
  if (flags != nullptr) *flags = p.flags;
  if (active != nullptr) *active = p.context != nullptr;
  return CUDA_SUCCESS;
}

CUresult api::cuDevicePrimaryCtxRelease(CUdevice device) { return api::cuDevicePrimaryCtxRelease_v2(device); }
CUresult api::cuDevicePrimaryCtxReset(CUdevice device) { return api::cuDevicePrimaryCtxReset_v2(device); }
CUresult api::cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags) {
  return api::cuDevicePrimaryCtxSetFlags_v2(device, flags);
}

CUresult api::cuCtxCreate(CUcontext* context, unsigned flags, CUdevice device) {
  return create_current(context, flags, device);
}
CUresult api::cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device) {
  return create_current(context, flags, device);
}
CUresult api::cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam* affinity, int count, unsigned flags,
                             CUdevice device) {
  if (count < 0 || (count > 0 && affinity == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  return create_current(context, flags, device);
}
CUresult api::cuCtxCreate_v4(CUcontext* context, CUctxCreateParams*, unsigned flags, CUdevice device) {
  return create_current(context, flags, device);
}

CUresult api::cuCtxDestroy_v2(CUcontext handle) {
  if (!initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  const std::shared_ptr<Context> context = share_handle<Context>(handle);
  if (context == nullptr || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  if (top() == handle) --stack.depth;
  destroy_context(*context);
  return CUDA_SUCCESS;
}
CUresult api::cuCtxDestroy(CUcontext handle) { return api::cuCtxDestroy_v2(handle); }

CUresult api::cuCtxPushCurrent_v2(CUcontext handle) {
  if (!initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  if (find_handle<Context>(handle) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (stack.depth == 64) return CUDA_ERROR_UNKNOWN;
  stack.entries[stack.depth++] = handle;
  return CUDA_SUCCESS;
}
CUresult api::cuCtxPushCurrent(CUcontext handle) { return api::cuCtxPushCurrent_v2(handle); }

CUresult api::cuCtxPopCurrent_v2(CUcontext* handle) {
  if (!initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  if (stack.depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
  --stack.depth;
  if (handle != nullptr) *handle = stack.entries[stack.depth];
  return CUDA_SUCCESS;
}
CUresult api::cuCtxPopCurrent(CUcontext* handle) { return api::cuCtxPopCurrent_v2(handle); }

CUresult api::cuCtxSetCurrent(CUcontext handle) {
  if (!initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  if (handle == nullptr) {
    if (stack.depth > 0) --stack.depth;
    return CUDA_SUCCESS;
  }
  if (find_handle<Context>(handle) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (stack.depth == 0) stack.depth = 1;
  stack.entries[stack.depth - 1] = handle;
  return CUDA_SUCCESS;
}

CUresult api::cuCtxGetCurrent(CUcontext* handle) {
  if (!initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *handle = top();
  return CUDA_SUCCESS;
}

}  // namespace simcuda
