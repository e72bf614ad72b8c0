// Stream-ordered allocation and memory pools. A pool keeps counts only; memory goes back when a free is executed.
#include <algorithm>
#include <mutex>

#include "capture.h"
#include "context.h"
#include "handles.h"
#include "memory.h"
#include "stream.h"

namespace simcuda {

namespace {

struct Pool {
  std::mutex mutex;
  cuuint64_t values[16] = {};  // by CUmemPool_attribute
  bool is_default = false;
};

CUmemoryPool default_pool() {
  static const CUmemoryPool handle = [] {
    auto pool = std::make_shared<Pool>();
    pool->is_default = true;
    return create_handle<CUmemoryPool>(pool);
  }();
  return handle;
}

std::atomic<CUmemoryPool> current_pool{nullptr};
CUmemoryPool current() { return current_pool != nullptr ? current_pool.load() : default_pool(); }

void count(CUmemoryPool handle, std::int64_t bytes) {
  const std::shared_ptr<Pool> pool = share_handle<Pool>(handle);
  if (pool == nullptr) return;
  std::lock_guard<std::mutex> lock(pool->mutex);
  for (const int attribute : {CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT}) {
    cuuint64_t& now = pool->values[attribute];
    now += static_cast<cuuint64_t>(bytes);
    pool->values[attribute + 1] = std::max(pool->values[attribute + 1], now);  // the high-water mark
  }
}

CUresult alloc_in_order(CUdeviceptr* address, size_t bytes, CUmemoryPool pool, CUstream handle) {
  Stream* stream = nullptr;
  SIM_TRY(resolve_stream(handle, &stream));
  if (share_handle<Pool>(pool) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUdeviceptr made = 0;
  if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(Memory::instance().allocate(bytes, MemoryKind::kAsync, stream->context->handle, pool, &made));
  AllocWork work = {};
  work.parameters.bytesize = bytes;
  work.parameters.dptr = made;
  const CUresult result = submit(*stream, work);
  if (result != CUDA_SUCCESS) {
    Memory::instance().release(made, MemoryKind::kAsync, MemoryKind::kAsync);
    return result;
  }
  count(pool, static_cast<std::int64_t>(bytes));
  *address = made;
  return CUDA_SUCCESS;
}

CUresult answer_pool(CUmemoryPool* result, CUmemoryPool pool) {
  if (!initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  if (result == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *result = pool;
  return CUDA_SUCCESS;
}

bool is_mark(CUmemPool_attribute attribute) {
  return attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH || attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH;
}

}  // namespace

CUresult api::cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream stream) {
  return alloc_in_order(address, bytes, current(), stream);
}
CUresult api::cuMemAllocFromPoolAsync(CUdeviceptr* address, size_t bytes, CUmemoryPool pool, CUstream stream) {
  return alloc_in_order(address, bytes, pool, stream);
}

CUresult api::cuMemFreeAsync(CUdeviceptr address, CUstream handle) {
  Stream* stream = nullptr;
  SIM_TRY(resolve_stream(handle, &stream));
  const std::optional<Allocation> found = Memory::instance().find(address);
  const bool ours =
      found && found->base == address && (found->kind == MemoryKind::kAsync || found->kind == MemoryKind::kDevice);
  if (!ours) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(submit(*stream, FreeWork{address}));
  if (found->pool != nullptr) count(found->pool, -static_cast<std::int64_t>(found->size));
  return CUDA_SUCCESS;
}

CUresult api::cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  if (!initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  if (pool == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
  *pool = create_handle<CUmemoryPool>(std::make_shared<Pool>());
  return CUDA_SUCCESS;
}

CUresult api::cuMemPoolDestroy(CUmemoryPool handle) {
  const std::shared_ptr<Pool> pool = share_handle<Pool>(handle);
  if (pool == nullptr || pool->is_default) return CUDA_ERROR_INVALID_VALUE;
  if (current_pool.load() == handle) current_pool = nullptr;
  destroy_handle<Pool>(handle);
  return CUDA_SUCCESS;
}

CUresult api::cuMemPoolTrimTo(CUmemoryPool pool, size_t) {
  return share_handle<Pool>(pool) == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult api::cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  const std::shared_ptr<Pool> pool = share_handle<Pool>(handle);
  if (pool == nullptr || value == nullptr || attribute < 1 || attribute > CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::lock_guard<std::mutex> lock(pool->mutex);
  if (is_mark(attribute)) {
    if (*static_cast<cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
    pool->values[attribute] = pool->values[attribute - 1];
  } else if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
    pool->values[attribute] = *static_cast<cuuint64_t*>(value);
  } else if (attribute < CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
    pool->values[attribute] = static_cast<cuuint64_t>(*static_cast<int*>(value));
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult api::cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  const std::shared_ptr<Pool> pool = share_handle<Pool>(handle);
  if (pool == nullptr || value == nullptr || attribute < 1 || attribute > CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::lock_guard<std::mutex> lock(pool->mutex);
  if (attribute < CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
    *static_cast<int*>(value) = static_cast<int>(pool->values[attribute]);
  } else {
    *static_cast<cuuint64_t*>(value) = pool->values[attribute];
  }
  return CUDA_SUCCESS;
}

CUresult api::cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* access, size_t count) {
  const bool valid = share_handle<Pool>(pool) != nullptr && (count == 0 || access != nullptr);
  return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult api::cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool pool, CUmemLocation*) {
  if (flags == nullptr || share_handle<Pool>(pool) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  SIM_TRY(check_device(device));
  return answer_pool(pool, default_pool());
}
CUresult api::cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  SIM_TRY(check_device(device));
  return answer_pool(pool, current());
}
CUresult api::cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  SIM_TRY(check_device(device));
  if (share_handle<Pool>(pool) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  current_pool = pool;
  return CUDA_SUCCESS;
}
CUresult api::cuMemGetDefaultMemPool(CUmemoryPool* pool, CUmemLocation*, CUmemAllocationType) {
  return answer_pool(pool, default_pool());
}
CUresult api::cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation*, CUmemAllocationType) {
  return answer_pool(pool, current());
}
CUresult api::cuMemSetMemPool(CUmemLocation*, CUmemAllocationType, CUmemoryPool pool) {
  return api::cuDeviceSetMemPool(0, pool);
}

}  // namespace simcuda
