// Allocation of device and host memory, and what pointers are.
#include <algorithm>
#include <cstring>

#include "capture.h"
#include "context.h"
#include "faults.h"
#include "handles.h"
#include "memory.h"
#include "stream.h"

namespace simcuda {

namespace {

CUresult host_alloc(void** address, std::size_t bytes, unsigned flags) {
  Context* context = nullptr;
  SIM_TRY(current_context(&context));
  SIM_TRY(check_unsafe_call());
  return Memory::instance().allocate_host(bytes, MemoryKind::kHost, context->handle, flags, address);
}

CUdevice device_of(CUcontext handle) {
  const Context* context = handle != nullptr ? find_handle<Context>(handle) : nullptr;
  return context != nullptr ? context->device : 0;
}

// One attribute of a pointer. `data` is of the type that cuda.h gives for the attribute.
CUresult attribute_of(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  const std::optional<Allocation> found = Memory::instance().find(address);
  if (!found) return CUDA_ERROR_INVALID_VALUE;
  const bool on_host = found->kind == MemoryKind::kHost || found->kind == MemoryKind::kRegistered;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext*>(data) = found->context;
      break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<CUmemorytype*>(data) = on_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *static_cast<CUdeviceptr*>(data) = address;
      break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!on_host && found->kind != MemoryKind::kManaged) return CUDA_ERROR_INVALID_VALUE;
      *static_cast<void**>(data) = reinterpret_cast<void*>(address);
      break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      *static_cast<int*>(data) = 0;
      break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      *static_cast<unsigned long long*>(data) = found->id;
      break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *static_cast<int*>(data) = found->kind == MemoryKind::kManaged;
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(data) = found->device != kAnyDevice ? found->device : device_of(found->context);
      break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      *static_cast<int*>(data) = 0;
      break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      *static_cast<CUdeviceptr*>(data) = found->base;
      break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      *static_cast<size_t*>(data) = found->size;
      break;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      *static_cast<int*>(data) = found->accessible;
      break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      *static_cast<cuuint64_t*>(data) = 0;
      break;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      *static_cast<int*>(data) = 0;
      break;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      *static_cast<CUmemAccess_flags*>(data) =
          found->accessible ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
      break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      *static_cast<CUmemoryPool*>(data) = found->pool;
      break;
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      *static_cast<unsigned long long*>(data) = found->id;
      break;
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      *static_cast<bool*>(data) = false;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  Context* context = nullptr;
  SIM_TRY(current_context(&context));
  const std::size_t limit = settings.memory;
  const std::size_t used = Memory::instance().used();
  if (total != nullptr) *total = limit;
  if (free_bytes != nullptr) *free_bytes = limit - std::min(limit, used);
  return CUDA_SUCCESS;
}

CUresult api::cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  Context* context = nullptr;
  SIM_TRY(current_context(&context));
  SIM_TRY(check_unsafe_call());
  return Memory::instance().allocate(bytes, MemoryKind::kDevice, context->handle, nullptr, address);
}

CUresult api::cuMemAllocPitch_v2(CUdeviceptr* address, size_t* pitch, size_t width, size_t height, unsigned element) {
  if (pitch == nullptr || (element != 4 && element != 8 && element != 16)) return CUDA_ERROR_INVALID_VALUE;
  *pitch = (width + 511) / 512 * 512;
  return api::cuMemAlloc_v2(address, *pitch * height);
}

// Waits for all work, as the real driver does in effect.
CUresult api::cuMemFree_v2(CUdeviceptr address) {
  Context* context = nullptr;
  SIM_TRY(current_context(&context));
  SIM_TRY(check_unsafe_call());
  if (address == 0) return CUDA_SUCCESS;
  SIM_TRY(synchronize(*context));
  Memory& memory = Memory::instance();
  const CUresult result = memory.release(address, MemoryKind::kDevice, MemoryKind::kAsync);
  return result == CUDA_SUCCESS ? result : memory.release(address, MemoryKind::kManaged, MemoryKind::kManaged);
}

CUresult api::cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr address) {
  Context* context = nullptr;
  SIM_TRY(current_context(&context));
  const std::optional<Allocation> found = Memory::instance().find(address);
  if (!found) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = found->base;
  if (size != nullptr) *size = found->size;
  return CUDA_SUCCESS;
}

CUresult api::cuMemAllocManaged(CUdeviceptr* address, size_t bytes, unsigned flags) {
  Context* context = nullptr;
  SIM_TRY(current_context(&context));
  SIM_TRY(check_unsafe_call());
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) return CUDA_ERROR_INVALID_VALUE;
  void* memory = nullptr;
  SIM_TRY(Memory::instance().allocate_host(bytes, MemoryKind::kManaged, context->handle, flags, &memory));
  *address = reinterpret_cast<CUdeviceptr>(memory);
  return CUDA_SUCCESS;
}

CUresult api::cuMemAllocHost_v2(void** address, size_t bytes) { return host_alloc(address, bytes, 0); }
CUresult api::cuMemHostAlloc(void** address, size_t bytes, unsigned flags) {
  return (flags & ~7U) != 0 ? CUDA_ERROR_INVALID_VALUE : host_alloc(address, bytes, flags);
}

CUresult api::cuMemFreeHost(void* address) {
  Context* context = nullptr;
  SIM_TRY(current_context(&context));
  SIM_TRY(check_unsafe_call());
  if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(synchronize(*context));
  return Memory::instance().release(reinterpret_cast<CUdeviceptr>(address), MemoryKind::kHost, MemoryKind::kHost);
}

