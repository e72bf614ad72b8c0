// Memory of the shadow's own that each run of the graph finds as it was at first.
#include <gtest/gtest.h>

#include <cstdint>

#include "shim/device/copy_memory.h"
#include "shim/device/own_kernels.h"
#include "shim/replay/shadow.h"
#include "tests/shim/graphs/program_builder.h"
#include "tests/simcuda/fixture.h"

namespace grape::replay {
namespace {

using replay_test::ProgramBuilder;

constexpr std::uint64_t kBytes = 8, kCame = 40;  // what came, as a gradient does

// A program that counts in its input, in place, and copies it to its output.
class ShadowFreshTest : public simcuda_test::Driver {
 protected:
  void SetUp() override {
    Driver::SetUp();
    refusal::Refusal error;
    ASSERT_NE(device::own_kernels(error), nullptr) << error.text;
    for (CUdeviceptr* memory : {&came_, &input_, &output_, &eager_output_}) *memory = floats(2, 1);
    write(came_, kCame);
    write(eager_output_, kCame + 1);
  }
  void TearDown() override {
    device::CopyMemory::instance().release();
    device::forget_own_kernels(context_);
    Driver::TearDown();
  }

  static void write(CUdeviceptr to, std::uint64_t number) { ASSERT_CU(cuMemcpyHtoD(to, &number, sizeof number)); }
  static std::uint64_t number_at(CUdeviceptr address) {
    std::uint64_t number = 0;
    EXPECT_CU(cuMemcpyDtoH(&number, address, sizeof number));
    return number;
  }

  // `input`: what its memory holds at first.
  Shadow::Found shadowed(std::uint64_t input, bool fresh, bool twice) {
    ProgramBuilder builder;
    const auto in = builder.add_input(kBytes), out = builder.add_output(kBytes);
    const auto handle = reinterpret_cast<std::uint64_t>(function("_Z10atomic_addPmm"));
    builder.kernel(builder.add_function(handle, "_Z10atomic_addPmm", {8, 8}), {in.at(0), ProgramBuilder::plain(1)});
    builder.copy(out.at(0), in.at(0), kBytes);
    write(input_, input);
    const program::ArenaPlan plan = builder.plan();
    program::Bindings bindings;
    bindings.inputs = {input_};
    bindings.outputs = {output_};
    graphs::ExecPool pool;
    ProgramRun steps;
    Shadow shadow;
    refusal::Refusal error, difference;
    Shadow::Found found = Shadow::Found::kDifferent;
    EXPECT_TRUE(shadow.before(nullptr, {}, error)) << error.text;
    EXPECT_TRUE(shadow.after(nullptr, {{eager_output_, kBytes}}, error)) << error.text;
    EXPECT_TRUE(steps.prepare(pool, builder.kept(), plan, bindings, error)) << error.text;
    if (fresh) shadow.set_fresh({{input_, came_, kBytes}});
    EXPECT_TRUE(shadow.compare(nullptr, {}, steps, {{output_, kBytes}}, twice, found, difference, error)) << error.text;
    EXPECT_EQ(number_at(came_), kCame) << "only read";
    return found;
  }

  CUdeviceptr came_ = 0, input_ = 0, output_ = 0, eager_output_ = 0;
};

TEST_F(ShadowFreshTest, ARunFindsWhatCame) {
  EXPECT_EQ(shadowed(7, true, false), Shadow::Found::kSame);
  EXPECT_EQ(number_at(output_), kCame + 1);
  EXPECT_NE(shadowed(7, false, false), Shadow::Found::kSame);
}

TEST_F(ShadowFreshTest, SoDoesEachRunAfterIt) {
  EXPECT_EQ(shadowed(kCame, true, true), Shadow::Found::kSame);
  EXPECT_EQ(simcuda_calls("cuGraphLaunch"), 2u);
  EXPECT_EQ(number_at(input_), kCame + 1) << "of one run";
  EXPECT_NE(shadowed(kCame, false, true), Shadow::Found::kSame) << "the second run finds what the first one left";
}

}  // namespace
}  // namespace grape::replay
