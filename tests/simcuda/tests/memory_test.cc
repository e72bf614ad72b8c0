#include <sys/mman.h>

#include <cstring>

#include "fixture.h"

namespace simcuda_test {
namespace {

class Memory : public Driver {};

TEST_F(Memory, DeviceAddressesAreOutOfTheHostsReach) {
  std::uint64_t base = 0;
  std::uint64_t bytes = 0;
  simcuda_device_range(&base, &bytes);
  const CUdeviceptr address = floats(4, 1.0F);
  EXPECT_GE(address, base);
  EXPECT_LT(address, base + bytes);
  EXPECT_DEATH({ *reinterpret_cast<volatile float*>(address) = 1; }, "");
}

TEST_F(Memory, BoundsAreKept) {
  CUdeviceptr address = 0;
  ASSERT_CU(cuMemAlloc(&address, 100));
  char host[200] = {};
  EXPECT_CU(cuMemcpyHtoD(address, host, 100));
  EXPECT_CU(cuMemcpyHtoD(address + 50, host, 50));
  EXPECT_RESULT(cuMemcpyHtoD(address, host, 101), CUDA_ERROR_INVALID_VALUE);
  EXPECT_RESULT(cuMemcpyHtoD(address + 100, host, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_RESULT(cuMemFree(address + 8), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuMemFree(address));
  EXPECT_RESULT(cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_RESULT(cuMemcpyHtoD(address, host, 1), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr again = 0;
  ASSERT_CU(cuMemAlloc(&again, 64));
  EXPECT_EQ(again, address) << "a freed address comes back";
}

TEST_F(Memory, RunsOut) {
  simcuda_set_memory(std::size_t{8} << 20);
  CUdeviceptr first = 0;
  CUdeviceptr second = 0;
  std::size_t free_bytes = 0;
  std::size_t total = 0;
  ASSERT_CU(cuMemAlloc(&first, std::size_t{6} << 20));
  EXPECT_CU(cuMemGetInfo(&free_bytes, &total));
  EXPECT_EQ(total, std::size_t{8} << 20);
  EXPECT_EQ(free_bytes, (std::size_t{2} << 20) - 512) << "the module has a variable";
  EXPECT_RESULT(cuMemAlloc(&second, std::size_t{3} << 20), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(second, 0U);
  EXPECT_CU(cuMemFree(first));
  EXPECT_CU(cuMemAlloc(&second, std::size_t{3} << 20));
}

TEST_F(Memory, InjectedFaultHitsTheNthCallOnly) {
  ASSERT_EQ(simcuda_set_faults("cuMemAlloc_v2:2:2,cuMemFree_v2:*:999"), 0);
  EXPECT_EQ(simcuda_set_faults("cuNoSuch:1:2"), -1);
  EXPECT_EQ(simcuda_set_faults("cuMemAlloc_v2:x:2"), -1);
  CUdeviceptr address = 0;
  EXPECT_CU(cuMemAlloc(&address, 16));
  CUdeviceptr untouched = 77;
  EXPECT_RESULT(cuMemAlloc(&untouched, 16), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(untouched, 77U) << "a failing call leaves its results alone";
  EXPECT_CU(cuMemAlloc(&untouched, 16));
  EXPECT_RESULT(cuMemFree(address), 999);
  EXPECT_RESULT(cuMemFree(address), 999);
  const std::uint64_t calls = simcuda_calls("cuMemAlloc_v2");
  EXPECT_CU(cuMemAlloc(&untouched, 16));
  EXPECT_EQ(simcuda_calls("cuMemAlloc_v2"), calls + 1);
  simcuda_reset();
  EXPECT_EQ(simcuda_calls("cuMemAlloc_v2"), 0U);
  EXPECT_CU(cuMemFree(address));
}

TEST_F(Memory, HostMemoryIsKnownAsSuch) {
  void* pinned = nullptr;
  ASSERT_CU(cuMemHostAlloc(&pinned, 4096, CU_MEMHOSTALLOC_PORTABLE));
  std::memset(pinned, 1, 4096);
  CUdeviceptr device = 0;
  EXPECT_CU(cuMemHostGetDevicePointer(&device, pinned, 0));
  EXPECT_EQ(device, reinterpret_cast<CUdeviceptr>(pinned));
  unsigned type = 0;
  EXPECT_CU(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device));
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_HOST));
  int pageable = 0;
  EXPECT_RESULT(
      cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(&pageable)),
      CUDA_ERROR_INVALID_VALUE);
  CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
  int ordinal = 5;
  void* data = &ordinal;
  EXPECT_CU(cuPointerGetAttributes(1, &attribute, &data, reinterpret_cast<CUdeviceptr>(&pageable)));
  EXPECT_EQ(ordinal, -2);
  static char registered[4096];
  EXPECT_CU(cuMemHostRegister(registered, sizeof registered, 0));
  EXPECT_RESULT(cuMemHostRegister(registered, sizeof registered, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_CU(cuMemHostUnregister(registered));
  EXPECT_RESULT(cuMemHostUnregister(registered), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  EXPECT_CU(cuMemFreeHost(pinned));
}

TEST_F(Memory, ManagedMemoryWorksOnBothSides) {
  CUdeviceptr managed = 0;
  ASSERT_CU(cuMemAllocManaged(&managed, 16, CU_MEM_ATTACH_GLOBAL));
  ASSERT_CU(launch("_Z4fillPffi", nullptr, managed, 2.5F, 4));
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(reinterpret_cast<float*>(managed)[3], 2.5F);
  EXPECT_CU(cuMemFree(managed));
}

TEST_F(Memory, StreamOrderedAllocation) {
  CUstream s = stream();
  CUdeviceptr address = 0;
  CUmemoryPool pool = nullptr;
  cuuint64_t used = 0;
  ASSERT_CU(cuDeviceGetDefaultMemPool(&pool, 0));
  ASSERT_CU(cuMemAllocAsync(&address, 4096, s));
  EXPECT_CU(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  EXPECT_EQ(used, 4096U);
  EXPECT_CU(launch("_Z4fillPffi", s, address, 1.0F, 1024));
  EXPECT_CU(cuMemFreeAsync(address, s));
  EXPECT_CU(cuStreamSynchronize(s));
  EXPECT_RESULT(cuMemFreeAsync(address, s), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  EXPECT_EQ(used, 0U);
}

TEST_F(Memory, VirtualMemoryKeepsItsBytesWhenMappedElsewhere) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  std::size_t granularity = 0;
  ASSERT_CU(cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_CU(cuMemCreate(&handle, granularity, &properties, 0));
  CUdeviceptr first = 0;
  CUdeviceptr second = 0;
  ASSERT_CU(cuMemAddressReserve(&first, 2 * granularity, 0, 0, 0));
  ASSERT_CU(cuMemAddressReserve(&second, granularity, 0, 0, 0));
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  ASSERT_CU(cuMemMap(first, granularity, 0, handle, 0));
  EXPECT_RESULT(cuMemsetD32(first, 7, 4), CUDA_ERROR_INVALID_VALUE) << "no access yet";
  ASSERT_CU(cuMemSetAccess(first, granularity, &access, 1));
  ASSERT_CU(cuMemsetD32(first, 7, 4));
  EXPECT_RESULT(cuMemSetAccess(first, 2 * granularity, &access, 1), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(cuMemUnmap(first, granularity));
  EXPECT_RESULT(cuMemsetD32(first, 7, 4), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(cuMemMap(second, granularity, 0, handle, 0));
  ASSERT_CU(cuMemSetAccess(second, granularity, &access, 1));
  EXPECT_EQ(read<unsigned>(second, 3), 7U);
  EXPECT_RESULT(cuMemAddressFree(second, granularity), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuMemRelease(handle));
  EXPECT_EQ(read<unsigned>(second, 3), 7U) << "a mapping keeps the memory";
  EXPECT_CU(cuMemUnmap(second, granularity));
  EXPECT_CU(cuMemAddressFree(second, granularity));
  EXPECT_CU(cuMemAddressFree(first, 2 * granularity));
  EXPECT_RESULT(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace simcuda_test
