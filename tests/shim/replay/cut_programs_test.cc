// Programs that are cut (ArenaPlan::cuts), on the simulated driver: memory for a part comes just before it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "shim/device/own_kernels.h"
#include "shim/graphs/upload_ahead.h"
#include "shim/replay/program_run.h"
#include "tests/shim/graphs/program_builder.h"
#include "tests/simcuda/fixture.h"

namespace grape::replay {
namespace {

using program::Bindings;
using replay_test::ProgramBuilder;

class OneOutput final : public Supply {
 public:
  OneOutput(CUdeviceptr address, bool gives) : address_(address), gives_(gives) {}
  bool before_part(std::size_t part, Bindings& bindings) override {
    asked.push_back(part);
    bindings.outputs[1] = address_;
    return gives_;
  }
  std::vector<std::size_t> asked;

 private:
  CUdeviceptr address_;
  bool gives_;
};

// p is 12; behind the cut q is 3.
class CutProgramsTest : public simcuda_test::Driver {
 protected:
  void SetUp() override {
    Driver::SetUp();
    const auto p = builder_.add_output(8), q = builder_.add_output(8);
    const auto mix =
        builder_.add_function(reinterpret_cast<std::uint64_t>(function("_Z3mixPmmm")), "_Z3mixPmmm", {8, 8, 8});
    const auto ten = ProgramBuilder::plain(10);
    builder_.fill(p.at(0), 0, 1, 8);
    builder_.kernel(mix, {p.at(0), ten, ProgramBuilder::plain(1)});
    builder_.kernel(mix, {p.at(0), ten, ProgramBuilder::plain(2)});
    builder_.fill(q.at(0), 0, 1, 8);
    builder_.kernel(mix, {q.at(0), ten, ProgramBuilder::plain(3)});
    plan_ = builder_.plan();
    plan_.cuts = {3};
  }
  void TearDown() override {
    device::forget_own_kernels(context_);  // as the wrappers do it
    graphs::forget_upload_stream(context_);
    Driver::TearDown();
  }

  bool prepare(CUdeviceptr p, CUdeviceptr q) {
    Bindings bindings;
    bindings.outputs = {p, q};
    return steps_.prepare(pool_, builder_.kept(), plan_, bindings, error_);
  }

  ProgramBuilder builder_;
  program::ArenaPlan plan_;
  graphs::ExecPool pool_;
  ProgramRun steps_;
  refusal::Refusal error_;
};

TEST_F(CutProgramsTest, APartHasTheMemoryThatCameBeforeIt) {
  for (int i = 0; i < 2; ++i) {  // the second time with other memory
    const CUdeviceptr p = number(5), q = number(7);
    ASSERT_TRUE(prepare(p, 0)) << error_.text;
    OneOutput supply(q, true);
    EXPECT_EQ(steps_.run(nullptr, {}, nullptr, &supply), ProgramRun::Result::kDone);
    ASSERT_CU(cuCtxSynchronize());
    EXPECT_EQ(read<std::uint64_t>(p), 12u);
    EXPECT_EQ(read<std::uint64_t>(q), 3u);
    EXPECT_EQ(supply.asked, std::vector<std::size_t>{1});
  }
  EXPECT_EQ(pool_.built(), 2u);
  EXPECT_EQ(simcuda_calls("cuGraphLaunch"), 4u);
}

TEST_F(CutProgramsTest, WithoutASupplyAllMemoryIsThere) {
  const CUdeviceptr p = number(5), q = number(7);
  ASSERT_TRUE(prepare(p, q)) << error_.text;
  EXPECT_EQ(steps_.run(nullptr, {}), ProgramRun::Result::kDone);
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(read<std::uint64_t>(p), 12u);
  EXPECT_EQ(read<std::uint64_t>(q), 3u);
}

TEST_F(CutProgramsTest, WhereNoMemoryComesNothingMoreIsLaunched) {
  const CUdeviceptr p = number(5), q = number(7);
  ASSERT_TRUE(prepare(p, 0)) << error_.text;
  OneOutput supply(q, false);
  EXPECT_EQ(steps_.run(nullptr, {}, nullptr, &supply), ProgramRun::Result::kFailed);
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(read<std::uint64_t>(p), 12u);
  EXPECT_EQ(read<std::uint64_t>(q), 7u);
}

}  // namespace
}  // namespace grape::replay
