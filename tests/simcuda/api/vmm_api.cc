// Virtual memory management: addresses and physical memory apart. Physical memory is a memory file, so that it keeps
// its bytes while it is mapped elsewhere.
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <mutex>

#include "capture.h"
#include "context.h"
#include "memory.h"

namespace simcuda {

namespace {

struct Physical {
  int file = -1;
  std::size_t bytes = 0;
  unsigned references = 1;  // handles given out
  unsigned mappings = 0;
  CUmemAllocationProp properties = {};
};

struct Table {
  std::mutex mutex;
  std::map<CUmemGenericAllocationHandle, Physical> all;
  CUmemGenericAllocationHandle next = 0x100;
};
Table& table() {
  static Table& made = *new Table;
  return made;
}

void collect(Table& t, std::map<CUmemGenericAllocationHandle, Physical>::iterator at) {
  if (at->second.references != 0 || at->second.mappings != 0) return;
  close(at->second.file);
  Memory::instance().refund(at->second.bytes);
  t.all.erase(at);
}

}  // namespace

CUresult api::cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr wanted,
                                  unsigned long long flags) {
  if (!initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  return flags != 0 ? CUDA_ERROR_INVALID_VALUE : Memory::instance().reserve(bytes, alignment, wanted, address);
}

CUresult api::cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  return Memory::instance().unreserve(address, bytes);
}

CUresult api::cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* properties,
                          unsigned long long flags) {
  if (!initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  if (handle == nullptr || properties == nullptr || bytes == 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes % Memory::kGranularity != 0 || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  SIM_TRY(check_unsafe_call());
  if (!Memory::instance().charge(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  Physical made;
  made.file = memfd_create("simcuda", MFD_CLOEXEC);
  made.bytes = bytes;
  made.properties = *properties;
  if (made.file < 0 || ftruncate(made.file, static_cast<off_t>(bytes)) != 0) {
    if (made.file >= 0) close(made.file);
    Memory::instance().refund(bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  Table& t = table();
  std::lock_guard<std::mutex> lock(t.mutex);
  *handle = t.next++;
  t.all[*handle] = made;
  return CUDA_SUCCESS;
}

CUresult api::cuMemRelease(CUmemGenericAllocationHandle handle) {
  Table& t = table();
  std::lock_guard<std::mutex> lock(t.mutex);
  const auto found = t.all.find(handle);
  if (found == t.all.end() || found->second.references == 0) return CUDA_ERROR_INVALID_VALUE;
  --found->second.references;
  collect(t, found);
  return CUDA_SUCCESS;
}

CUresult api::cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                       unsigned long long flags) {
  Table& t = table();
  std::lock_guard<std::mutex> lock(t.mutex);
  const auto found = t.all.find(handle);
  const std::size_t granularity = Memory::kGranularity;
  if (flags != 0 || found == t.all.end() || bytes == 0 || address % granularity != 0 || bytes % granularity != 0 ||
      offset % granularity != 0 || offset > found->second.bytes || bytes > found->second.bytes - offset) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Allocation mapping;
  mapping.base = address;
  mapping.size = bytes;
  mapping.device = found->second.properties.location.id;
  mapping.physical = handle;
  mapping.physical_offset = offset;
  SIM_TRY(Memory::instance().map(mapping, found->second.file));
  ++found->second.mappings;
  return CUDA_SUCCESS;
}

CUresult api::cuMemUnmap(CUdeviceptr address, size_t bytes) {
  for_each_context([](Context& context) { synchronize(context); });
  std::map<CUdeviceptr, Allocation> removed;
  SIM_TRY(Memory::instance().unmap(address, bytes, &removed));
  Table& t = table();
  std::lock_guard<std::mutex> lock(t.mutex);
  for (const auto& entry : removed) {
    const auto found = t.all.find(entry.second.physical);
    if (found == t.all.end()) continue;
    --found->second.mappings;
    collect(t, found);
  }
  return CUDA_SUCCESS;
}

CUresult api::cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access, size_t count) {
  if (access == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  return Memory::instance().set_access(address, bytes, access[0].flags);
}

CUresult api::cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) {
  const std::optional<Allocation> found = Memory::instance().find(address);
  if (flags == nullptr || location == nullptr || !found) return CUDA_ERROR_INVALID_VALUE;
  *flags = found->accessible ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

CUresult api::cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* properties,
                                            CUmemAllocationGranularity_flags) {
  if (granularity == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *granularity = Memory::kGranularity;
  return CUDA_SUCCESS;
}

CUresult api::cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                     CUmemGenericAllocationHandle handle) {
  Table& t = table();
  std::lock_guard<std::mutex> lock(t.mutex);
  const auto found = t.all.find(handle);
  if (properties == nullptr || found == t.all.end()) return CUDA_ERROR_INVALID_VALUE;
  *properties = found->second.properties;
  return CUDA_SUCCESS;
}

CUresult api::cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  const std::optional<Allocation> found = Memory::instance().find(reinterpret_cast<CUdeviceptr>(address));
  if (handle == nullptr || !found || found->physical == 0) return CUDA_ERROR_INVALID_VALUE;
  Table& t = table();
  std::lock_guard<std::mutex> lock(t.mutex);
  const auto physical = t.all.find(found->physical);
  if (physical == t.all.end()) return CUDA_ERROR_INVALID_VALUE;
  ++physical->second.references;
  *handle = found->physical;
  return CUDA_SUCCESS;
}

}  // namespace simcuda
