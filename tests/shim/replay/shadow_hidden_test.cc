// Memory that only the kernels know of, and runs that differ from themselves.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "shim/device/copy_memory.h"
#include "shim/device/own_kernels.h"
#include "shim/replay/shadow.h"
#include "tests/shim/graphs/program_builder.h"
#include "tests/simcuda/fixture.h"

namespace grape::replay {
namespace {

using replay_test::ProgramBuilder;

constexpr std::uint64_t kBytes = 8;

// A region with one input, one output and eight bytes that a library keeps for itself.
class ShadowHiddenTest : public simcuda_test::Driver {
 protected:
  void SetUp() override {
    Driver::SetUp();
    refusal::Refusal error;
    ASSERT_NE(device::own_kernels(error), nullptr) << error.text;
    for (CUdeviceptr* memory : {&input_, &scratch_, &output_, &eager_output_}) *memory = floats(2, 1);
  }
  void TearDown() override {
    device::CopyMemory::instance().release();
    device::forget_own_kernels(context_);
    Driver::TearDown();
  }

  struct Region {
    ProgramBuilder builder;
    ProgramBuilder::Block input = builder.add_input(kBytes), output = builder.add_output(kBytes);
    ProgramBuilder::Block scratch;
  };
  Region region() {
    Region made;
    made.scratch = made.builder.add_static(scratch_, kBytes);
    return made;
  }
  void add_one(Region& region, ProgramBuilder::Block to) {
    const auto handle = reinterpret_cast<std::uint64_t>(function("_Z10atomic_addPmm"));
    const auto add = region.builder.add_function(handle, "_Z10atomic_addPmm", {8, 8});
    region.builder.kernel(add, {to.at(0), ProgramBuilder::plain(1)});
  }
  void add_one_eagerly(CUdeviceptr to) { ASSERT_CU(launch("_Z10atomic_addPmm", nullptr, to, std::uint64_t{1})); }

  struct Result {
    Shadow::Found found = Shadow::Found::kDifferent;
    refusal::Refusal difference;
  };
  // `eager` writes to eager_output_ what `region` writes to its output. The memory is as eager left it afterwards.
  template <typename Eager>
  Result shadowed(const Region& region, Eager eager, bool hidden, bool twice = false) {
    Shadow shadow;
    Result result;
    refusal::Refusal error;
    EXPECT_TRUE(shadow.before(nullptr, {{{input_, kBytes}, false}, {{scratch_, kBytes}, hidden}}, error)) << error.text;
    eager();
    EXPECT_TRUE(shadow.after(nullptr, {{eager_output_, kBytes}}, error)) << error.text;
    const std::uint64_t left = number_at(scratch_), input = number_at(input_), output = number_at(eager_output_);
    const program::ArenaPlan plan = region.builder.plan();
    program::Bindings bindings;
    bindings.inputs = {input_};
    bindings.outputs = {output_};
    graphs::ExecPool pool;
    ProgramRun steps;
    EXPECT_TRUE(steps.prepare(pool, region.builder.kept(), plan, bindings, error)) << error.text;
    EXPECT_TRUE(shadow.compare(nullptr, {}, steps, {{output_, kBytes}}, twice, result.found, result.difference, error))
        << error.text;
    EXPECT_EQ(number_at(scratch_), left);
    EXPECT_EQ(number_at(input_), input);
    EXPECT_EQ(number_at(eager_output_), output);
    EXPECT_EQ(!result.difference, result.found == Shadow::Found::kSame) << result.difference.text;
    return result;
  }
  std::uint64_t number_at(CUdeviceptr address) {
    std::uint64_t number = 0;
    EXPECT_CU(cuMemcpyDtoH(&number, address, sizeof number));
    return number;
  }

