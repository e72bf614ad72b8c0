#include "memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <mutex>
#include <new>

#include "context.h"
#include "faults.h"
#include "handles.h"
#include "simcuda.h"

namespace simcuda {

thread_local CUdevice t_kernel_device = kAnyDevice;

namespace {

bool reaches(CUdevice kernel, const Allocation& memory) {
  return kernel == kAnyDevice || memory.device == kAnyDevice || kernel == memory.device;
}

// Easy to tell from host memory; lower halves are no small numbers, as on a GPU they seldom are.
constexpr std::uintptr_t kWantedBase = 0x7ea03a000000;
constexpr std::size_t kAlignment = 512;
constexpr std::size_t kLarge = std::size_t{1} << 20;
constexpr std::size_t kPage = 4096;

std::size_t round_up(std::size_t value, std::size_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

void* reserve_range(std::uintptr_t wanted, std::size_t bytes) {
  void* range =
      mmap(reinterpret_cast<void*>(wanted), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) throw std::bad_alloc();
  return range;
}

bool is_device(MemoryKind kind) { return kind == MemoryKind::kDevice || kind == MemoryKind::kAsync; }

}  // namespace

Memory& Memory::instance() {
  static Memory& memory = *new Memory;
  return memory;
}

Memory::Memory() {
  const char* base = std::getenv("SIMCUDA_BASE");
  const std::uintptr_t wanted = base != nullptr ? std::strtoull(base, nullptr, 16) : kWantedBase;
  base_ = reinterpret_cast<std::uintptr_t>(reserve_range(wanted, kRangeBytes));
  const auto bytes_at = reinterpret_cast<std::uintptr_t>(reserve_range(0, kRangeBytes));
  if (mprotect(reinterpret_cast<void*>(bytes_at), kHeapBytes, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
  distance_ = bytes_at - base_;
  heap_free_[base_] = kHeapBytes;
  reserve_free_[base_ + kHeapBytes] = kReserveBytes;
}

// First fit from the lowest address, so that a freed address comes back soon.
bool Memory::take(std::map<CUdeviceptr, std::size_t>* free, std::size_t bytes, std::size_t alignment,
                  CUdeviceptr wanted, CUdeviceptr* address) {
  for (auto it = free->begin(); it != free->end(); ++it) {
    const CUdeviceptr end = it->first + it->second;
    CUdeviceptr begin = round_up(it->first, alignment);
    if (wanted >= it->first && wanted + bytes <= end && wanted % alignment == 0) begin = wanted;
    if (begin + bytes > end || (wanted != 0 && begin != wanted)) continue;
    const CUdeviceptr before = it->first;
    free->erase(it);
    if (begin > before) (*free)[before] = begin - before;
    if (end > begin + bytes) (*free)[begin + bytes] = end - begin - bytes;
    *address = begin;
    return true;
  }
  return wanted != 0 && take(free, bytes, alignment, 0, address);  // a wanted address is only a hint
}

void Memory::give_back(std::map<CUdeviceptr, std::size_t>* free, CUdeviceptr address, std::size_t bytes) {
  auto it = free->emplace(address, bytes).first;
  const auto next = std::next(it);
  if (next != free->end() && it->first + it->second == next->first) {
    it->second += next->second;
    free->erase(next);
  }
  if (it != free->begin()) {
    const auto previous = std::prev(it);
    if (previous->first + previous->second == it->first) {
      previous->second += it->second;
      free->erase(it);
    }
  }
}

bool Memory::charge(std::size_t bytes) {
  std::lock_guard<std::shared_mutex> lock(mutex_);
  const std::size_t limit = settings.memory;
  if (bytes > limit || used_ > limit - bytes) return false;
  used_ += bytes;
  return true;
}

void Memory::refund(std::size_t bytes) {
  std::lock_guard<std::shared_mutex> lock(mutex_);
  used_ -= bytes;
}

std::size_t Memory::used() {
  std::shared_lock<std::shared_mutex> lock(mutex_);
  return used_;
}

CUresult Memory::allocate(std::size_t bytes, MemoryKind kind, CUcontext context, CUmemoryPool pool,
                          CUdeviceptr* address) {
  if (bytes == 0 || address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > kHeapBytes) return CUDA_ERROR_OUT_OF_MEMORY;
  Allocation made;
  made.size = bytes;
  made.kind = kind;
  made.context = context;
  if (const Context* of = find_handle<Context>(context)) made.device = of->device;
  made.pool = pool;
  made.extent = round_up(bytes, bytes >= kLarge ? kGranularity : kAlignment);
  if (!charge(made.extent)) return CUDA_ERROR_OUT_OF_MEMORY;
  std::lock_guard<std::shared_mutex> lock(mutex_);
  if (!take(&heap_free_, made.extent, bytes >= kLarge ? kGranularity : kAlignment, 0, &made.base)) {
    used_ -= made.extent;
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  made.id = next_id_++;
  *address = made.base;
  allocations_[made.base] = made;
  return CUDA_SUCCESS;
}

CUresult Memory::allocate_host(std::size_t bytes, MemoryKind kind, CUcontext context, unsigned flags, void** address) {
  if (bytes == 0 || address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Allocation made;
  made.extent = round_up(bytes, kPage);
  void* memory = mmap(nullptr, made.extent, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  made.base = reinterpret_cast<CUdeviceptr>(memory);
  made.size = bytes;
  made.kind = kind;
  made.context = context;
  made.flags = flags;
  std::lock_guard<std::shared_mutex> lock(mutex_);
  made.id = next_id_++;
  allocations_[made.base] = made;
  *address = memory;
  return CUDA_SUCCESS;
}

CUresult Memory::register_host(void* address, std::size_t bytes, CUcontext context, unsigned flags) {
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Allocation made;
  made.base = reinterpret_cast<CUdeviceptr>(address);
  made.size = made.extent = bytes;
  made.kind = MemoryKind::kRegistered;
  made.context = context;
  made.flags = flags;
  std::lock_guard<std::shared_mutex> lock(mutex_);
  const auto next = allocations_.lower_bound(made.base);
  if (find_locked(made.base) != nullptr || (next != allocations_.end() && next->first < made.base + bytes)) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  made.id = next_id_++;
  allocations_[made.base] = made;
  return CUDA_SUCCESS;
}

CUresult Memory::release(CUdeviceptr address, MemoryKind kind, MemoryKind other) {
  std::lock_guard<std::shared_mutex> lock(mutex_);
  const auto found = allocations_.find(address);
  if (found == allocations_.end() || (found->second.kind != kind && found->second.kind != other)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Allocation gone = found->second;
  allocations_.erase(found);
  if (is_device(gone.kind)) {
    used_ -= gone.extent;
    if (gone.extent >= 16 * kPage) {
      const auto begin = round_up(reinterpret_cast<std::uintptr_t>(backing(gone.base)), kPage);
      const auto end = reinterpret_cast<std::uintptr_t>(backing(gone.base) + gone.extent) / kPage * kPage;
      madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
    }
    give_back(&heap_free_, gone.base, gone.extent);
  } else if (gone.kind != MemoryKind::kRegistered) {
    munmap(reinterpret_cast<void*>(gone.base), gone.extent);
  }
  return CUDA_SUCCESS;
}

void Memory::release_context(CUcontext context) {
  std::map<CUdeviceptr, MemoryKind> gone;
  {
    std::shared_lock<std::shared_mutex> lock(mutex_);
    for (const auto& [address, allocation] : allocations_) {
      if (allocation.context == context && allocation.kind != MemoryKind::kMapped) gone[address] = allocation.kind;
    }
  }
  for (const auto& [address, kind] : gone) release(address, kind, kind);
}

const Allocation* Memory::find_locked(CUdeviceptr address) const {
  auto it = allocations_.upper_bound(address);
  if (it == allocations_.begin()) return nullptr;
  --it;
  return address - it->second.base < it->second.size ? &it->second : nullptr;
}

std::optional<Allocation> Memory::find(CUdeviceptr address) {
  std::shared_lock<std::shared_mutex> lock(mutex_);
  const Allocation* found = find_locked(address);
  return found == nullptr ? std::nullopt : std::optional<Allocation>(*found);
}

void* Memory::translate(CUdeviceptr address, std::size_t bytes) {
  std::shared_lock<std::shared_mutex> lock(mutex_);
  for (CUdeviceptr at = address;;) {
    const Allocation* found = find_locked(at);
    if (found == nullptr || !found->accessible || !reaches(t_kernel_device, *found)) return nullptr;
    const CUdeviceptr end = found->base + found->size;
    if (address + bytes <= end) break;
    if (found->kind != MemoryKind::kMapped) return nullptr;
    at = end;
  }
  return in_device_range(address) ? backing(address) : reinterpret_cast<void*>(address);
}

void* Memory::translate_any(CUdeviceptr address, std::size_t bytes) {
  if (in_device_range(address)) return translate(address, bytes);
  std::shared_lock<std::shared_mutex> lock(mutex_);
  const Allocation* found = find_locked(address);
  if (found != nullptr && found->kind != MemoryKind::kRegistered && address + bytes > found->base + found->size) {
    return nullptr;
  }
  return reinterpret_cast<void*>(address);
}

CUresult Memory::reserve(std::size_t bytes, std::size_t alignment, CUdeviceptr wanted, CUdeviceptr* address) {
  if (alignment == 0) alignment = kGranularity;
  if (address == nullptr || bytes == 0 || bytes % kGranularity != 0 || (alignment & (alignment - 1)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::lock_guard<std::shared_mutex> lock(mutex_);
  if (!take(&reserve_free_, bytes, std::max(alignment, kGranularity), wanted, address)) return CUDA_ERROR_OUT_OF_MEMORY;
  reservations_[*address] = bytes;
  return CUDA_SUCCESS;
}

CUresult Memory::unreserve(CUdeviceptr address, std::size_t bytes) {
  std::lock_guard<std::shared_mutex> lock(mutex_);
  const auto found = reservations_.find(address);
  if (found == reservations_.end() || found->second != bytes) return CUDA_ERROR_INVALID_VALUE;
  const auto mapped = allocations_.lower_bound(address);
  if (mapped != allocations_.end() && mapped->first < address + bytes) return CUDA_ERROR_INVALID_VALUE;
  reservations_.erase(found);
  give_back(&reserve_free_, address, bytes);
  return CUDA_SUCCESS;
}

CUresult Memory::map(const Allocation& mapping, int file) {
  std::lock_guard<std::shared_mutex> lock(mutex_);
  auto reservation = reservations_.upper_bound(mapping.base);
  if (reservation == reservations_.begin()) return CUDA_ERROR_INVALID_VALUE;
  --reservation;
  const CUdeviceptr end = mapping.base + mapping.size;
  if (end > reservation->first + reservation->second || find_locked(mapping.base) != nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto next = allocations_.lower_bound(mapping.base);
  if (next != allocations_.end() && next->first < end) return CUDA_ERROR_INVALID_VALUE;
  void* memory = mmap(backing(mapping.base), mapping.size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file,
                      static_cast<off_t>(mapping.physical_offset));
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  Allocation made = mapping;
  made.kind = MemoryKind::kMapped;
  made.accessible = false;
  made.extent = mapping.size;
  made.id = next_id_++;
  allocations_[made.base] = made;
  return CUDA_SUCCESS;
}

CUresult Memory::unmap(CUdeviceptr address, std::size_t bytes, std::map<CUdeviceptr, Allocation>* removed) {
  std::lock_guard<std::shared_mutex> lock(mutex_);
  std::size_t covered = 0;
  for (auto it = allocations_.lower_bound(address); it != allocations_.end() && it->first < address + bytes; ++it) {
    if (it->second.kind != MemoryKind::kMapped || it->first + it->second.size > address + bytes) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    covered += it->second.size;
    removed->insert(*it);
  }
  if (covered != bytes) return CUDA_ERROR_INVALID_VALUE;
  mmap(backing(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  for (const auto& entry : *removed) allocations_.erase(entry.first);
  return CUDA_SUCCESS;
}

CUresult Memory::set_access(CUdeviceptr address, std::size_t bytes, CUmemAccess_flags flags) {
  std::lock_guard<std::shared_mutex> lock(mutex_);
  std::size_t covered = 0;
  const auto begin = allocations_.lower_bound(address);
  for (auto it = begin; it != allocations_.end() && it->first < address + bytes; ++it) covered += it->second.size;
  if (covered != bytes) return CUDA_ERROR_INVALID_VALUE;  // part of the range is not mapped
  for (auto it = begin; it != allocations_.end() && it->first < address + bytes; ++it) {
    it->second.accessible = flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
    it->second.flags = static_cast<unsigned>(flags);
  }
  return CUDA_SUCCESS;
}

}  // namespace simcuda

extern "C" __attribute__((visibility("default"))) void simcuda_device_range(uint64_t* base, uint64_t* bytes) {
  *base = simcuda::Memory::instance().base();
  *bytes = simcuda::Memory::kRangeBytes;
}
