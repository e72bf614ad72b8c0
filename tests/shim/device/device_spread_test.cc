// Distances between numbers in device memory, on the simulated driver.
#include "shim/device/device_spread.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "shim/device/own_kernels.h"
#include "tests/simcuda/fixture.h"

namespace grape::device {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// One and a half, two, minus infinity, infinity, NaN and another NaN, as the two types of 16 bits have them.
struct Halves {
  Element element;
  std::uint16_t one_and_half, two, minus_infinity, infinity, nan, other_nan;
};
constexpr Halves kHalves[] = {{Element::kHalf, 0x3E00, 0x4000, 0xFC00, 0x7C00, 0x7E00, 0xFC01},
                              {Element::kBfloat16, 0x3FC0, 0x4000, 0xFF80, 0x7F80, 0x7FC0, 0xFF81}};

class DeviceSpreadTest : public simcuda_test::Driver {
 protected:
  void TearDown() override {
    forget_own_kernels(context_);  // as the wrappers do it
    Driver::TearDown();
  }

  template <typename T>
  CUdeviceptr memory(const std::vector<T>& content) {
    CUdeviceptr made = 0;
    EXPECT_CU(cuMemAlloc(&made, content.size() * sizeof(T)));
    EXPECT_CU(cuMemcpyHtoD(made, content.data(), content.size() * sizeof(T)));
    return made;
  }
  template <typename T>
  Distance between(Element element, const std::vector<T>& one, const std::vector<T>& other) {
    EXPECT_EQ(one.size(), other.size());
    EXPECT_EQ(bytes_of(element), sizeof(T));
    std::vector<Distance> out;
    refusal::Refusal error;
    EXPECT_TRUE(measure(nullptr, {{element, memory(one), memory(other), one.size() * sizeof(T)}}, out, error))
        << error.text;
    return out.size() == 1 ? out[0] : Distance{};
  }
  Distance between(const std::vector<float>& one, const std::vector<float>& other) {
    return between(Element::kFloat, one, other);
  }
};

void expect(const Distance& distance, std::uint64_t count, double most, double squares, double all) {
  EXPECT_EQ(distance.count, count);
  EXPECT_EQ(distance.most, most);
  EXPECT_EQ(distance.squares, squares);
  EXPECT_EQ(distance.all, all);
}

TEST_F(DeviceSpreadTest, EqualMemory) {
  expect(between({1, -2, 3}, {1, -2, 3}), 0, 0, 0, 14);
  expect(between<double>(Element::kDouble, {1, -2, 3}, {1, -2, 3}), 0, 0, 0, 14);
  for (const Halves& h : kHalves) {
    const std::vector<std::uint16_t> content = {h.two, h.one_and_half};
    expect(between(h.element, content, content), 0, 0, 0, 6.25);
  }
}

TEST_F(DeviceSpreadTest, DifferentNumbers) {
  expect(between({1, -2, 3}, {1, -2.5, 3}), 1, 0.5, 0.25, 14);
  expect(between({1, -2, 3}, {4, -2.5, 3}), 2, 3, 9.25, 14);
  expect(between<double>(Element::kDouble, {1, -2, 3}, {1, -2, 7}), 1, 4, 16, 14);
  for (const Halves& h : kHalves) {
    expect(between<std::uint16_t>(h.element, {h.two, h.one_and_half, h.two}, {h.two, h.two, h.two}), 1, 0.5, 0.25,
           10.25);
  }
}

TEST_F(DeviceSpreadTest, NumbersOfDoublesAreNotRoundedBeforehand) {
  const Distance distance = between<double>(Element::kDouble, {1, 2}, {1 + 0x1p-50, 2});
  EXPECT_EQ(distance.count, 1u);
  EXPECT_EQ(distance.most, 0x1p-50);
  // Too small and too large for float: the greatest difference is rounded up.
  EXPECT_EQ(between<double>(Element::kDouble, {0}, {1e-300}).most, 0x1p-149);
  EXPECT_EQ(between<double>(Element::kDouble, {0}, {1e300}).most, kInfinity);
}

TEST_F(DeviceSpreadTest, NansAreEqualAndInfinitelyFarFromNumbers) {
  expect(between({1, kNan}, {1, -kNan}), 0, 0, 0, 1);
  expect(between({1, kNan}, {1, 7}), 1, kInfinity, kInfinity, 1);
  expect(between({1, 7}, {1, kNan}), 1, kInfinity, kInfinity, 50);
  expect(between({kInfinity}, {kNan}), 1, kInfinity, kInfinity, kInfinity);
  const double nan = std::nan("");
  expect(between<double>(Element::kDouble, {nan, 2, nan}, {nan, nan, 2}), 2, kInfinity, kInfinity, 4);
  for (const Halves& h : kHalves) {
    expect(between<std::uint16_t>(h.element, {h.nan, h.two}, {h.other_nan, h.two}), 0, 0, 0, 4);
    expect(between<std::uint16_t>(h.element, {h.nan, h.two}, {h.two, h.two}), 1, kInfinity, kInfinity, 4);
  }
}

TEST_F(DeviceSpreadTest, InfinitiesOfTheSameSignAreEqual) {
  expect(between({kInfinity, -kInfinity}, {kInfinity, -kInfinity}), 0, 0, 0, kInfinity);
  expect(between({kInfinity}, {-kInfinity}), 1, kInfinity, kInfinity, kInfinity);
  expect(between({1}, {-kInfinity}), 1, kInfinity, kInfinity, 1);
  for (const Halves& h : kHalves) {
    expect(between<std::uint16_t>(h.element, {h.infinity}, {h.infinity}), 0, 0, 0, kInfinity);
    expect(between<std::uint16_t>(h.element, {h.infinity}, {h.minus_infinity}), 1, kInfinity, kInfinity, kInfinity);
  }
}

TEST_F(DeviceSpreadTest, ZerosOfBothSignsAreEqual) {
  expect(between({0.0F, -0.0F}, {-0.0F, 0.0F}), 0, 0, 0, 0);
  expect(between<double>(Element::kDouble, {0.0}, {-0.0}), 0, 0, 0, 0);
  for (const Halves& h : kHalves) expect(between<std::uint16_t>(h.element, {0x8000}, {0}), 0, 0, 0, 0);
}

TEST_F(DeviceSpreadTest, SubnormalHalves) {
  expect(between<std::uint16_t>(Element::kHalf, {0x8001}, {0x0001}), 1, 0x1p-23, 0x1p-46, 0x1p-48);
  expect(between<std::uint16_t>(Element::kHalf, {0x0400}, {0x03FF}), 1, 0x1p-24, 0x1p-48, 0x1p-28);
}

TEST_F(DeviceSpreadTest, MoreNumbersThanThreads) {
  constexpr std::size_t kNumbers = 100'003;
  const std::vector<float> one(kNumbers, 1);
  std::vector<float> other = one;
  other.front() = 3;
  other[70'000] = 1.5;
  other.back() = 0;
  const std::uint64_t launches = simcuda_calls("cuLaunchKernel");
  expect(between(one, other), 3, 2, 5.25, kNumbers);
  EXPECT_EQ(simcuda_calls("cuLaunchKernel"), launches + 1);
}

// A backward pass leaves hundreds of gradients, and each wait costs more than its kernel.
TEST_F(DeviceSpreadTest, WaitsOnceForHundredsOfPairs) {
  constexpr std::size_t kPairs = 1000;
  const CUdeviceptr zero = number(0);
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < kPairs; ++i) {
    const std::vector<float> content = {static_cast<float>(i), 0};
    pairs.push_back({Element::kFloat, memory(content), zero, i == 7 ? 0u : 8u});
  }
  std::vector<Distance> out;
  refusal::Refusal error;
  ASSERT_TRUE(measure(nullptr, {}, out, error)) << error.text;  // the kernels are loaded
  const std::uint64_t waits = simcuda_calls("cuStreamSynchronize");
  ASSERT_TRUE(measure(nullptr, pairs, out, error)) << error.text;
  EXPECT_LE(simcuda_calls("cuStreamSynchronize"), waits + 3);
  ASSERT_EQ(out.size(), kPairs);
  for (std::size_t i = 0; i < kPairs; ++i) {
    const double apart = i == 7 ? 0 : static_cast<double>(i);
    expect(out[i], apart == 0 ? 0 : 1, apart, static_cast<float>(apart * apart), static_cast<float>(apart * apart));
  }
}

TEST_F(DeviceSpreadTest, NothingIsAtNoDistanceWithoutALaunch) {
  const std::uint64_t launches = simcuda_calls("cuLaunchKernel");
  for (const Element element : {Element::kFloat, Element::kDouble, Element::kHalf, Element::kBfloat16}) {
    std::vector<Distance> out;
    refusal::Refusal error;
    EXPECT_TRUE(measure(nullptr, {{element, 0, 0, 0}}, out, error)) << error.text;
    ASSERT_EQ(out.size(), 1u);
    expect(out[0], 0, 0, 0, 0);
  }
  EXPECT_EQ(simcuda_calls("cuLaunchKernel"), launches);
}

TEST_F(DeviceSpreadTest, RefusesOtherTypesAndPartsOfNumbers) {
  const CUdeviceptr p = number(0);
  std::vector<Distance> out;
  for (const std::uint64_t bytes : {0, 8}) {
    refusal::Refusal error;
    EXPECT_FALSE(measure(nullptr, {{Element::kFloat, p, p, 4}, {Element::kOther, p, p, bytes}}, out, error));
    EXPECT_EQ(error.text, "measure: CUDA_ERROR_INVALID_VALUE");
  }
  refusal::Refusal error;
  EXPECT_FALSE(measure(nullptr, {{Element::kFloat, p, p, 6}}, out, error));
  EXPECT_EQ(error.text, "measure: CUDA_ERROR_INVALID_VALUE");
}

TEST_F(DeviceSpreadTest, WaitsForItsStream) {
  const CUdeviceptr p = number(0);
  const CUstream slow = stream();
  ASSERT_CU(launch("_Z5delayj", slow, 30000u));
  ASSERT_CU(launch("_Z3mixPmmm", slow, p, std::uint64_t{1}, std::uint64_t{0x3F800000}));
  std::vector<Distance> out;
  refusal::Refusal error;
  ASSERT_TRUE(measure(slow, {{Element::kFloat, p, number(0), 8}}, out, error)) << error.text;
  ASSERT_EQ(out.size(), 1u);
  expect(out[0], 1, 1, 1, 1);
}

TEST_F(DeviceSpreadTest, AnErrorNamesItsCall) {
  const CUdeviceptr p = number(0), q = number(5);
  std::vector<Distance> out;
  refusal::Refusal error;
  ASSERT_TRUE(measure(nullptr, {{Element::kFloat, p, q, 8}}, out, error)) << error.text;
  for (const char* symbol : {"cuMemsetD8Async", "cuLaunchKernel", "cuMemcpyDtoHAsync_v2", "cuStreamSynchronize"}) {
    ASSERT_EQ(simcuda_set_fault(symbol, 1, CUDA_ERROR_LAUNCH_FAILED), 0);
    EXPECT_FALSE(measure(nullptr, {{Element::kFloat, p, q, 8}}, out, error)) << symbol;
    const std::string name = symbol;
    EXPECT_EQ(error.text, name.substr(0, name.find('_')) + ": CUDA_ERROR_LAUNCH_FAILED");
    EXPECT_TRUE(out.empty());
    simcuda_reset();
  }
}

TEST_F(DeviceSpreadTest, WithoutAContextIsAnError) {
  ASSERT_CU(cuCtxSetCurrent(nullptr));
  std::vector<Distance> out;
  refusal::Refusal error;
  EXPECT_FALSE(measure(nullptr, {{Element::kFloat, 256, 256, 4}}, out, error));
  EXPECT_EQ(error.text, "no context is current");
}

}  // namespace
}  // namespace grape::device
