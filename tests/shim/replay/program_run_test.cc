// Programs in parts on the simulated driver: graphs, reads by the host, and pauses while it waits.
#include "shim/replay/program_run.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "shim/device/own_kernels.h"
#include "shim/graphs/host_buffer.h"
#include "shim/graphs/upload_ahead.h"
#include "shim/observation/region_record.h"
#include "tests/shim/graphs/program_builder.h"
#include "tests/simcuda/fixture.h"

namespace grape::replay {
namespace {

using program::Bindings;
using replay_test::ProgramBuilder;

// p is 12, then read by the host, then 123.
class ProgramRunTest : public simcuda_test::Driver {
 protected:
  void TearDown() override {
    device::forget_own_kernels(context_);  // as the wrappers do it
    graphs::forget_upload_stream(context_);
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
};

// A program, and what its runs need.
struct Prepared {
  explicit Prepared(ProgramBuilder what) : builder(std::move(what)) {}
  bool prepare(ProgramRun& steps, CUdeviceptr p) {
    Bindings bindings;
    bindings.outputs = {p};
    return steps.prepare(pool, builder.kept(), plan, bindings, error);
  }

  const ProgramBuilder builder;
  const program::ArenaPlan plan = builder.plan();
  graphs::ExecPool pool;
  refusal::Refusal error;
};

TEST_F(ProgramRunTest, GoOnWhereTheHostReadsWhatItRead) {
  Prepared one{stepped(12)};
  ProgramRun steps;
  const CUstream s = stream();
  for (int i = 0; i < 2; ++i) {  // the second time with other memory
    const CUdeviceptr p = number(5);
    ASSERT_TRUE(one.prepare(steps, p)) << one.error.text;
    EXPECT_EQ(steps.run(s, {}), ProgramRun::Result::kDone);
    ASSERT_CU(cuStreamSynchronize(s));
    EXPECT_EQ(read<std::uint64_t>(p), 123u);
  }
  EXPECT_EQ(one.pool.built(), 2u);
  EXPECT_EQ(simcuda_calls("cuGraphLaunch"), 4u);
  EXPECT_EQ(simcuda_calls("cuMemcpyDtoHAsync_v2"), 0u) << "the graph brings the value";
}

// Where the graph cannot bring the value, it is copied: the driver maps no memory of the host, or at another address,
// or refuses the node.
TEST_F(ProgramRunTest, AValueThatTheGraphCannotBringIsCopied) {
  const struct {
    const char* symbol;
    std::uint64_t nth;
  } faults[] = {{"cuMemHostRegister_v2", 1}, {"cuMemHostGetDevicePointer_v2", 1}, {"cuGraphAddKernelNode_v2", 4}};
  for (const auto& fault : faults) {
    graphs::note_context_gone();  // so that memory is mapped anew
    Prepared one{stepped(12)};
    ProgramRun steps;
    const CUdeviceptr p = number(5);
    ASSERT_EQ(simcuda_set_fault(fault.symbol, fault.nth, CUDA_ERROR_NOT_SUPPORTED), 0);
    ASSERT_TRUE(one.prepare(steps, p)) << one.error.text;
    EXPECT_EQ(steps.run(nullptr, {}), ProgramRun::Result::kDone) << fault.symbol;
    ASSERT_CU(cuCtxSynchronize());
    EXPECT_EQ(read<std::uint64_t>(p), 123u) << fault.symbol;
    EXPECT_EQ(simcuda_calls("cuMemcpyDtoHAsync_v2"), 1u) << fault.symbol;
    simcuda_reset();
  }
}

// Memory is not asked for again with each graph.
TEST_F(ProgramRunTest, WhatCannotBeMappedIsAskedForOnce) {
  graphs::note_context_gone();
  ASSERT_EQ(simcuda_set_fault("cuMemHostGetDevicePointer_v2", 1, CUDA_ERROR_NOT_SUPPORTED), 0);
  for (int i = 0; i < 3; ++i) {
    Prepared one{stepped(12)};
    ProgramRun steps;
    const CUdeviceptr p = number(5);
    ASSERT_TRUE(one.prepare(steps, p)) << one.error.text;
    EXPECT_EQ(steps.run(nullptr, {}), ProgramRun::Result::kDone);
  }
  EXPECT_EQ(simcuda_calls("cuMemHostRegister_v2"), 1u);
  EXPECT_EQ(simcuda_calls("cuMemcpyDtoHAsync_v2"), 3u);
  simcuda_reset();
  graphs::note_context_gone();
}

// More than there is room for would not be brought, and is not run.
TEST_F(ProgramRunTest, TheHostReadsNoMoreThanIsKept) {
  ProgramBuilder builder;
  const auto p = builder.add_output(2 * observation::kMostValueBytes);
  builder.fill(p.at(0), 0, 1, 2 * observation::kMostValueBytes);
  builder.read(p.at(0), observation::kMostValueBytes + 8,
               std::vector<std::uint64_t>(observation::kMostValueBytes / 8 + 1));
  Prepared one{std::move(builder)};
  ProgramRun steps;
  EXPECT_FALSE(one.prepare(steps, floats(observation::kMostValueBytes / 2)));
  EXPECT_EQ(one.error.text, "the host reads more than is kept");
}

TEST_F(ProgramRunTest, NodesFollowThoseBeforeThem) {
  ProgramBuilder builder;
  const auto p = builder.add_output(8);
  const auto mix = builder.add_function(handle("_Z3mixPmmm"), "_Z3mixPmmm", {8, 8, 8});
  builder.kernel(mix, {p.at(0), ProgramBuilder::plain(10), ProgramBuilder::plain(1)}, {0});  // itself
  Prepared one{std::move(builder)};
  ProgramRun steps;
  EXPECT_FALSE(one.prepare(steps, number(5)));
  EXPECT_EQ(one.error.text.rfind("a node comes before one that it follows", 0), 0u) << one.error.text;
}

// What a context had mapped may have gone with it, and another one may have its handle.
TEST_F(ProgramRunTest, MemoryThatAContextMappedIsNotUsedOnceOneIsGone) {
  const auto registrations = [&] {
    simcuda_reset();
    Prepared one{stepped(12)};
    ProgramRun steps;
    const CUdeviceptr p = number(5);
    EXPECT_TRUE(one.prepare(steps, p)) << one.error.text;
    EXPECT_EQ(steps.run(nullptr, {}), ProgramRun::Result::kDone);
    EXPECT_CU(cuCtxSynchronize());
    return simcuda_calls("cuMemHostRegister_v2");
  };
  graphs::note_context_gone();
  EXPECT_EQ(registrations(), 1u);
  EXPECT_EQ(registrations(), 0u);
  graphs::note_context_gone();
  EXPECT_EQ(registrations(), 1u);
}

// An argument's memory may be anywhere: the driver knows.
TEST_F(ProgramRunTest, AValueThatTheProgramDidNotMakeIsCopied) {
  ProgramBuilder builder;
  const auto p = builder.add_output(8);
  const auto argument = builder.add_input(8);
  const auto mix = builder.add_function(handle("_Z3mixPmmm"), "_Z3mixPmmm", {8, 8, 8});
  builder.kernel(mix, {p.at(0), ProgramBuilder::plain(0), ProgramBuilder::plain(1)});
  builder.read(argument.at(0), 8, {7});
  builder.kernel(mix, {p.at(0), ProgramBuilder::plain(10), ProgramBuilder::plain(9)});
  Prepared one{builder};
  ProgramRun steps;
  Bindings bindings;
  bindings.outputs = {number(5)};
  bindings.inputs = {number(7)};
  ASSERT_TRUE(steps.prepare(one.pool, one.builder.kept(), one.plan, bindings, one.error)) << one.error.text;
  EXPECT_EQ(steps.run(nullptr, {}), ProgramRun::Result::kDone);
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(read<std::uint64_t>(bindings.outputs[0]), 19u);
  EXPECT_EQ(simcuda_calls("cuMemcpyDtoHAsync_v2"), 1u);
  ASSERT_TRUE(steps.prepare(one.pool, one.builder.kept(), one.plan, bindings, one.error)) << one.error.text;
  ASSERT_EQ(simcuda_set_fault("cuMemcpyDtoHAsync_v2", 1, CUDA_ERROR_LAUNCH_FAILED), 0);
  EXPECT_EQ(steps.run(nullptr, {}), ProgramRun::Result::kFailed);
  EXPECT_TRUE(steps.launched());
}

// The value comes behind all branches of a part, and what another branch does to it counts.
TEST_F(ProgramRunTest, AValueIsReadBehindAllBranches) {
  ProgramBuilder builder;
  const auto p = builder.add_output(16);
  const auto mix = builder.add_function(handle("_Z3mixPmmm"), "_Z3mixPmmm", {8, 8, 8});
  const auto delay = builder.add_function(handle("_Z5delayj"), "_Z5delayj", {4});
  builder.kernel(delay, {ProgramBuilder::plain(50'000)}, {});
  builder.kernel(mix, {p.at(8), ProgramBuilder::plain(0), ProgramBuilder::plain(6)}, {0});
  builder.kernel(mix, {p.at(0), ProgramBuilder::plain(0), ProgramBuilder::plain(4)}, {});
  builder.read(p.at(0), 16, {4, 6});
  builder.kernel(mix, {p.at(0), ProgramBuilder::plain(10), ProgramBuilder::plain(2)});
  Prepared one{builder};
  ProgramRun steps;
  const CUdeviceptr memory = floats(4);
  ASSERT_TRUE(one.prepare(steps, memory)) << one.error.text;
  EXPECT_EQ(steps.run(nullptr, {}), ProgramRun::Result::kDone);
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(read<std::uint64_t>(memory), 42u);
}

// Nor behind the read, while the device works.
TEST_F(ProgramRunTest, WhatWasSetAheadIsNotSetAgain) {
  Prepared one{stepped(12)};
  ProgramRun steps;
  const auto nodes_set = [] { return simcuda_calls("cuGraphExecKernelNodeSetParams_v2"); };
  for (const CUdeviceptr p : {number(5), number(5), number(5)}) {
    Bindings bindings;
    bindings.outputs = {p};
    steps.prepare_all(one.pool, one.builder.kept(), one.plan, bindings);
    const std::uint64_t before = nodes_set();
    ASSERT_TRUE(one.prepare(steps, p)) << one.error.text;
    EXPECT_EQ(steps.run(nullptr, {}), ProgramRun::Result::kDone);
    EXPECT_EQ(nodes_set(), before);
    ASSERT_CU(cuCtxSynchronize());
    EXPECT_EQ(read<std::uint64_t>(p), 123u);
  }
  EXPECT_EQ(nodes_set(), 10u) << "four nodes and what brings the value, for each of two other places";
}

// What was set ahead is sent to the device ahead, and nothing is sent that is there already.
TEST_F(ProgramRunTest, WhatIsPreparedAheadIsUploadedAhead) {
  Prepared one{stepped(12)};
  ProgramRun steps;
  const CUstream s = stream();
  const CUdeviceptr p[] = {number(5), number(5)};
  const auto ahead = [&](CUdeviceptr at) {
    Bindings bindings;
    bindings.outputs = {at};
    const std::uint64_t before = simcuda_calls("cuGraphUpload");
    steps.prepare_all(one.pool, one.builder.kept(), one.plan, bindings);
    return simcuda_calls("cuGraphUpload") - before;
  };
  const auto run = [&](CUdeviceptr at) {
    ASSERT_CU(cuMemsetD8(at, 0, 8));
    ASSERT_TRUE(one.prepare(steps, at)) << one.error.text;
    EXPECT_EQ(steps.run(s, {}), ProgramRun::Result::kDone);
    ASSERT_CU(cuStreamSynchronize(s));
    EXPECT_EQ(read<std::uint64_t>(at), 123u);
  };
  EXPECT_EQ(ahead(p[0]), 2u);  // both parts
  run(p[0]);
  EXPECT_EQ(ahead(p[0]), 0u);
  run(p[0]);
  EXPECT_EQ(ahead(p[1]), 2u);
  EXPECT_EQ(ahead(p[1]), 0u);
  run(p[1]);
  for (const char* call : {"cuGraphUpload", "cuEventRecord", "cuEventQuery", "cuStreamWaitEvent"}) {
    simcuda_reset();
    simcuda_set_fault(call, 1, CUDA_ERROR_OUT_OF_MEMORY);
    ahead(p[0]);
    run(p[0]);
    ahead(p[1]);
    run(p[1]);
  }
  simcuda_reset();
}

TEST_F(ProgramRunTest, StopWhereTheHostWouldReadSomethingElse) {
  Prepared one{stepped(13)};
  ProgramRun steps;
  const CUdeviceptr p = number(5);
  ASSERT_TRUE(one.prepare(steps, p)) << one.error.text;
  EXPECT_EQ(steps.run(nullptr, {}), ProgramRun::Result::kOtherValue);
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

TEST_F(ProgramRunTest, PauseWhereTheDeviceTakesLong) {
  Prepared one{stepped(12)};
  const CUstream s = stream();
  for (const bool possible : {true, false}) {
    ProgramRun steps;
    RecordedPause pause;
    pause.possible = possible;
    const CUdeviceptr p = number(5);
    ASSERT_TRUE(one.prepare(steps, p)) << one.error.text;
    ASSERT_CU(launch("_Z5delayj", s, 100'000u));
    EXPECT_EQ(steps.run(s, {}, &pause), ProgramRun::Result::kDone);
    EXPECT_EQ(pause.begun, 1);
    EXPECT_EQ(pause.ended, possible ? 1 : 0);
    ASSERT_CU(cuStreamSynchronize(s));
    EXPECT_EQ(read<std::uint64_t>(p), 123u);
  }
}

TEST_F(ProgramRunTest, StopWhereSomethingChangedInAPause) {
  Prepared one{stepped(12)};
  ProgramRun steps;
  RecordedPause pause;
  pause.same = false;
  const CUstream s = stream();
  const CUdeviceptr p = number(5);
  ASSERT_TRUE(one.prepare(steps, p)) << one.error.text;
  ASSERT_CU(launch("_Z5delayj", s, 100'000u));
  EXPECT_EQ(steps.run(s, {}, &pause), ProgramRun::Result::kChanged);
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(read<std::uint64_t>(p), 12u) << "what comes behind the read was not launched";
}

// The second graph is bound while the first is at work: what fails there is behind the read, and nothing of it ran.
TEST_F(ProgramRunTest, APartThatCannotBeBoundIsAFailure) {
  Prepared one{stepped(12)};
  ProgramRun steps;
  const CUdeviceptr p = number(5);
  ASSERT_TRUE(one.prepare(steps, p)) << one.error.text;
  ASSERT_EQ(simcuda_set_fault("cuGraphInstantiateWithFlags", 1, CUDA_ERROR_OUT_OF_MEMORY), 0);
  EXPECT_EQ(steps.run(nullptr, {}), ProgramRun::Result::kFailed);
  EXPECT_EQ(read<std::uint64_t>(p), 12u) << "all that was launched is done";
  simcuda_reset();
  ASSERT_TRUE(one.prepare(steps, p)) << one.error.text;
  EXPECT_EQ(steps.run(nullptr, {}), ProgramRun::Result::kDone);
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(read<std::uint64_t>(p), 123u);
}

TEST_F(ProgramRunTest, ADriverInTroubleIsAFailure) {
  Prepared one{stepped(12)};
  ProgramRun steps;
  for (const char* symbol : {"cuGraphLaunch", "cuStreamSynchronize"}) {
    ASSERT_TRUE(one.prepare(steps, number(5))) << one.error.text;
    ASSERT_EQ(simcuda_set_fault(symbol, 1, CUDA_ERROR_LAUNCH_FAILED), 0);
    EXPECT_EQ(steps.run(nullptr, {}), ProgramRun::Result::kFailed) << symbol;
    EXPECT_EQ(steps.launched(), std::string(symbol) != "cuGraphLaunch") << symbol;
    simcuda_reset();
  }
  // A value that nobody waited for may still come: its place is not looked at again.
  ASSERT_TRUE(one.prepare(steps, number(5))) << one.error.text;
  EXPECT_EQ(steps.run(nullptr, {}), ProgramRun::Result::kDone);
  EXPECT_EQ(simcuda_calls("cuMemcpyDtoHAsync_v2"), 1u);
}

}  // namespace
}  // namespace grape::replay
