// Where addresses are wanted: each once, none a pair of small numbers, none beyond the addresses of a process.
#include "shim/driver/wanted_address.h"

#include <gtest/gtest.h>

namespace grape::driver {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

TEST(WantedAddressTest, EachIsBehindTheLastOne) {
  const std::uint64_t first = wanted_address(5 * kGiB, 4 * kGiB), second = wanted_address(1, 0);
  EXPECT_GE(first >> 32, 0x5a5du);
  EXPECT_EQ(first % (4 * kGiB), 0u);
  EXPECT_EQ(second, first + 8 * kGiB);
  EXPECT_EQ(wanted_address(1, 1), second + 4 * kGiB);
}

// A program that reserves and frees addresses for ever: expandable segments, and empty_cache() in each step.
TEST(WantedAddressTest, TheyBeginAnewWhenAllWereGiven) {
  const std::uint64_t tebi = 1024 * kGiB, first = wanted_address(tebi, 0);
  std::uint64_t last = first, next = wanted_address(tebi, 0);
  for (; next > last; next = wanted_address(tebi, 0)) last = next;
  EXPECT_LE(last + tebi, std::uint64_t{1} << 47);
  EXPECT_EQ(next, std::uint64_t{0x5a5d} << 32);
  EXPECT_EQ(wanted_address(1, 0), next + tebi);
}

TEST(WantedAddressTest, ThereIsNoWishWhereItCannotBeMet) {
  EXPECT_EQ(wanted_address(1, 8 * kGiB), 0u) << "a larger alignment";
  EXPECT_EQ(wanted_address(~std::uint64_t{0}, 0), 0u);
}

}  // namespace
}  // namespace grape::driver
