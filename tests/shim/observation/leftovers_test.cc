// What the host's stack left in structs of an observed call's kernels.
#include <array>
#include <cstring>
#include <vector>

#include "tests/shim/observation/region_fixture.h"

namespace grape::replay_test {
namespace {

using Struct = std::array<std::uint64_t, 4>;  // AffineParams of tests/simcuda: bytes 1 to 7 are one of its holes

constexpr unsigned char kLeft = 0x5a;
constexpr std::uint64_t kLeftWord = 0x5a5a5a5a5a5a5a5a;

__attribute__((noinline)) void leave() {
  unsigned char frame[8192];
  std::memset(frame, kLeft, sizeof frame);
  asm volatile("" : : "r"(frame) : "memory");
}

// To the compiler the asm sets what the frame has.
__attribute__((noinline)) Struct with_leftovers() {
  unsigned char frame[4096];
  asm volatile("" : "=m"(frame));
  Struct parameters;
  std::memcpy(&parameters, frame + sizeof frame / 2, sizeof parameters);
  return parameters;
}

std::vector<std::uint64_t> words_of(const observation::RegionSink::Result& result) {
  EXPECT_NE(result.record, nullptr) << result.refusal.text;
  return result.record != nullptr ? result.record->words : std::vector<std::uint64_t>();
}

class Leftovers : public RegionTest {};

TEST_F(Leftovers, OfFunctionsThatReturnedAreZero) {
  const CUfunction affine = function("_Z6affinePfPKf12AffineParamsi");
  const CUdeviceptr x = torch_alloc(512), y = torch_alloc(512);
  leave();
  ASSERT_EQ(with_leftovers()[1], kLeftWord) << "else this test shows nothing";
  const auto result = observe([&] {
    leave();
    torch_free(torch_alloc(512), 512);
    const Struct parameters = with_leftovers();
    EXPECT_EQ(parameters, Struct()) << "what an allocation has cleared";
    ASSERT_CU(run(affine, nullptr, y, x, parameters, 0));
  });
  EXPECT_EQ(words_of(result), (std::vector<std::uint64_t>{y, x, 0, 0, 0, 0, 0}));
}

TEST_F(Leftovers, AddressesOfTheStackAreZeroInTheRecord) {
  const CUfunction affine = function("_Z6affinePfPKf12AffineParamsi");
  const CUdeviceptr x = torch_alloc(512), y = torch_alloc(512);
  const auto here = reinterpret_cast<std::uint64_t>(&x), heap = reinterpret_cast<std::uint64_t>(this);
  const auto result = observe([&] { ASSERT_CU(run(affine, nullptr, y, x, Struct{1, here, 7, heap}, 0)); });
  EXPECT_EQ(words_of(result), (std::vector<std::uint64_t>{y, x, 1, 0, 7, heap, 0}));
}

}  // namespace
}  // namespace grape::replay_test