CUresult api::cuMemHostRegister_v2(void* address, size_t bytes, unsigned flags) {
  Context* context = nullptr;
  SIM_TRY(current_context(&context));
  SIM_TRY(check_unsafe_call());
  if ((flags & ~15U) != 0) return CUDA_ERROR_INVALID_VALUE;
  return Memory::instance().register_host(address, bytes, context->handle, flags);
}
CUresult api::cuMemHostRegister(void* address, size_t bytes, unsigned flags) {
  return api::cuMemHostRegister_v2(address, bytes, flags);
}

CUresult api::cuMemHostUnregister(void* address) {
  Context* context = nullptr;
  SIM_TRY(current_context(&context));
  SIM_TRY(check_unsafe_call());
  SIM_TRY(synchronize(*context));
  const auto at = reinterpret_cast<CUdeviceptr>(address);
  const CUresult result = Memory::instance().release(at, MemoryKind::kRegistered, MemoryKind::kRegistered);
  return result == CUDA_SUCCESS ? result : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

CUresult api::cuMemHostGetDevicePointer_v2(CUdeviceptr* device, void* address, unsigned flags) {
  Context* context = nullptr;
  SIM_TRY(current_context(&context));
  const auto at = reinterpret_cast<CUdeviceptr>(address);
  if (device == nullptr || flags != 0 || !Memory::instance().find(at)) return CUDA_ERROR_INVALID_VALUE;
  *device = at;
  return CUDA_SUCCESS;
}

CUresult api::cuMemHostGetFlags(unsigned* flags, void* address) {
  Context* context = nullptr;
  SIM_TRY(current_context(&context));
  const std::optional<Allocation> found = Memory::instance().find(reinterpret_cast<CUdeviceptr>(address));
  if (flags == nullptr || !found) return CUDA_ERROR_INVALID_VALUE;
  *flags = found->flags;
  return CUDA_SUCCESS;
}

CUresult api::cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  if (!initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  return data == nullptr ? CUDA_ERROR_INVALID_VALUE : attribute_of(data, attribute, address);
}

// An unknown pointer is no error here: its attributes come out as zeros, its device as -2.
CUresult api::cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data,
                                     CUdeviceptr address) {
  if (!initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  if (attributes == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    if (attribute_of(data[i], attributes[i], address) == CUDA_SUCCESS) continue;
    switch (attributes[i]) {
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *static_cast<int*>(data[i]) = -2;
        break;
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      case CU_POINTER_ATTRIBUTE_MAPPED:
        *static_cast<int*>(data[i]) = 0;
        break;
      case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        *static_cast<bool*>(data[i]) = false;
        break;
      default:
        std::memset(data[i], 0, 8);
        break;
    }
  }
  return CUDA_SUCCESS;
}

CUresult api::cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr address) {
  if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) return CUDA_ERROR_INVALID_VALUE;
  return Memory::instance().find(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult api::cuMemAdvise_v2(CUdeviceptr address, size_t bytes, CUmem_advise, CUmemLocation) {
  return Memory::instance().translate(address, bytes) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult api::cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice) {
  return api::cuMemAdvise_v2(address, bytes, advice, {});
}

CUresult api::cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation, unsigned, CUstream handle) {
  Stream* stream = nullptr;
  SIM_TRY(resolve_stream(handle, &stream));
  if (Memory::instance().translate(address, bytes) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return submit(*stream, EmptyWork{});
}
CUresult api::cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice, CUstream stream) {
  return api::cuMemPrefetchAsync_v2(address, bytes, {}, 0, stream);
}

CUresult api::cuMemPrefetchBatchAsync(CUdeviceptr* addresses, size_t* bytes, size_t count, CUmemLocation*, size_t*,
                                      size_t, unsigned long long, CUstream stream) {
  if (addresses == nullptr || bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) SIM_TRY(api::cuMemPrefetchAsync_v2(addresses[i], bytes[i], {}, 0, stream));
  return CUDA_SUCCESS;
}
CUresult api::cuMemDiscardBatchAsync(CUdeviceptr* addresses, size_t* bytes, size_t count, unsigned long long flags,
                                     CUstream stream) {
  return api::cuMemPrefetchBatchAsync(addresses, bytes, count, nullptr, nullptr, 0, flags, stream);
}
CUresult api::cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr* addresses, size_t* bytes, size_t count,
                                                CUmemLocation* locations, size_t* indices, size_t location_count,
                                                unsigned long long flags, CUstream stream) {
  return api::cuMemPrefetchBatchAsync(addresses, bytes, count, locations, indices, location_count, flags, stream);
}

CUresult api::cuMemRangeGetAttribute(void* data, size_t size, CUmem_range_attribute, CUdeviceptr address, size_t) {
  const std::optional<Allocation> found = Memory::instance().find(address);
  if (data == nullptr || !found || found->kind != MemoryKind::kManaged) return CUDA_ERROR_INVALID_VALUE;
  std::memset(data, 0, size);
  return CUDA_SUCCESS;
}
CUresult api::cuMemRangeGetAttributes(void** data, size_t* sizes, CUmem_range_attribute* attributes, size_t count,
                                      CUdeviceptr address, size_t bytes) {
  for (size_t i = 0; i < count; ++i) {
    SIM_TRY(api::cuMemRangeGetAttribute(data[i], sizes[i], attributes[i], address, bytes));
  }
  return CUDA_SUCCESS;
}

CUresult api::cuStreamAttachMemAsync(CUstream handle, CUdeviceptr address, size_t, unsigned) {
  Stream* stream = nullptr;
  SIM_TRY(resolve_stream(handle, &stream));
  return Memory::instance().find(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace simcuda
