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

TEST(WantedAddressTest, ThereIsNoWishWhereItCannotBeMet) {
  const std::uint64_t tebi = 1024 * kGiB;
  EXPECT_EQ(wanted_address(1, 8 * kGiB), 0u) << "a larger alignment";
  EXPECT_EQ(wanted_address(~std::uint64_t{0}, 0), 0u);
  std::uint64_t last = wanted_address(tebi, 0);
  ASSERT_NE(last, 0u);
  for (std::uint64_t next = last; next != 0; next = wanted_address(tebi, 0)) last = next;
  EXPECT_LE(last + tebi, std::uint64_t{1} << 47);
  EXPECT_EQ(wanted_address(tebi, 0), 0u);
  EXPECT_NE(wanted_address(1, 0), 0u) << "what is smaller still has a place";
}

}  // namespace
}  // namespace grape::driver
