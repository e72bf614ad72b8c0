// Work that differs from itself a little: is eager as near to a run as other runs are?
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "shim/device/copy_memory.h"
#include "shim/device/own_kernels.h"
#include "shim/replay/run_spread.h"
#include "shim/replay/shadow.h"
#include "tests/shim/graphs/program_builder.h"
#include "tests/simcuda/fixture.h"

namespace grape::replay {
namespace {

using device::Element;
using replay_test::ProgramBuilder;
using Found = Shadow::Found;

constexpr int kCount = 64;
constexpr std::uint64_t kBytes = kCount * sizeof(float);
constexpr char kJitter[] = "_Z6jitterPfi";  // adds a few millionths, something else in each launch

class SpreadTest : public simcuda_test::Driver {
 protected:
  void SetUp() override {
    Driver::SetUp();
    refusal::Refusal error;
    ASSERT_NE(device::own_kernels(error), nullptr) << error.text;
    CUmodule jitters = nullptr;
    ASSERT_CU(cuModuleLoadData(&jitters, "SIMCUDA MODULE 1\n_Z6jitterPfi\n"));
    ASSERT_CU(cuModuleGetFunction(&jitter_, jitters, kJitter));
  }
  void TearDown() override {
    device::CopyMemory::instance().release();
    device::forget_own_kernels(context_);
    Driver::TearDown();
  }

  void set(CUdeviceptr to, float value) {
    const std::vector<float> all(kCount, value);
    EXPECT_CU(cuMemcpyHtoD(to, all.data(), kBytes));
  }

  CUfunction jitter_ = nullptr;
};

// Two outputs, each a copy of an input; and memory that is an argument's or a library's.
class ShadowSpreadTest : public SpreadTest {
 protected:
  void SetUp() override {
    SpreadTest::SetUp();
    for (int i = 0; i < 2; ++i) {
      inputs_[i] = floats(kCount, 1);
      outputs_[i] = floats(kCount);
      eager_[i] = floats(kCount);
    }
    other_ = floats(kCount, 1);
  }

  struct Region {
    ProgramBuilder builder;
    ProgramBuilder::Block inputs[2] = {builder.add_input(kBytes), builder.add_input(kBytes)};
    ProgramBuilder::Block outputs[2] = {builder.add_output(kBytes), builder.add_output(kBytes)};
    ProgramBuilder::Block other;
  };
  Region copies() {
    Region made;
    made.other = made.builder.add_static(other_, kBytes);
    for (int i = 0; i < 2; ++i) made.builder.copy(made.outputs[i].at(0), made.inputs[i].at(0), kBytes);
    return made;
  }
  void vary(Region& region, ProgramBuilder::Block which) {
    const auto handle = reinterpret_cast<std::uint64_t>(jitter_);
    const auto jitter = region.builder.add_function(handle, kJitter, {8, 4});
    region.builder.kernel(jitter, {which.at(0), ProgramBuilder::plain(kCount)});
  }
  // The first output varies.
  Region varies() {
    Region made = copies();
    vary(made, made.outputs[0]);
    return made;
  }

  void vary_eagerly(CUdeviceptr which) {
    int count = kCount;
    void* parameters[] = {&which, &count};
    ASSERT_CU(cuLaunchKernel(jitter_, 1, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr));
  }
  void copy_eagerly() {
    for (int i = 0; i < 2; ++i) ASSERT_CU(cuMemcpyDtoD(eager_[i], inputs_[i], kBytes));
  }
  void eagerly() {
    copy_eagerly();
    vary_eagerly(eager_[0]);
  }

