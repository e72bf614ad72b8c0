// Programs in parts on the simulated driver: graphs, reads by the host, and pauses while it waits.
#include "shim/replay/steps.h"

#include <gtest/gtest.h>

#include <string>

#include "shim/replay/own_kernels.h"
#include "tests/replay/program_builder.h"
#include "tests/simcuda/fixture.h"

namespace grape::replay {
namespace {

using program::Bindings;
using replay_test::ProgramBuilder;

// p is 12, then read by the host, then 123.
class StepsTest : public simcuda_test::Driver {
 protected:
  void TearDown() override {
    forget_own_kernels(context_);  // as the wrappers do it
    Driver::TearDown();
  }

  std::uint64_t handle(const char* name) { return reinterpret_cast<std::uint64_t>(function(name)); }

  ProgramBuilder stepped(std::uint64_t expected) {
    ProgramBuilder builder;
    const auto p = builder.add_output(8);
    const auto mix = builder.add_function(handle("_Z3mixPmmm"), "_Z3mixPmmm", {8, 8, 8});
    const auto ten = ProgramBuilder::plain(10);
    builder.fill(p.at(0), 0, 1, 8);
    builder.kernel(mix, {p.at(0), ten, ProgramBuilder::plain(1)});
    builder.kernel(mix, {p.at(0), ten, ProgramBuilder::plain(2)});
    builder.read(p.at(0), 8, {expected});
    builder.kernel(mix, {p.at(0), ten, ProgramBuilder::plain(3)});
    return builder;
  }
  Bindings output(CUdeviceptr p) {
    Bindings bindings;
    bindings.outputs = {p};
    return bindings;
  }
};

TEST_F(StepsTest, GoOnWhereTheHostReadsWhatItRead) {
  const ProgramBuilder builder = stepped(12);
  const program::ArenaPlan plan = builder.plan();
  ExecPool pool;
  Steps steps;
  std::string error;
  const CUstream s = stream();
  for (int i = 0; i < 2; ++i) {  // the second time with other memory
    const CUdeviceptr p = number(5);
    ASSERT_TRUE(steps.prepare(pool, builder.program(), plan, output(p), error)) << error;
    EXPECT_EQ(steps.run(s, {}), Steps::Ran::kDone);
    ASSERT_CU(cuStreamSynchronize(s));
    EXPECT_EQ(read<std::uint64_t>(p), 123u);
  }
  EXPECT_EQ(pool.built(), 2u);
  EXPECT_EQ(simcuda_calls("cuGraphLaunch"), 4u);
}

TEST_F(StepsTest, StopWhereTheHostWouldReadSomethingElse) {
  const ProgramBuilder builder = stepped(13);
  const program::ArenaPlan plan = builder.plan();
  ExecPool pool;
  Steps steps;
  std::string error;
  const CUdeviceptr p = number(5);
  ASSERT_TRUE(steps.prepare(pool, builder.program(), plan, output(p), error)) << error;
  EXPECT_EQ(steps.run(nullptr, {}), Steps::Ran::kOtherValue);
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(read<std::uint64_t>(p), 12u) << "what comes behind the read was not launched";
}

class RecordedPause final : public grape::replay::Pause {
 public:
  bool begin() override {
    ++begun;
    return possible;
  }
  void end() override { ++ended; }
  bool unchanged() override { return ended == 0 || same; }

  bool possible = true, same = true;
  int begun = 0, ended = 0;
};

TEST_F(StepsTest, PauseWhereTheDeviceTakesLong) {
  const ProgramBuilder builder = stepped(12);
  const program::ArenaPlan plan = builder.plan();
  ExecPool pool;
  std::string error;
  const CUstream s = stream();
  for (const bool possible : {true, false}) {
    Steps steps;
    RecordedPause pause;
    pause.possible = possible;
    const CUdeviceptr p = number(5);
    ASSERT_TRUE(steps.prepare(pool, builder.program(), plan, output(p), error)) << error;
    ASSERT_CU(launch("_Z5delayj", s, 100'000u));
    EXPECT_EQ(steps.run(s, {}, &pause), Steps::Ran::kDone);
    EXPECT_EQ(pause.begun, 1);
    EXPECT_EQ(pause.ended, possible ? 1 : 0);
    ASSERT_CU(cuStreamSynchronize(s));
    EXPECT_EQ(read<std::uint64_t>(p), 123u);
  }
}

TEST_F(StepsTest, StopWhereSomethingChangedInAPause) {
  const ProgramBuilder builder = stepped(12);
  const program::ArenaPlan plan = builder.plan();
  ExecPool pool;
  Steps steps;
  RecordedPause pause;
  pause.same = false;
  std::string error;
  const CUstream s = stream();
  const CUdeviceptr p = number(5);
  ASSERT_TRUE(steps.prepare(pool, builder.program(), plan, output(p), error)) << error;
  ASSERT_CU(launch("_Z5delayj", s, 100'000u));
  EXPECT_EQ(steps.run(s, {}, &pause), Steps::Ran::kChanged);
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(read<std::uint64_t>(p), 12u) << "what comes behind the read was not launched";
}

// The second graph is bound while the first is at work: what fails there is behind the read, and nothing of it ran.
TEST_F(StepsTest, APartThatCannotBeBoundIsAFailure) {
  const ProgramBuilder builder = stepped(12);
  const program::ArenaPlan plan = builder.plan();
  ExecPool pool;
  Steps steps;
  std::string error;
  const CUdeviceptr p = number(5);
  ASSERT_TRUE(steps.prepare(pool, builder.program(), plan, output(p), error)) << error;
  ASSERT_EQ(simcuda_set_fault("cuGraphInstantiateWithFlags", 1, CUDA_ERROR_OUT_OF_MEMORY), 0);
  EXPECT_EQ(steps.run(nullptr, {}), Steps::Ran::kFailed);
  EXPECT_EQ(read<std::uint64_t>(p), 12u) << "all that was launched is done";
  simcuda_reset();
  ASSERT_TRUE(steps.prepare(pool, builder.program(), plan, output(p), error)) << error;
  EXPECT_EQ(steps.run(nullptr, {}), Steps::Ran::kDone);
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(read<std::uint64_t>(p), 123u);
}

TEST_F(StepsTest, ADriverInTroubleIsAFailure) {
  const ProgramBuilder builder = stepped(12);
  const program::ArenaPlan plan = builder.plan();
  ExecPool pool;
  Steps steps;
  std::string error;
  for (const char* symbol : {"cuGraphLaunch", "cuMemcpyDtoHAsync_v2", "cuStreamSynchronize"}) {
    ASSERT_TRUE(steps.prepare(pool, builder.program(), plan, output(number(5)), error)) << error;
    ASSERT_EQ(simcuda_set_fault(symbol, 1, CUDA_ERROR_LAUNCH_FAILED), 0);
    EXPECT_EQ(steps.run(nullptr, {}), Steps::Ran::kFailed) << symbol;
    EXPECT_EQ(steps.launched(), std::string(symbol) != "cuGraphLaunch") << symbol;
    simcuda_reset();
  }
}

}  // namespace
}  // namespace grape::replay
