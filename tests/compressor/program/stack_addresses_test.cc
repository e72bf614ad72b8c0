// Addresses of stacks in parameters of kernels.
#include "compressor/program/stack_addresses.h"

#include <gtest/gtest.h>

#include "tests/compressor/program/record_builder.h"

namespace grape::program {
namespace {

constexpr std::uint64_t kStack = 0x7ffd61e00000, kBytes = 0x100000, kInside = kStack + 0x6f5d0;
using Words = std::vector<std::uint64_t>;

Words cleared(const FunctionInfo& function, const Words& words) {
  RecordBuilder r;
  r.launch(function, words);
  clear_stack_addresses(r.record(), {{0x1000, 0x1000}, {kStack, kBytes}});
  return r.record().words;
}

TEST(StackAddresses, OfStructsAreCleared) {
  const FunctionInfo kernel = function_with(1, "f", {8, 32});
  EXPECT_EQ(cleared(kernel, {5, kInside, 7, kStack, kStack + kBytes - 1}), (Words{5, 0, 7, 0, 0}));
  EXPECT_EQ(cleared(kernel, {5, kStack - 1, kStack + kBytes, 0x1fff, 0x2000}),
            (Words{5, kStack - 1, kStack + kBytes, 0, 0x2000}));
}

TEST(StackAddresses, AcrossTwoWords) {
  const FunctionInfo kernel = function_with(1, "f", {32});
  EXPECT_EQ(cleared(kernel, {kInside << 32 | 0x11, 0x22ULL << 32 | kInside >> 32, 1, 2}),
            (Words{0x11, 0x22ULL << 32, 1, 2}));
  EXPECT_EQ(cleared(kernel, {kInside & 0xffffffff, kInside >> 32, 1, 2}),
            (Words{kInside & 0xffffffff, kInside >> 32, 1, 2}))
      << "its halves are not side by side";
}

TEST(StackAddresses, NeitherPointersNorNeighbours) {
  EXPECT_EQ(cleared(function_with(1, "f", {8, 8, 16}), {kInside, kInside, 1, 2}), (Words{kInside, kInside, 1, 2}));
  const Words words = {kInside << 32 | 3, kInside >> 32, 1};
  EXPECT_EQ(cleared(function_with(1, "f", {8, 16}), words), words) << "half of it is another parameter's";
}

TEST(StackAddresses, LayoutsThatNobodyKnows) {
  FunctionInfo kernel = function_with(1, "f", {32});
  kernel.has_layout = false;
  EXPECT_EQ(cleared(kernel, {kInside, 1, 2, 3}), (Words{kInside, 1, 2, 3}));
}

}  // namespace
}  // namespace grape::program
