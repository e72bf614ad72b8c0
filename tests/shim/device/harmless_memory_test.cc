// Memory behind all addresses with one upper half, on the simulated driver.
#include "shim/device/harmless_memory.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "tests/simcuda/fixture.h"

namespace grape::device {
namespace {

class HarmlessMemoryTest : public simcuda_test::Driver {};

std::uint32_t word_at(CUdeviceptr address) {
  std::uint32_t value = 0;
  EXPECT_EQ(cuMemcpyDtoH(&value, address, sizeof value), CUDA_SUCCESS);
  return value;
}

TEST_F(HarmlessMemoryTest, EachLowerHalfIsAnAddress) {
  const std::uint64_t first = harmless_memory(0);
  ASSERT_NE(first, 0u);
  EXPECT_EQ(first & 0xffffffff, 0u);
  EXPECT_GE(first >> 32, 0x5a5du) << "no shift or count, of which a word may be made with another number";
  EXPECT_EQ(harmless_memory(0), first) << "made once";
  ASSERT_EQ(cuMemsetD32(first, 0x12345678, 1), CUDA_SUCCESS);
  for (const std::uint64_t low : {0x0u, 0x2000000u, 0x40000000u, 0xfe000000u})
    EXPECT_EQ(word_at(first + low), 0x12345678u);
  const std::uint64_t last = 0xfffffffc, behind = std::uint64_t{1} << 30;  // an array's begin, and its most bytes
  for (const std::uint64_t low : {std::uint64_t{0x1234}, std::uint64_t{0x7ffffc}, last, last + behind}) {
    EXPECT_EQ(cuMemsetD32(first + low, 7, 1), CUDA_SUCCESS);
    EXPECT_EQ(word_at(first + low), 7u);
  }
}

// A device of its own: what was found once is kept.
TEST_F(HarmlessMemoryTest, WhatCannotBeMadeLeavesNothing) {
  simcuda_set_fault("cuMemMap", 3, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(harmless_memory(7), 0u);
  EXPECT_EQ(simcuda_calls("cuMemUnmap"), 1u);
  EXPECT_EQ(simcuda_calls("cuMemAddressFree"), 1u);
  EXPECT_EQ(simcuda_calls("cuMemRelease"), 1u);
}

}  // namespace
}  // namespace grape::device
