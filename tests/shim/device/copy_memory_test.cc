// Memory kept between proofs, on the simulated driver.
#include "shim/device/copy_memory.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/simcuda/fixture.h"

namespace grape::device {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class CopyMemoryTest : public simcuda_test::Driver {
 protected:
  void TearDown() override {
    memory_.release();
    EXPECT_EQ(memory_.kept_bytes(), 0u);
    Driver::TearDown();
  }
  CopyMemory::Block take(std::uint64_t bytes) {
    CopyMemory::Block block;
    refusal::Refusal error;
    EXPECT_TRUE(memory_.take(bytes, block, error)) << error.text;
    EXPECT_GE(block.bytes, bytes);
    return block;
  }
  static std::uint64_t allocations() { return simcuda_calls("cuMemAlloc_v2"); }
  static std::uint64_t frees() { return simcuda_calls("cuMemFree_v2"); }

  CopyMemory& memory_ = CopyMemory::instance();
};

TEST_F(CopyMemoryTest, WhatIsGivenBackIsTakenAgain) {
  CopyMemory::Block large = take(100 * kMiB), small = take(1);
  const std::uint64_t large_at = large.address, small_at = small.address, both = large.bytes + small.bytes;
  memory_.give(large);
  EXPECT_EQ(large.address, 0u);
  memory_.give(large);  // none is no second one
  memory_.give(small);
  EXPECT_EQ(memory_.kept_bytes(), both);
  small = take(kMiB);
  EXPECT_EQ(small.address, small_at) << "the smallest that does";
  large = take(101 * kMiB);
  EXPECT_EQ(large.address, large_at) << "caches grow a little from call to call";
  EXPECT_EQ(memory_.kept_bytes(), 0u);
  EXPECT_EQ(allocations(), 2u);
  EXPECT_EQ(frees(), 0u);
  memory_.give(large);
  memory_.give(small);
}

// A call may work on another device than the current one.
TEST_F(CopyMemoryTest, WhatNobodyWantsIsReleasedInEveryContext) {
  CopyMemory::Block here = take(kMiB);
  CUcontext other = nullptr;
  ASSERT_CU(cuCtxCreate(&other, nullptr, 0, 0));
  CopyMemory::Block there = take(kMiB);
  ASSERT_EQ(there.context, other);
  memory_.give(there);
  ASSERT_CU(cuCtxSetCurrent(context_));
  memory_.give(here);
  for (std::uint32_t i = 0; i <= CopyMemory::kMostCalls; ++i) memory_.note_call();
  EXPECT_EQ(memory_.kept_bytes(), 0u);
  EXPECT_EQ(frees(), 2u);
  CUcontext current = nullptr;
  ASSERT_CU(cuCtxGetCurrent(&current));
  EXPECT_EQ(current, context_);
  ASSERT_CU(cuCtxDestroy(other));
}

TEST_F(CopyMemoryTest, WhatIsTooSmallMakesRoom) {
  CopyMemory::Block block = take(10 * kMiB);
  memory_.give(block);
  block = take(20 * kMiB);
  EXPECT_EQ(frees(), 1u);
  EXPECT_EQ(memory_.kept_bytes(), 0u);
  memory_.give(block);
}

TEST_F(CopyMemoryTest, ReleasedAfterCallsWithoutAProof) {
  CopyMemory::Block block = take(kMiB);
  memory_.give(block);
  for (std::uint32_t i = 0; i < CopyMemory::kMostCalls; ++i) memory_.note_call();
  EXPECT_GT(memory_.kept_bytes(), 0u);
  block = take(kMiB);
  memory_.give(block);  // a proof: counted from here
  for (std::uint32_t i = 0; i < CopyMemory::kMostCalls; ++i) memory_.note_call();
  EXPECT_EQ(frees(), 0u);
  memory_.note_call();
  EXPECT_EQ(memory_.kept_bytes(), 0u);
  EXPECT_EQ(frees(), 1u);
  memory_.note_call();
  EXPECT_EQ(frees(), 1u);
}

TEST_F(CopyMemoryTest, ReleasedAfterAWhile) {
  CopyMemory::Block block = take(kMiB);
  memory_.give(block);
  memory_.note_call();
  EXPECT_EQ(frees(), 0u);
  std::this_thread::sleep_for(std::chrono::seconds(CopyMemory::kMostSeconds + 1));
  memory_.note_call();
  EXPECT_EQ(frees(), 1u);
  EXPECT_EQ(memory_.kept_bytes(), 0u);
}

TEST_F(CopyMemoryTest, EachContextHasItsOwn) {
  CopyMemory::Block block = take(kMiB);
  memory_.give(block);
  ASSERT_CU(cuCtxSetCurrent(nullptr));
  refusal::Refusal error;
  EXPECT_FALSE(memory_.take(kMiB, block, error));
  EXPECT_TRUE(error);
  EXPECT_FALSE(memory_.release());
  EXPECT_GT(memory_.kept_bytes(), 0u);
  ASSERT_CU(cuCtxSetCurrent(context_));
  EXPECT_TRUE(memory_.release());
  EXPECT_FALSE(memory_.release());
  EXPECT_EQ(frees(), 1u);
}

TEST_F(CopyMemoryTest, AContextThatIsGoneTookItAlong) {
  CopyMemory::Block block = take(kMiB);
  memory_.give(block);
  memory_.forget(context_);
  EXPECT_EQ(memory_.kept_bytes(), 0u);
  EXPECT_FALSE(memory_.release());
  EXPECT_EQ(frees(), 0u);
}

TEST_F(CopyMemoryTest, NeitherMoreBlocksNorMoreBytesThanThereIsRoomFor) {
  std::vector<CopyMemory::Block> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(take(kMiB));
  const std::uint64_t each = blocks[0].bytes;
  for (CopyMemory::Block& block : blocks) memory_.give(block);
  EXPECT_EQ(memory_.kept_bytes(), 4 * each);
  EXPECT_EQ(frees(), 2u);
  memory_.release();

  std::size_t free = 0, total = 0;
  ASSERT_CU(cuMemGetInfo(&free, &total));
  CopyMemory::Block large = take(free / 3), fits = take(free / 8);
  memory_.give(fits);
  EXPECT_GT(memory_.kept_bytes(), 0u);
  const std::uint64_t kept = memory_.kept_bytes();
  memory_.give(large);
  EXPECT_EQ(memory_.kept_bytes(), kept) << "most of what is free would be ours";
}

TEST_F(CopyMemoryTest, ManyThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      EXPECT_CU(cuCtxSetCurrent(context_));
      for (int i = 0; i < 200; ++i) {
        CopyMemory::Block one = take(kMiB * static_cast<unsigned>(t + 1)), two = take(kMiB);
        EXPECT_NE(one.address, two.address);
        EXPECT_CU(cuMemsetD8(one.address, static_cast<unsigned char>(t), kMiB));
        std::uint8_t seen = 0;
        EXPECT_CU(cuMemcpyDtoH(&seen, one.address + kMiB - 1, 1));
        EXPECT_EQ(seen, t);
        memory_.give(one);
        if (i % 10 == t) memory_.release();
        memory_.note_call();
        memory_.give(two);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace grape::device
