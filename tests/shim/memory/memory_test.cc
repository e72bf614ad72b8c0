// The driver's and the allocator's calls as LiveBlocks hears of them.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "shim/device/copy_memory.h"
#include "shim/observation/device_exclusion.h"
#include "tests/shim/observation/region_fixture.h"

namespace grape::replay_test {
namespace {

using memory::LiveBlocks;

class MemoryTest : public RegionTest {
 protected:
  static bool known(CUdeviceptr address, std::uint64_t bytes) {
    std::vector<program::LiveBlock> all;
    EXPECT_TRUE(LiveBlocks::instance().snapshot(all));
    return std::any_of(all.begin(), all.end(),
                       [&](const auto& block) { return block.address == address && block.bytes == bytes; });
  }
  static std::size_t host_blocks() {
    std::vector<program::LiveBlock> all;
    EXPECT_TRUE(LiveBlocks::instance().snapshot_host(all));
    return all.size();
  }
};

TEST_F(MemoryTest, Streams) {
  const auto known = [](CUstream stream) {
    std::vector<std::uint64_t> all;
    EXPECT_TRUE(LiveBlocks::instance().snapshot_streams(all));
    return std::count(all.begin(), all.end(), reinterpret_cast<std::uint64_t>(stream)) == 1;
  };
  CUstream one = nullptr, other = nullptr;
  ASSERT_CU(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
  ASSERT_CU(cuStreamCreateWithPriority(&other, CU_STREAM_DEFAULT, -1));
  EXPECT_TRUE(known(one));
  EXPECT_TRUE(known(other));
  ASSERT_CU(cuStreamDestroy(one));
  EXPECT_FALSE(known(one));
  EXPECT_TRUE(known(other));
  ASSERT_CU(cuStreamDestroy(other));
}

// A proof holds up what reads or writes memory, of every kind, and nothing else.
TEST_F(MemoryTest, OthersWorkWaitsForAProof) {
  const CUdeviceptr p = floats(1), q = floats(1);
  const CUstream s = stream();
  const float value = 1;
  CUevent event = nullptr;
  ASSERT_CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  const auto waits = [&](const std::function<CUresult()>& call) {
    auto quiet = std::make_unique<observation::DeviceExclusion>();
    std::atomic<bool> done{false};
    std::thread other([&] {
      EXPECT_CU(cuCtxSetCurrent(context_));
      EXPECT_CU(call());
      done.store(true);
    });
    for (int i = 0; i < 100 && !done.load(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const bool waited = !done.load();
    quiet = nullptr;
    other.join();
    return waited;
  };
  EXPECT_TRUE(waits([&] { return cuMemcpyHtoDAsync(p, &value, sizeof value, s); }));
  EXPECT_TRUE(waits([&] { return cuMemcpyHtoD(p, &value, sizeof value); }));
  float read = 0;
  EXPECT_TRUE(waits([&] { return cuMemcpyDtoHAsync(&read, p, sizeof read, s); }));
  EXPECT_TRUE(waits([&] { return cuMemcpyDtoDAsync(q, p, sizeof value, s); }));
  EXPECT_TRUE(waits([&] { return cuMemsetD32Async(p, 1, 1, s); }));
  EXPECT_TRUE(waits([&] { return run(function("_Z7nothingv"), s); }));
  EXPECT_FALSE(waits([&] { return cuEventRecord(event, s); }));
  EXPECT_FALSE(waits([&] { return cuStreamSynchronize(s); }));
}

TEST_F(MemoryTest, PlainPitchedAndPooled) {
  CUdeviceptr plain = 0, pitched = 0, pooled = 0;
  std::size_t pitch = 0;
  const CUstream s = stream();
  ASSERT_CU(cuMemAlloc(&plain, 1000));
  ASSERT_CU(cuMemAllocPitch(&pitched, &pitch, 100, 7, 4));
  ASSERT_CU(cuMemAllocAsync(&pooled, 2000, s));
  EXPECT_TRUE(known(plain, 1000));
  EXPECT_TRUE(known(pitched, pitch * 7));
  EXPECT_TRUE(known(pooled, 2000));
  ASSERT_CU(cuMemFree(plain));
  ASSERT_CU(cuMemFree(pitched));
  ASSERT_CU(cuMemFreeAsync(pooled, s));
  EXPECT_FALSE(known(plain, 1000));
  EXPECT_FALSE(known(pitched, pitch * 7));
  EXPECT_FALSE(known(pooled, 2000));
}

TEST_F(MemoryTest, MappedAddresses) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  constexpr std::size_t kPage = std::size_t{2} << 20;
  CUdeviceptr range = 0;
  CUmemGenericAllocationHandle first = 0, second = 0;
  ASSERT_CU(cuMemAddressReserve(&range, 2 * kPage, 0, 0, 0));
  ASSERT_CU(cuMemCreate(&first, kPage, &properties, 0));
  ASSERT_CU(cuMemCreate(&second, kPage, &properties, 0));
  EXPECT_FALSE(known(range, 2 * kPage));
  ASSERT_CU(cuMemMap(range, kPage, 0, first, 0));
  ASSERT_CU(cuMemMap(range + kPage, kPage, 0, second, 0));
  EXPECT_TRUE(known(range, kPage));
  EXPECT_TRUE(known(range + kPage, kPage));
  ASSERT_CU(cuMemUnmap(range, 2 * kPage));
  EXPECT_FALSE(known(range, kPage));
  EXPECT_FALSE(known(range + kPage, kPage));
  ASSERT_CU(cuMemRelease(first));
  ASSERT_CU(cuMemRelease(second));
  ASSERT_CU(cuMemAddressFree(range, 2 * kPage));
}

// The simulated driver reserves from 0x5a5c00000000 on here (CMakeLists.txt), as a real one does from 0x302000000 on.
TEST_F(MemoryTest, AddressesAreReservedFarUpWhereTheProgramHasNoWish) {
  constexpr std::size_t kPage = std::size_t{2} << 20;
  constexpr CUdeviceptr kFarUp = CUdeviceptr{0x5a5d} << 32;
  CUdeviceptr first = 0, second = 0, wished = 0;
  ASSERT_CU(cuMemAddressReserve(&first, kPage, 0, 0, 0));
  EXPECT_GE(first, kFarUp);
  EXPECT_EQ(first % (CUdeviceptr{1} << 32), 0u);
  ASSERT_CU(cuMemAddressReserve(&second, kPage, kPage, 0, 0));
  EXPECT_GT(second, first);
  const CUdeviceptr wish = first + 4 * kPage;
  ASSERT_CU(cuMemAddressReserve(&wished, kPage, 0, wish, 0));
  EXPECT_EQ(wished, wish);
  for (const CUdeviceptr each : {first, second, wished}) ASSERT_CU(cuMemAddressFree(each, kPage));
}

TEST_F(MemoryTest, AddressesThatCannotBeFarUpAreReservedAsAskedFor) {
  constexpr std::size_t kPage = std::size_t{2} << 20;
  CUdeviceptr range = 0;
  simcuda_set_fault("cuMemAddressReserve", 1, CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_CU(cuMemAddressReserve(&range, kPage, 0, 0, 0));
  EXPECT_LT(range, CUdeviceptr{0x5a5d} << 32);
  ASSERT_CU(cuMemAddressFree(range, kPage));
  EXPECT_EQ(cuMemAddressReserve(&range, kPage + 1, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressReserve(nullptr, kPage, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
}

// What is kept for the next proof is not missing to the program.
TEST_F(MemoryTest, WhatIsKeptForProofsGivesWay) {
  constexpr std::size_t kBig = std::size_t{64} << 20;
  auto& kept = device::CopyMemory::instance();
  const auto keep = [&] {
    simcuda_set_memory(std::size_t{16} << 30);
    device::CopyMemory::Block block;
    refusal::Refusal error;
    EXPECT_TRUE(kept.take(kBig, block, error)) << error.text;
    kept.give(block);
    EXPECT_GE(kept.kept_bytes(), kBig);
    std::size_t free = 0, total = 0;
    EXPECT_CU(cuMemGetInfo(&free, &total));
    simcuda_set_memory((std::size_t{16} << 30) - free + (std::size_t{1} << 20));
  };
  CUdeviceptr plain = 0;
  keep();
  ASSERT_CU(cuMemAlloc(&plain, kBig));
  EXPECT_EQ(kept.kept_bytes(), 0u);
  EXPECT_TRUE(known(plain, kBig));
  const std::uint64_t calls = simcuda_calls("cuMemAlloc_v2");
  CUdeviceptr refused = 0;
  EXPECT_RESULT(cuMemAlloc(&refused, kBig), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(simcuda_calls("cuMemAlloc_v2"), calls + 1) << "nothing to give";
  ASSERT_CU(cuMemFree(plain));

  keep();
  std::size_t pitch = 0;
  ASSERT_CU(cuMemAllocPitch(&plain, &pitch, kBig / 64, 64, 4));
  EXPECT_EQ(kept.kept_bytes(), 0u);
  ASSERT_CU(cuMemFree(plain));

  keep();
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_CU(cuMemCreate(&handle, kBig, &properties, 0));
  EXPECT_EQ(kept.kept_bytes(), 0u);
  ASSERT_CU(cuMemRelease(handle));

  keep();
  simcuda_set_memory(std::size_t{16} << 30);
  ASSERT_CU(cuCtxSetCurrent(nullptr));
  ASSERT_CU(cuDevicePrimaryCtxReset(0));
  EXPECT_EQ(kept.kept_bytes(), 0u) << "gone with its context";
  ASSERT_CU(cuDevicePrimaryCtxRetain(&context_, 0));
  ASSERT_CU(cuCtxSetCurrent(context_));
}

TEST_F(MemoryTest, AFreeThatFailsFreesNothing) {
  CUdeviceptr plain = 0;
  ASSERT_CU(cuMemAlloc(&plain, 1000));
  simcuda_set_fault("cuMemFree_v2", 1, CUDA_ERROR_INVALID_VALUE);
  EXPECT_RESULT(cuMemFree(plain), CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(known(plain, 1000));
  simcuda_set_fault("cuMemAlloc_v2", 1, CUDA_ERROR_OUT_OF_MEMORY);
  CUdeviceptr refused = 0x1234;
  EXPECT_RESULT(cuMemAlloc(&refused, 1000), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_FALSE(known(0x1234, 1000));
  ASSERT_CU(cuMemFree(plain));
}

TEST_F(MemoryTest, PinnedAndRegisteredMemoryIsTheHosts) {
  const std::size_t before = host_blocks();
  void* pinned = nullptr;
  void* mapped = nullptr;
  alignas(4096) static char page[4096];
  ASSERT_CU(cuMemAllocHost(&pinned, 4096));
  ASSERT_CU(cuMemHostAlloc(&mapped, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  ASSERT_CU(cuMemHostRegister(page, sizeof page, 0));
  EXPECT_EQ(host_blocks(), before + 3);
  ASSERT_CU(cuMemFreeHost(pinned));
  ASSERT_CU(cuMemFreeHost(mapped));
  ASSERT_CU(cuMemHostUnregister(page));
  EXPECT_EQ(host_blocks(), before);
}

TEST_F(MemoryTest, BlocksOfTheAllocatorComeAndGo) {
  const CUdeviceptr block = torch_alloc(512);
  EXPECT_TRUE(known(block, 512));
  EXPECT_FALSE(known(segment_, kSegment)) << "it holds one";
  report_to_profiler(reinterpret_cast<void*>(block + 512), 64, 0, 0, {0, 0});  // the host's
  EXPECT_FALSE(known(block + 512, 64));
  torch_free(block, 512);
  EXPECT_FALSE(known(block, 512));
  EXPECT_FALSE(known(segment_, kSegment)) << "what the allocator keeps for later is nobody's";
}

TEST_F(MemoryTest, AContextThatGoesTakesItsBlocks) {
  const CUdeviceptr block = torch_alloc(512);
  ASSERT_TRUE(known(block, 512));
  CUcontext other = nullptr;
  CUdeviceptr in_other = 0;
  ASSERT_CU(cuCtxCreate(&other, nullptr, 0, 0));
  ASSERT_CU(cuMemAlloc(&in_other, 300));
  EXPECT_TRUE(known(in_other, 300));
  ASSERT_CU(cuCtxDestroy(other));
  EXPECT_FALSE(known(in_other, 300));
  EXPECT_TRUE(known(block, 512));
  ASSERT_CU(cuCtxSetCurrent(context_));
  // Retained twice: still there after the first release.
  ASSERT_CU(cuDevicePrimaryCtxRetain(&context_, 0));
  ASSERT_CU(cuDevicePrimaryCtxRelease_v2(0));
  EXPECT_TRUE(known(block, 512));
  const std::uint32_t epoch = LiveBlocks::instance().epoch();
  std::vector<program::LiveBlock> all;
  ASSERT_TRUE(LiveBlocks::instance().snapshot(all));
  ASSERT_TRUE(LiveBlocks::instance().refer(block, all.front().serial));
  ASSERT_CU(cuDevicePrimaryCtxReset_v2(0));
  EXPECT_FALSE(known(block, 512));
  EXPECT_FALSE(known(segment_, kSegment));
  EXPECT_NE(LiveBlocks::instance().epoch(), epoch);
  ASSERT_CU(cuDevicePrimaryCtxRetain(&context_, 0));
  ASSERT_CU(cuCtxSetCurrent(context_));
}

TEST_F(MemoryTest, TheCallsResultAndErrnoAreTheDrivers) {
  errno = 77;
  CUdeviceptr plain = 0;
  ASSERT_CU(cuMemAlloc(&plain, 1000));
  ASSERT_CU(cuMemFree(plain));
  torch_alloc(8);
  EXPECT_EQ(errno, 77);
}

}  // namespace
}  // namespace grape::replay_test