  CUdeviceptr input_ = 0, scratch_ = 0, output_ = 0, eager_output_ = 0;
};

// A workspace: the two runs leave other bytes in it, and nothing depends on them.
TEST_F(ShadowHiddenTest, WhatALibraryLeavesInItsWorkspaceMayDiffer) {
  Region made = region();
  made.builder.fill(made.scratch.at(0), 0x22, 1, kBytes);
  made.builder.copy(made.output.at(0), made.input.at(0), kBytes);
  const auto eager = [&] {
    ASSERT_CU(cuMemsetD8(scratch_, 0x11, kBytes));
    ASSERT_CU(cuMemcpyDtoD(eager_output_, input_, kBytes));
  };
  EXPECT_EQ(shadowed(made, eager, true).found, Shadow::Found::kSame);
  EXPECT_EQ(simcuda_calls("cuGraphLaunch"), 2u) << "the second run shows that it does not matter";
  EXPECT_EQ(shadowed(made, eager, false).found, Shadow::Found::kDifferent) << "the program's own memory";
}

TEST_F(ShadowHiddenTest, ButNotIfAResultDependsOnIt) {
  Region made = region();
  made.builder.copy(made.output.at(0), made.scratch.at(0), kBytes);
  made.builder.fill(made.scratch.at(0), 0x22, 1, kBytes);
  const Result result = shadowed(
      made,
      [&] {
        ASSERT_CU(cuMemcpyDtoD(eager_output_, scratch_, kBytes));
        ASSERT_CU(cuMemsetD8(scratch_, 0x11, kBytes));
      },
      true);
  EXPECT_EQ(result.found, Shadow::Found::kDifferent);
  EXPECT_NE(result.difference.text.find("depends on memory that only its kernels know of"), std::string::npos)
      << result.difference.text;
}

// Not even where both runs leave the same: a call that may be given up half-way must not find it changed.
TEST_F(ShadowHiddenTest, WhatMustNotMatterIsRunTwice) {
  Region counts = region();
  add_one(counts, counts.scratch);
  counts.builder.copy(counts.output.at(0), counts.input.at(0), kBytes);
  const auto eager = [&] {
    add_one_eagerly(scratch_);
    ASSERT_CU(cuMemcpyDtoD(eager_output_, input_, kBytes));
  };
  EXPECT_EQ(shadowed(counts, eager, true).found, Shadow::Found::kSame);
  EXPECT_EQ(simcuda_calls("cuGraphLaunch"), 1u);
  EXPECT_EQ(shadowed(counts, eager, true, true).found, Shadow::Found::kSame);
  EXPECT_EQ(simcuda_calls("cuGraphLaunch"), 3u);

  Region shows = region();
  add_one(shows, shows.scratch);
  shows.builder.copy(shows.output.at(0), shows.scratch.at(0), kBytes);
  const auto eager_shows = [&] {
    add_one_eagerly(scratch_);
    ASSERT_CU(cuMemcpyDtoD(eager_output_, scratch_, kBytes));
  };
  EXPECT_EQ(shadowed(shows, eager_shows, true).found, Shadow::Found::kSame);
  EXPECT_EQ(shadowed(shows, eager_shows, true, true).found, Shadow::Found::kDifferent);
}

// What is not written the second time does not pass for equal: it held the first run's bytes.
TEST_F(ShadowHiddenTest, OutputsOfTheFirstRunDoNotPassForTheSecondOnes) {
  Region made = region();
  add_one(made, made.scratch);
  add_one(made, made.output);  // from whatever is there
  ASSERT_CU(cuMemsetD8(output_, 0, kBytes));
  ASSERT_CU(cuMemsetD8(eager_output_, 0, kBytes));
  const Result result = shadowed(
      made,
      [&] {
        add_one_eagerly(scratch_);
        add_one_eagerly(eager_output_);
      },
      true, true);
  EXPECT_EQ(result.found, Shadow::Found::kDifferent) << "it depends on what was in fresh memory";
}

// Counts in memory that nobody watches: each run gives another number.
TEST_F(ShadowHiddenTest, ARunThatDiffersFromItselfIsNotDeterministic) {
  const CUdeviceptr counter = floats(2, 0);
  ASSERT_CU(cuMemsetD8(counter, 0, kBytes));
  Region made = region();
  const auto place = made.builder.add_static(counter, kBytes);
  add_one(made, place);
  made.builder.copy(made.output.at(0), place.at(0), kBytes);
  const auto eager = [&] {
    add_one_eagerly(counter);
    ASSERT_CU(cuMemcpyDtoD(eager_output_, counter, kBytes));
  };
  EXPECT_EQ(shadowed(made, eager, true).found, Shadow::Found::kNotDeterministic);

  // The same, but seldom: the count comes through a row of places, so that the first three runs leave the same.
  const CUdeviceptr row[] = {floats(2, 0), floats(3, 0), floats(4, 0)};
  for (const CUdeviceptr place_in_row : row) ASSERT_CU(cuMemsetD8(place_in_row, 0, kBytes));
  Region seldom = region();
  const auto first = seldom.builder.add_static(row[0], kBytes), second = seldom.builder.add_static(row[1], kBytes),
             third = seldom.builder.add_static(row[2], kBytes);
  seldom.builder.copy(seldom.output.at(0), third.at(0), kBytes);
  seldom.builder.copy(third.at(0), second.at(0), kBytes);
  seldom.builder.copy(second.at(0), first.at(0), kBytes);
  add_one(seldom, first);
  const auto eager_seldom = [&] { ASSERT_CU(cuMemsetD8(eager_output_, 0x22, kBytes)); };
  EXPECT_EQ(shadowed(seldom, eager_seldom, true).found, Shadow::Found::kNotDeterministic);

  // The same, but something else differs as well, and the same way each time.
  Region wrong = region();
  const auto again = wrong.builder.add_static(counter, kBytes);
  add_one(wrong, again);
  wrong.builder.copy(wrong.output.at(0), again.at(0), kBytes);
  wrong.builder.fill(wrong.input.at(0), 0x33, 1, kBytes);
  EXPECT_EQ(shadowed(wrong, eager, true).found, Shadow::Found::kDifferent);
}

}  // namespace
}  // namespace grape::replay