  // `eager`: does what `region` does, with outputs of its own. Its bytes are there afterwards.
  Found found(const Region& region, const std::function<void()>& eager, std::vector<Element> elements,
              bool hidden = false) {
    Shadow shadow;
    shadow.set_elements(std::move(elements));
    refusal::Refusal difference, error;
    Found result = Found::kOtherValue;
    EXPECT_TRUE(
        shadow.before(nullptr, {{{inputs_[0], kBytes}}, {{inputs_[1], kBytes}}, {{other_, kBytes}, hidden}}, error))
        << error.text;
    eager();
    EXPECT_TRUE(shadow.after(nullptr, {{eager_[0], kBytes}, {eager_[1], kBytes}}, error)) << error.text;
    const std::vector<std::uint32_t> left = bits();
    const program::ArenaPlan plan = region.builder.plan();
    program::Bindings bindings;
    bindings.inputs = {inputs_[0], inputs_[1]};
    bindings.outputs = {outputs_[0], outputs_[1]};
    graphs::ExecPool pool;
    ProgramRun steps;
    EXPECT_TRUE(steps.prepare(pool, region.builder.kept(), plan, bindings, error)) << error.text;
    simcuda_reset();
    if (no_memory_) simcuda_set_fault("cuMemAlloc_v2", 0, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_TRUE(shadow.compare(nullptr, {}, steps, {{outputs_[0], kBytes}, {outputs_[1], kBytes}}, false, result,
                               difference, error))
        << error.text;
    EXPECT_EQ(bits(), left);
    EXPECT_NE(result == Found::kSame, static_cast<bool>(difference)) << difference.text;
    return result;
  }
  Found found(const Region& region, std::vector<Element> elements) {
    return found(
        region, [this] { eagerly(); }, std::move(elements));
  }
  // All that eager may have written.
  std::vector<std::uint32_t> bits() {
    std::vector<std::uint32_t> all;
    for (const CUdeviceptr from : {eager_[0], eager_[1], inputs_[0], inputs_[1], other_}) {
      all.resize(all.size() + kCount);
      EXPECT_CU(cuMemcpyDtoH(all.data() + all.size() - kCount, from, kBytes));
    }
    return all;
  }

  static std::vector<Element> both() { return {Element::kFloat, Element::kFloat}; }

  CUdeviceptr inputs_[2] = {}, outputs_[2] = {}, eager_[2] = {}, other_ = 0;
  bool no_memory_ = false;  // while it compares
};

TEST_F(ShadowSpreadTest, WhatVariesAsMuchAsEagerIsWithinTheSpread) {
  EXPECT_EQ(found(varies(), both()), Found::kWithinSpread);
  EXPECT_EQ(simcuda_calls("cuGraphLaunch"), RunSpread::kRuns + 1);
  EXPECT_EQ(found(
                copies(), [this] { copy_eagerly(); }, both()),
            Found::kSame);
}

TEST_F(ShadowSpreadTest, WithoutNumbersInAllOutputsNothingIsWithin) {
  const std::vector<Element> incomplete[] = {
      {}, {Element::kFloat}, {Element::kOther, Element::kFloat}, {Element::kFloat, Element::kOther}};
  for (const std::vector<Element>& elements : incomplete) {
    EXPECT_EQ(found(varies(), elements), Found::kNotDeterministic);
    EXPECT_EQ(simcuda_calls("cuGraphLaunch"), 2u) << "nothing is measured: two that differ are enough";
  }
}

// Its second output shows what the run before left in memory that only kernels know of.
TEST_F(ShadowSpreadTest, HiddenMemoryMustNotMatter) {
  Region made = varies();
  made.builder.copy(made.outputs[1].at(0), made.other.at(0), kBytes);
  made.builder.fill(made.other.at(0), 0x40, 1, kBytes);
  const auto eager = [this] {
    eagerly();
    ASSERT_CU(cuMemcpyDtoD(eager_[1], other_, kBytes));
    ASSERT_CU(cuMemsetD8(other_, 0x40, kBytes));
  };
  EXPECT_EQ(found(made, eager, both(), true), Found::kNotDeterministic);
}

TEST_F(ShadowSpreadTest, FarFromTheRunsIsNotWithin) {
  const auto eager = [this](float value) {
    return [this, value] {
      copy_eagerly();
      set(eager_[0], value);
    };
  };
  EXPECT_EQ(found(varies(), eager(3), both()), Found::kNotDeterministic);
  EXPECT_EQ(found(varies(), eager(1.01F), both()), Found::kNotDeterministic) << "little of the whole, and too far";
  EXPECT_EQ(found(varies(), eager(std::numeric_limits<float>::quiet_NaN()), both()), Found::kNotDeterministic);
  const auto one_number = [this] {
    eagerly();
    const float far = 1.01F;
    ASSERT_CU(cuMemcpyHtoD(eager_[0] + kBytes / 2, &far, sizeof far));
  };
  EXPECT_EQ(found(varies(), one_number, both()), Found::kNotDeterministic);
}

// However near: all runs agree on it.
TEST_F(ShadowSpreadTest, WhatDoesNotVaryIsEagers) {
  const auto eager = [this] {
    eagerly();
    set(eager_[1], 1 + 0x1p-20F);
  };
  EXPECT_EQ(found(varies(), eager, both()), Found::kDifferent);
  Region made = varies();
  made.builder.fill(made.other.at(0), 0, 1, kBytes);
  EXPECT_EQ(found(made, both()), Found::kDifferent) << "an argument that eager left as it was";
}

TEST_F(ShadowSpreadTest, WhatVariesIsLittleOfTheWhole) {
  for (const CUdeviceptr input : inputs_) set(input, 0);
  EXPECT_EQ(found(varies(), both()), Found::kNotDeterministic) << "it is everything";
  set(inputs_[1], 1);
  EXPECT_EQ(found(varies(), both()), Found::kWithinSpread) << "the other output is most of it";
}

TEST_F(ShadowSpreadTest, MemoryOfOthersMustNotVary) {
  for (const bool hidden : {false, true}) {
    Region made = varies();
    vary(made, made.other);
    const auto eager = [this] {
      eagerly();
      vary_eagerly(other_);
    };
    EXPECT_EQ(found(made, eager, both(), hidden), hidden ? Found::kWithinSpread : Found::kNotDeterministic) << hidden;
  }
}

TEST_F(ShadowSpreadTest, WithoutMemoryForTheFirstRunNothingIsWithin) {
  no_memory_ = true;
  EXPECT_EQ(found(varies(), both()), Found::kNotDeterministic);
  EXPECT_EQ(simcuda_calls("cuMemAlloc_v2"), 1u);
}

// Runs by hand, most often of one output.
class RunSpreadTest : public SpreadTest {
 protected:
  // Is `eager` within the spread of the first run and the others? Each leaves one number everywhere.
  bool within(float first, const std::vector<float>& others, float eager) {
    const CUdeviceptr output = floats(kCount, first);
    RunSpread spread(elements_);
    refusal::Refusal error;
    bool within = false;
    EXPECT_TRUE(spread.begin(nullptr, {{output, kBytes}}, error)) << error.text;
    for (const float other : others) {
      set(output, other);
      EXPECT_TRUE(spread.add(nullptr, {{output, kBytes}}, error)) << error.text;
    }
    EXPECT_TRUE(spread.holds(nullptr, {{floats(kCount, eager), kBytes}}, within, error)) << error.text;
    return within;
  }

