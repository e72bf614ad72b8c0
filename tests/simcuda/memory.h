// Device memory and what the driver knows of host memory.
//
// Device addresses lie in a reserved range that nobody can touch: the host that follows one gets SIGSEGV, as with a
// real GPU. The bytes lie elsewhere, at a constant distance; kernels and copies go through translate().
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>

#include "api.h"

namespace simcuda {

enum class MemoryKind { kDevice, kAsync, kMapped, kManaged, kHost, kRegistered };

constexpr CUdevice kAnyDevice = -1;
// Of the kernel that this thread runs; kAnyDevice: none. It reaches no memory of other devices: there is no peer
// access.
extern thread_local CUdevice t_kernel_device;

struct Allocation {
  CUdeviceptr base = 0;
  std::size_t size = 0;  // as asked for
  MemoryKind kind = MemoryKind::kDevice;
  CUcontext context = nullptr;
  CUdevice device = kAnyDevice;  // whose kernels reach it
  CUmemoryPool pool = nullptr;
  unsigned flags = 0;
  bool accessible = true;  // kMapped: cuMemSetAccess has allowed it
  std::size_t extent = 0;  // bytes of the range that it occupies
  std::uint64_t id = 0;
  CUmemGenericAllocationHandle physical = 0;  // kMapped
  std::size_t physical_offset = 0;
};

class Memory {
 public:
  static Memory& instance();

  // Device memory; CUDA_ERROR_OUT_OF_MEMORY beyond settings.memory.
  CUresult allocate(std::size_t bytes, MemoryKind kind, CUcontext context, CUmemoryPool pool, CUdeviceptr* address);
  // Pinned or managed memory: the same address on host and device.
  CUresult allocate_host(std::size_t bytes, MemoryKind kind, CUcontext context, unsigned flags, void** address);
  CUresult register_host(void* address, std::size_t bytes, CUcontext context, unsigned flags);
  // Ends an allocation that begins at `address` and is of one of two kinds; CUDA_ERROR_INVALID_VALUE if there is none.
  CUresult release(CUdeviceptr address, MemoryKind kind, MemoryKind other);
  void release_context(CUcontext context);

  // The allocation that holds the address.
  std::optional<Allocation> find(CUdeviceptr address);
  // Where the bytes of [address, address + bytes) lie. Null unless all of them are in one live allocation (or in
  // adjoining mappings) that the device may access.
  void* translate(CUdeviceptr address, std::size_t bytes);
  // The same, for a pointer that may also be ordinary host memory, which the driver knows nothing about.
  void* translate_any(CUdeviceptr address, std::size_t bytes);
  bool in_device_range(CUdeviceptr address) const { return address - base_ < kRangeBytes; }

  std::size_t used();
  bool charge(std::size_t bytes);  // counts physical memory; false if there is not so much
  void refund(std::size_t bytes);

  // Virtual memory management.
  CUresult reserve(std::size_t bytes, std::size_t alignment, CUdeviceptr wanted, CUdeviceptr* address);
  CUresult unreserve(CUdeviceptr address, std::size_t bytes);
  CUresult map(const Allocation& mapping, int file);
  CUresult unmap(CUdeviceptr address, std::size_t bytes, std::map<CUdeviceptr, Allocation>* removed);
  CUresult set_access(CUdeviceptr address, std::size_t bytes, CUmemAccess_flags flags);

  CUdeviceptr base() const { return base_; }
  static constexpr std::size_t kHeapBytes = std::size_t{64} << 30;
  static constexpr std::size_t kReserveBytes = std::size_t{64} << 30;
  static constexpr std::size_t kRangeBytes = kHeapBytes + kReserveBytes;
  static constexpr std::size_t kGranularity = std::size_t{2} << 20;  // of physical memory

 private:
  Memory();
  const Allocation* find_locked(CUdeviceptr address) const;
  static bool take(std::map<CUdeviceptr, std::size_t>* free, std::size_t bytes, std::size_t alignment,
                   CUdeviceptr wanted, CUdeviceptr* address);
  static void give_back(std::map<CUdeviceptr, std::size_t>* free, CUdeviceptr address, std::size_t bytes);
  unsigned char* backing(CUdeviceptr address) const { return reinterpret_cast<unsigned char*>(address + distance_); }

  std::shared_mutex mutex_;
  CUdeviceptr base_ = 0;
  std::uintptr_t distance_ = 0;
  std::map<CUdeviceptr, Allocation> allocations_;
  std::map<CUdeviceptr, std::size_t> heap_free_;  // address, bytes
  std::map<CUdeviceptr, std::size_t> reserve_free_;
  std::map<CUdeviceptr, std::size_t> reservations_;
  std::size_t used_ = 0;
  std::uint64_t next_id_ = 1;
};

}  // namespace simcuda
