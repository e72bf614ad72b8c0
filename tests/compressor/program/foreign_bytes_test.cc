// Which bytes a shadow replay may have in place of those that an earlier process had.
#include "compressor/program/foreign_bytes.h"

#include <gtest/gtest.h>

namespace grape::program {
namespace {

constexpr std::uint64_t kHarmless = 0x7e0000000000;  // 4 GiB of it
constexpr std::uint64_t kStack = 0x7ffe4d535730, kOtherStack = 0x7ffce3e57b60, kHeap = 0x3b4ec2d0,
                        kOtherHeap = 0x0fef3390;

std::uint8_t differing(std::uint64_t a, std::uint64_t b) {
  std::uint8_t bytes = 0;
  for (unsigned i = 0; i < 8; ++i) {
    if (((a ^ b) >> (8 * i) & 0xff) != 0) bytes = static_cast<std::uint8_t>(bytes | 1u << i);
  }
  return bytes;
}

Replacement replacement(std::uint64_t own, std::uint64_t other, HostPlace place = HostPlace::kReserved,
                        std::uint64_t harmless = kHarmless) {
  const Replacement found = careful_replacement(own, other, differing(own, other), place, harmless);
  EXPECT_EQ(differing(own, found.value) & ~found.bytes & 0x0f, 0) << "a byte of the lower half that nobody is told of";
  return found;
}

bool is_harmless(std::uint64_t value) { return value >= kHarmless && value < kHarmless + (std::uint64_t{1} << 32); }

TEST(ForeignBytes, AddressesOfBothProcessesBecomeHarmlessOnes) {
  for (const std::uint64_t other : {kOtherStack, std::uint64_t{0x302000000}, kOtherHeap, std::uint64_t{0}}) {
    for (const std::uint64_t own : {kStack, std::uint64_t{0x7f12'0000'0000}}) {
      const Replacement found = replacement(own, other);
      EXPECT_TRUE(is_harmless(found.value)) << std::hex << own << " " << other << " " << found.value;
      EXPECT_NE(found.bytes & 0xf0, 0);
    }
  }
  EXPECT_TRUE(is_harmless(replacement(0, kOtherStack).value)) << "a null pointer";
  EXPECT_TRUE(is_harmless(replacement(kHeap, kOtherHeap, HostPlace::kData).value))
      << "memory of the process, below 4 GiB";
}

TEST(ForeignBytes, WithoutEnoughHarmlessMemoryNoAddressIsTried) {
  for (const std::uint64_t harmless : {std::uint64_t{0}, kHarmless + 4096}) {
    const Replacement found = replacement(kStack, kOtherStack, HostPlace::kData, harmless);
    EXPECT_EQ(found.value, kStack);
    EXPECT_EQ(found.bytes, 0);
  }
}

TEST(ForeignBytes, AddressesWithTheSameUpperHalfAreNotTried) {
  const Replacement found = replacement(0x7f1200001000, 0x7f1200005000);
  EXPECT_EQ(found.value, 0x7f1200001000u);
  EXPECT_EQ(found.bytes, 0);
  // What the host's stack left, and behind it a number.
  const Replacement garbage = replacement(0x30068733a78, 0x300e3e6a818, HostPlace::kNone);
  EXPECT_EQ(garbage.value, 0x300e3e6a818u) << "there is nothing at this address";
}

// A number of four bytes, and behind it the upper half of an address.
TEST(ForeignBytes, ANumberBesideAnAddressesUpperHalfStays) {
  const Replacement found = replacement(0x7ffe00000003, 0x7ffc00000003);
  EXPECT_EQ(found.value, kHarmless | 3);
  EXPECT_EQ(found.bytes, 0x10) << "as they differ between the processes";
}

TEST(ForeignBytes, WhatMayBeAnIndexBecomesASmallerOne) {
  constexpr std::uint64_t kUpper = 0x00090000'00000000, kLower = 0xcafecafe;
  for (const std::uint64_t own : {1, 2, 7, 0xfffe}) {
    for (const std::uint64_t other : {0, 5, 0x1234, 0xfffff}) {
      if (own == other) continue;
      const Replacement lower = replacement(kUpper | own, kUpper | other, HostPlace::kNone);
      EXPECT_LE(lower.value, kUpper | own);
      EXPECT_GE(lower.value, kUpper);
      const Replacement upper = replacement((own + 0x8000) << 32 | kLower, (other + 0x8000) << 32 | kLower);
      EXPECT_LE(upper.value >> 32, own + 0x8000);
      EXPECT_EQ(static_cast<std::uint32_t>(upper.value), kLower);
    }
  }
  const Replacement beside = replacement(0x00090000'cafecafe, 0x00770000'beefbeef);
  EXPECT_LE(beside.value >> 32, 0x90000u);
  EXPECT_EQ(static_cast<std::uint32_t>(beside.value), 0xbeefbeefu) << "too large for an index";
}

// On a GPU a texture's handle is 1, as is the address of a function of the device.
TEST(ForeignBytes, HandlesAreNotTried) {
  for (const std::uint64_t own : {1, 2, 0x1234}) EXPECT_EQ(replacement(own, 3, HostPlace::kNone).bytes, 0);
}

TEST(ForeignBytes, WhatWouldHaveToGrowIsNotTried) {
  EXPECT_EQ(replacement(0, 5).bytes, 0);
  EXPECT_EQ(replacement(0, kOtherHeap).bytes, 0);
  EXPECT_EQ(replacement(~std::uint64_t{0}, ~std::uint64_t{7}).bytes, 0) << "-1";
}

TEST(ForeignBytes, OnlyBytesThatDifferAreTouched) {
  const Replacement found = replacement(0xcb048eb8'00000001, 0xefa48eb8'00000001);
  EXPECT_EQ(found.value, 0xefa48eb8'00000001u);
  EXPECT_EQ(found.bytes, 0xc0);
}

// A number here and an address there: it is neither an index nor an address in both, so in none, and theirs does no
// harm.
TEST(ForeignBytes, WhatIsOfTwoKindsHasTheOthersBytes) {
  EXPECT_EQ(replacement(0x38, kOtherStack, HostPlace::kNone).value, static_cast<std::uint32_t>(kOtherStack));
  EXPECT_EQ(replacement(0x61683a3a74726f66, kOtherStack, HostPlace::kNone).value, kOtherStack);
  EXPECT_EQ(replacement(kStack, 0x11cfc32cca407200).value, 0x11cfc32cca407200u);
}

}  // namespace
}  // namespace grape::program