  std::vector<Element> elements_ = {Element::kFloat};
};

TEST_F(RunSpreadTest, EagerMayBeAFewTimesAsFarAsTheFarthestRun) {
  EXPECT_TRUE(within(64, {64, 64.25F, 64}, 64));
  EXPECT_TRUE(within(64, {64, 64.25F, 64}, 64.25F));
  EXPECT_TRUE(within(64, {64, 64.25F, 64}, 63));
  EXPECT_FALSE(within(64, {64, 64.25F, 64}, 62.5F));
  EXPECT_TRUE(within(64, {64}, 64)) << "nothing varies";
  EXPECT_FALSE(within(64, {64}, 64.25F));
  EXPECT_FALSE(within(64, {}, 64.25F));
}

TEST_F(RunSpreadTest, AtMostASixteenthOfTheWholeVaries) {
  EXPECT_TRUE(within(64, {68}, 64));
  EXPECT_FALSE(within(64, {69}, 64)) << "the runs themselves";
  EXPECT_TRUE(within(64, {66}, 60));
  EXPECT_FALSE(within(64, {66}, 59)) << "eager";
  EXPECT_FALSE(within(0, {1}, 1));
}

TEST_F(RunSpreadTest, WhatIsNoNumberIsInfinitelyFar) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(within(64, {64.25F}, kNan));
  EXPECT_FALSE(within(64, {kNan}, kNan));
  EXPECT_FALSE(within(kNan, {64}, 64));
}

TEST_F(RunSpreadTest, OfAnInfiniteWholeNothingIsLittle) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(within(kInfinity, {64}, 7));
  EXPECT_FALSE(within(-kInfinity, {-kInfinity}, 64));
  // One number of a mask, which does not vary; all others do.
  const CUdeviceptr output = floats(kCount), mask = floats(kCount, -kInfinity);
  elements_ = {Element::kFloat, Element::kFloat};
  RunSpread spread(elements_);
  refusal::Refusal error;
  bool within = true;
  ASSERT_TRUE(spread.begin(nullptr, {{output, kBytes}, {mask, 4}}, error)) << error.text;
  set(output, 1);
  ASSERT_TRUE(spread.add(nullptr, {{output, kBytes}, {mask, 4}}, error)) << error.text;
  ASSERT_TRUE(spread.holds(nullptr, {{output, kBytes}, {mask, 4}}, within, error)) << error.text;
  EXPECT_FALSE(within);
}

TEST_F(RunSpreadTest, ItsMemoryIsGivenBack) {
  const CUdeviceptr output = floats(kCount, 1);
  refusal::Refusal error;
  {
    RunSpread spread(elements_);
    ASSERT_TRUE(spread.begin(nullptr, {{output, kBytes}}, error)) << error.text;
    EXPECT_EQ(device::CopyMemory::instance().kept_bytes(), 0u);
  }
  EXPECT_GE(device::CopyMemory::instance().kept_bytes(), kBytes);
  RunSpread empty(elements_);
  EXPECT_FALSE(empty.begin(nullptr, {{output, 0}}, error)) << "there is nothing to measure";
}

}  // namespace
}  // namespace grape::replay
