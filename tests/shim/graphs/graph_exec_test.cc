// Programs on the simulated driver: what a graph computes with all memory moved, what is patched, and that a refusal
// of the driver's leaves nothing behind.
#include "shim/graphs/graph_exec.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "shim/device/own_kernels.h"
#include "shim/graphs/upload_ahead.h"
#include "tests/shim/graphs/program_builder.h"
#include "tests/simcuda/fixture.h"

namespace grape::graphs {
namespace {

using program::Bindings;
using program::Role;
using replay_test::ProgramBuilder;

// A program without reads by the host is one segment.
// The program is the caller's, who keeps it.
std::shared_ptr<const program::Program> share(const program::Program& program) {
  return {std::shared_ptr<void>(), &program};
}

program::Segment whole(const program::Program& program) { return program::segments(program).front(); }

constexpr std::size_t kCount = 64;
constexpr std::uint64_t kBytes = kCount * sizeof(float);

class GraphExecTest : public simcuda_test::Driver {
 protected:
  void TearDown() override {
    device::forget_own_kernels(context_);  // as the wrappers do it
    forget_upload_stream(context_);
    Driver::TearDown();
  }

  std::uint64_t handle(const char* name) { return reinterpret_cast<std::uint64_t>(function(name)); }

  // output = (input copied to a temp, its last quarter filled with 3) + 2 * weight. Nodes: a copy, a memset, two
  // kernels.
  ProgramBuilder sample() {
    ProgramBuilder builder;
    weight_ = floats(kCount, 5);
    const auto weight = builder.add_static(weight_, kBytes);
    const auto input = builder.add_input(kBytes);
    const auto temp = builder.add_temp(kBytes);
    const auto output = builder.add_output(kBytes);
    const auto copy = builder.add_function(handle("_Z4copyPfPKfi"), "_Z4copyPfPKfi", {8, 8, 4});
    const auto axpy = builder.add_function(handle("_Z4axpyPfPKffi"), "_Z4axpyPfPKffi", {8, 8, 4, 4});
    builder.copy(temp.at(0), input.at(0), kBytes);
    builder.fill(temp.at(kBytes / 4 * 3), 0x40400000, 4, kCount / 4);
    builder.kernel(copy, {output.at(0), temp.at(0), ProgramBuilder::plain(kCount)});
    builder.kernel(axpy,
                   {output.at(0), weight.at(0), ProgramBuilder::plain(0x40000000), ProgramBuilder::plain(kCount)});
    return builder;
  }

  Bindings memory(const program::ArenaPlan& plan, CUdeviceptr input, CUdeviceptr output) {
    Bindings bindings;
    CUdeviceptr arena = 0;
    EXPECT_CU(cuMemAlloc(&arena, plan.bytes == 0 ? 1 : plan.bytes));
    bindings.arena = arena;
    bindings.inputs = {input};
    bindings.outputs = {output};
    return bindings;
  }

  void expect_sample(CUdeviceptr output, float input) {
    EXPECT_CU(cuCtxSynchronize());
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(read(output, i), (i < kCount / 4 * 3 ? input : 3.0f) + 10.0f) << i;
    }
  }

  CUdeviceptr weight_ = 0;
};

TEST_F(GraphExecTest, ComputesTheSameWithAllMemoryMoved) {
  const ProgramBuilder builder = sample();
  const program::ArenaPlan plan = builder.plan();
  const CUdeviceptr first = floats(kCount);
  refusal::Refusal error;
  auto exec = GraphExec::build(share(builder.program()), whole(builder.program()), plan,
                               memory(plan, floats(kCount, 7), first), error);
  ASSERT_NE(exec, nullptr) << error.text;
  ASSERT_CU(exec->launch(nullptr));
  expect_sample(first, 7);
  EXPECT_EQ(exec->device_bytes(), (64u << 10) + 4 * 3584u);

  const CUdeviceptr second = floats(kCount);
  ASSERT_CU(exec->bind(memory(plan, floats(kCount, 9), second)));
  EXPECT_EQ(exec->patched(), 4u);
  ASSERT_CU(exec->launch(nullptr));
  expect_sample(second, 9);
  expect_sample(first, 7);  // untouched since
}

TEST_F(GraphExecTest, PatchesOnlyNodesWhoseWordsMoved) {
  const ProgramBuilder builder = sample();
  const program::ArenaPlan plan = builder.plan();
  Bindings bindings = memory(plan, floats(kCount, 7), floats(kCount));
  refusal::Refusal error;
  auto exec = GraphExec::build(share(builder.program()), whole(builder.program()), plan, bindings, error);
  ASSERT_NE(exec, nullptr) << error.text;
  ASSERT_CU(exec->bind(bindings));
  EXPECT_EQ(exec->patched(), 0u);
  bindings.outputs[0] = floats(kCount);
  ASSERT_CU(exec->bind(bindings));
  EXPECT_EQ(exec->patched(), 2u);
  bindings.inputs[0] = floats(kCount, 8);
  ASSERT_CU(exec->bind(bindings));
  EXPECT_EQ(exec->patched(), 1u);
  EXPECT_EQ(simcuda_calls("cuGraphExecKernelNodeSetParams_v2"), 3u);
  ASSERT_CU(exec->launch(nullptr));
  expect_sample(bindings.outputs[0], 8);
}

TEST_F(GraphExecTest, ALaunchUnderWayKeepsItsMemory) {
  const ProgramBuilder builder = sample();
  const program::ArenaPlan plan = builder.plan();
  const CUdeviceptr first = floats(kCount), second = floats(kCount);
  refusal::Refusal error;
  auto exec = GraphExec::build(share(builder.program()), whole(builder.program()), plan,
                               memory(plan, floats(kCount, 1), first), error);
  ASSERT_NE(exec, nullptr) << error.text;
  const CUstream slow = stream();
  ASSERT_CU(launch("_Z5delayj", slow, 30000u));
  ASSERT_CU(exec->launch(slow));
  ASSERT_CU(exec->bind(memory(plan, floats(kCount, 2), second)));
  ASSERT_CU(exec->launch(slow));
  ASSERT_CU(cuStreamSynchronize(slow));
  expect_sample(first, 1);
  expect_sample(second, 2);
}

// Another kernel, another grid, another copy; the same edges.
TEST_F(GraphExecTest, TakesAnotherProgramOfItsShape) {
  const ProgramBuilder first = sample();
  const program::ArenaPlan first_plan = first.plan();
  const Bindings bindings = memory(first_plan, floats(kCount, 7), floats(kCount));
  refusal::Refusal error;
  auto exec = GraphExec::build(share(first.program()), whole(first.program()), first_plan, bindings, error);
  ASSERT_NE(exec, nullptr) << error.text;
  ASSERT_CU(exec->launch(nullptr));

  ProgramBuilder second;
  const CUdeviceptr weight = floats(kCount, 2);
  const auto output = second.add_output(kBytes);
  const auto temp = second.add_temp(kBytes);
  const auto axpy = second.add_function(handle("_Z4axpyPfPKffi"), "_Z4axpyPfPKffi", {8, 8, 4, 4});
  const auto relu = second.add_function(handle("_Z9bias_reluPfPKfii"), "_Z9bias_reluPfPKfii", {8, 8, 4, 4});
  const auto one = ProgramBuilder::plain(0x3f800000), count = ProgramBuilder::plain(kCount);
  second.fill(output.at(0), 0xc0800000, 4, kCount);  // -4
  second.copy(temp.at(0), second.add_static(weight, kBytes).at(0), kBytes);
  second.kernel(axpy, {output.at(0), temp.at(0), one, count}).grid = {2, 1, 1};                          // -2
  second.kernel(relu, {output.at(0), temp.at(0), ProgramBuilder::plain(1), ProgramBuilder::plain(32)});  // 0
  const program::ArenaPlan second_plan = second.plan();
  const Bindings others = memory(second_plan, 0, floats(kCount, 9));
  ASSERT_TRUE(exec->adopt(share(second.program()), whole(second.program()), second_plan, others));
  EXPECT_EQ(exec->holds(), &second.program());
  EXPECT_EQ(exec->patched(), 4u);
  ASSERT_CU(exec->launch(nullptr));
  EXPECT_EQ(read(others.outputs[0], 31), 0.0f);
  EXPECT_EQ(read(others.outputs[0], 32), -2.0f);
  expect_sample(bindings.outputs[0], 7);

  ASSERT_TRUE(exec->adopt(share(second.program()), whole(second.program()), second_plan, others));
  EXPECT_EQ(exec->patched(), 0u) << "all is as the driver has it";
  ASSERT_TRUE(exec->adopt(share(first.program()), whole(first.program()), first_plan, bindings));
  ASSERT_CU(cuMemsetD8(bindings.outputs[0], 0, kBytes));
  ASSERT_CU(exec->launch(nullptr));
  expect_sample(bindings.outputs[0], 7);
}

TEST_F(GraphExecTest, AProgramOfAnotherShapeIsNotTaken) {
  const ProgramBuilder first = sample();
  const program::ArenaPlan plan = first.plan();
  const Bindings bindings = memory(plan, floats(kCount, 7), floats(kCount));
  refusal::Refusal error;
  auto exec = GraphExec::build(share(first.program()), whole(first.program()), plan, bindings, error);
  ASSERT_NE(exec, nullptr) << error.text;
  ProgramBuilder longer = sample();
  longer.fill(ProgramBuilder::plain(bindings.outputs[0]), 0, 1, 1);
  EXPECT_FALSE(exec->adopt(share(longer.program()), whole(longer.program()), plan, bindings));
  program::Program branched = first.program();
  branched.after[branched.nodes[3].after_at] = 1;
  EXPECT_FALSE(exec->adopt(share(branched), whole(branched), plan, bindings));
  program::Program cooperative = first.program();
  cooperative.nodes[2].cooperative = true;
  EXPECT_FALSE(exec->adopt(share(cooperative), whole(cooperative), plan, bindings));
  ASSERT_TRUE(exec->usable());
  ASSERT_CU(exec->launch(nullptr));
  expect_sample(bindings.outputs[0], 7);

  ASSERT_EQ(simcuda_set_fault("cuGraphExecKernelNodeSetParams_v2", 2, CUDA_ERROR_INVALID_VALUE), 0);
  EXPECT_FALSE(exec->adopt(share(first.program()), whole(first.program()), plan,
                           memory(plan, floats(kCount, 7), floats(kCount))));
  EXPECT_FALSE(exec->usable()) << "half of one, half of the other";
  EXPECT_NE(exec->launch(nullptr), CUDA_SUCCESS);
}

TEST_F(GraphExecTest, RandomWordsFollowTheGenerator) {
  ProgramBuilder builder;
  const auto p = builder.add_output(8);
  const auto mix = builder.add_function(handle("_Z3mixPmmm"), "_Z3mixPmmm", {8, 8, 8});
  builder.fill(p.at(0), 0, 1, 8);
  builder.kernel(mix, {p.at(0), ProgramBuilder::random_seed(), ProgramBuilder::random_offset(4)});
  builder.kernel(mix, {p.at(0), ProgramBuilder::random_seed(), ProgramBuilder::random_offset(8)});
  const program::ArenaPlan plan = builder.plan();
  Bindings bindings = memory(plan, 0, number(1));
  bindings.inputs.clear();
  bindings.seed = 100;
  bindings.offset = 1;
  refusal::Refusal error;
  auto exec = GraphExec::build(share(builder.program()), whole(builder.program()), plan, bindings, error);
  ASSERT_NE(exec, nullptr) << error.text;
  ASSERT_CU(exec->launch(nullptr));
  EXPECT_EQ(read<std::uint64_t>(bindings.outputs[0]), 509u);
  bindings.offset = 2;
  ASSERT_CU(exec->bind(bindings));
  EXPECT_EQ(exec->patched(), 2u);
  ASSERT_CU(exec->launch(nullptr));
  EXPECT_EQ(read<std::uint64_t>(bindings.outputs[0]), 610u);
}

TEST_F(GraphExecTest, TakesKernelsOfLibrariesPackedParametersAndAttributes) {
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  ASSERT_CU(cuLibraryLoadData(&library, "SIMCUDA MODULE 1\n_Z3mixPmmm\n", nullptr, nullptr, 0, nullptr, nullptr, 0));
  ASSERT_CU(cuLibraryGetKernel(&kernel, library, "_Z3mixPmmm"));
  ProgramBuilder builder;
  const auto p = builder.add_output(8);
  const auto of_library = builder.add_function(reinterpret_cast<std::uint64_t>(kernel), "_Z3mixPmmm", {8, 8, 8});
  const auto of_module = builder.add_function(handle("_Z3mixPmmm"), "_Z3mixPmmm", {8, 8, 8});
  const auto ten = ProgramBuilder::plain(10);
  builder.kernel(of_library, {p.at(0), ten, ProgramBuilder::plain(1)});
  builder.kernel(of_module, {p.at(0), ten, ProgramBuilder::plain(2)}).packed = true;
  program::RecordedNode& third = builder.kernel(of_library, {p.at(0), ten, ProgramBuilder::plain(3)});
  third.cooperative = true;
  CUlaunchAttribute cluster{}, early{};
  cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  cluster.value.clusterDim = {1, 1, 1};
  early.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  early.value.programmaticStreamSerializationAllowed = 1;
  builder.add_attribute(third, &cluster);
  builder.add_attribute(third, &early);
  const program::ArenaPlan plan = builder.plan();
  Bindings bindings = memory(plan, 0, number(0));
  refusal::Refusal error;
  auto exec = GraphExec::build(share(builder.program()), whole(builder.program()), plan, bindings, error);
  ASSERT_NE(exec, nullptr) << error.text;
  EXPECT_EQ(simcuda_calls("cuGraphKernelNodeSetAttribute"), 2u) << "the cluster and the cooperation";
  ASSERT_CU(exec->launch(nullptr));
  EXPECT_EQ(read<std::uint64_t>(bindings.outputs[0]), 123u);
  bindings.outputs[0] = number(4);
  ASSERT_CU(exec->bind(bindings));
  ASSERT_CU(exec->launch(nullptr));
  EXPECT_EQ(read<std::uint64_t>(bindings.outputs[0]), 4123u);
}

TEST_F(GraphExecTest, FillsRowsWithAPitch) {
  ProgramBuilder builder;
  const auto out = builder.add_output(64);
  builder.fill(out.at(0), 0, 1, 64);
  builder.fill(out.at(4), 0xABCD, 2, 3, 4, 16);
  const program::ArenaPlan plan = builder.plan();
  Bindings bindings = memory(plan, 0, floats(16, 1));
  refusal::Refusal error;
  auto exec = GraphExec::build(share(builder.program()), whole(builder.program()), plan, bindings, error);
  ASSERT_NE(exec, nullptr) << error.text;
  ASSERT_CU(exec->launch(nullptr));
  for (std::size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(read<std::uint16_t>(bindings.outputs[0], i), i % 8 >= 2 && i % 8 < 5 ? 0xABCD : 0) << i;
  }
}

TEST_F(GraphExecTest, BranchesFollowTheirEdges) {
  ProgramBuilder builder;
  const auto p = builder.add_output(8);
  const auto mix = builder.add_function(handle("_Z3mixPmmm"), "_Z3mixPmmm", {8, 8, 8});
  const auto exclusive = builder.add_function(handle("_Z9exclusivePij"), "_Z9exclusivePij", {8, 4});
  const auto flag = builder.add_static(number(0), 8);
  const auto ten = ProgramBuilder::plain(10);
  builder.kernel(mix, {p.at(0), ten, ProgramBuilder::plain(1)});
  builder.kernel(exclusive, {flag.at(0), ProgramBuilder::plain(1000)}, {0});
  builder.kernel(mix, {p.at(0), ten, ProgramBuilder::plain(2)}, {0});
  builder.kernel(mix, {p.at(0), ten, ProgramBuilder::plain(3)}, {1, 2});
  const program::ArenaPlan plan = builder.plan();
  Bindings bindings = memory(plan, 0, number(0));
  refusal::Refusal error;
  auto exec = GraphExec::build(share(builder.program()), whole(builder.program()), plan, bindings, error);
  ASSERT_NE(exec, nullptr) << error.text;
  ASSERT_CU(exec->launch(nullptr));
  EXPECT_EQ(read<std::uint64_t>(bindings.outputs[0]), 123u);
}

TEST_F(GraphExecTest, OtherStreamsAreOrderedOnBothSides) {
  ProgramBuilder builder;
  const auto p = builder.add_output(8);
  const auto mix = builder.add_function(handle("_Z3mixPmmm"), "_Z3mixPmmm", {8, 8, 8});
  const auto delay = builder.add_function(handle("_Z5delayj"), "_Z5delayj", {4});
  builder.kernel(delay, {ProgramBuilder::plain(20000)});
  builder.kernel(mix, {p.at(0), ProgramBuilder::plain(10), ProgramBuilder::plain(2)});
  const program::ArenaPlan plan = builder.plan();
  const CUdeviceptr number_p = number(0);
  refusal::Refusal error;
  auto exec =
      GraphExec::build(share(builder.program()), whole(builder.program()), plan, memory(plan, 0, number_p), error);
  ASSERT_NE(exec, nullptr) << error.text;
  const CUstream main = stream(), other = stream();
  const std::uint64_t ten = 10, one = 1, three = 3;
  for (int i = 0; i < 2; ++i) {
    ASSERT_CU(cuMemsetD8(number_p, 0, 8));
    ASSERT_CU(launch("_Z5delayj", other, 20000u));
    ASSERT_CU(launch("_Z3mixPmmm", other, number_p, ten, one));
    ASSERT_CU(exec->launch(main, {other}));
    ASSERT_CU(launch("_Z3mixPmmm", other, number_p, ten, three));
    ASSERT_CU(cuCtxSynchronize());
    EXPECT_EQ(read<std::uint64_t>(number_p), 123u);
  }
  exec.reset();
  EXPECT_EQ(simcuda_calls("cuEventDestroy_v2"), simcuda_calls("cuEventCreate"));
}

TEST_F(GraphExecTest, WhatTheDriverRefusesIsSaidAndLeavesNothing) {
  const ProgramBuilder builder = sample();
  const program::ArenaPlan plan = builder.plan();
  const Bindings bindings = memory(plan, floats(kCount, 7), floats(kCount));
  const struct {
    const char* symbol;
    int nth;
    const char* said;
    const char* id = "driver_error";
  } kFaults[] = {
      {"cuGraphCreate", 1, "cuGraphCreate: CUDA_ERROR_OUT_OF_MEMORY"},
      {"cuModuleLoadData", 1, "cuModuleLoadData: CUDA_ERROR_OUT_OF_MEMORY"},
      {"cuModuleGetFunction", 3, "cuModuleGetFunction: CUDA_ERROR_OUT_OF_MEMORY"},
      {"cuMemAlloc_v2", 1, "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY"},
      {"cuGraphAddKernelNode_v2", 2, "cuGraphAddKernelNode: CUDA_ERROR_OUT_OF_MEMORY at node 1 (a memset)"},
      {"cuGraphAddKernelNode_v2", 4, "cuGraphAddKernelNode: CUDA_ERROR_OUT_OF_MEMORY at node 3 (_Z4axpyPfPKffi)"},
      {"cuGraphInstantiateWithFlags", 1, "cuGraphInstantiate: CUDA_ERROR_OUT_OF_MEMORY"},
      {"cuCtxGetCurrent", 1, "no context is current", "no_current_context"},
  };
  std::size_t free_before = 0, total = 0;
  for (const auto& fault : kFaults) {
    simcuda_reset();
    ASSERT_CU(cuMemGetInfo(&free_before, &total));
    ASSERT_EQ(simcuda_set_fault(fault.symbol, fault.nth, CUDA_ERROR_OUT_OF_MEMORY), 0) << fault.symbol;
    refusal::Refusal error;
    EXPECT_EQ(GraphExec::build(share(builder.program()), whole(builder.program()), plan, bindings, error), nullptr)
        << fault.symbol;
    EXPECT_EQ(error.text.substr(0, std::string(fault.said).size()), fault.said);
    EXPECT_EQ(error.text.find('\n'), std::string::npos);
    EXPECT_STREQ(refusal::name_of(error.id), fault.id) << fault.symbol;
    const std::uint64_t failed_creations = std::string(fault.symbol) == "cuGraphCreate" ? 1 : 0;
    EXPECT_EQ(simcuda_calls("cuGraphDestroy"), simcuda_calls("cuGraphCreate") - failed_creations) << fault.symbol;
    EXPECT_EQ(simcuda_calls("cuGraphExecDestroy"), 0u) << fault.symbol;
    if (simcuda_calls("cuModuleUnload") != 0) {  // the kernels of our own were not all loaded
      std::size_t free_after = 0;
      ASSERT_CU(cuMemGetInfo(&free_after, &total));
      EXPECT_EQ(free_after, free_before) << fault.symbol;
    }
  }
  simcuda_reset();
  refusal::Refusal error;
  auto exec = GraphExec::build(share(builder.program()), whole(builder.program()), plan, bindings, error);
  ASSERT_NE(exec, nullptr) << error.text;
  ASSERT_EQ(simcuda_set_fault("cuGraphExecKernelNodeSetParams_v2", 2, CUDA_ERROR_INVALID_VALUE), 0);
  EXPECT_RESULT(exec->bind(memory(plan, floats(kCount, 7), floats(kCount))), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(simcuda_set_fault("cuGraphLaunch", 1, CUDA_ERROR_LAUNCH_FAILED), 0);
  EXPECT_RESULT(exec->launch(nullptr), CUDA_ERROR_LAUNCH_FAILED);
  exec.reset();
  EXPECT_EQ(simcuda_calls("cuGraphDestroy"), simcuda_calls("cuGraphCreate"));
  EXPECT_EQ(simcuda_calls("cuGraphExecDestroy"), 1u);
}

TEST_F(GraphExecTest, AnAttributeThatTheDriverRefusesIsSaid) {
  ProgramBuilder builder;
  const auto output = builder.add_output(8);
  const auto mix = builder.add_function(handle("_Z3mixPmmm"), "_Z3mixPmmm", {8, 8, 8});
  builder.kernel(mix, {output.at(0), ProgramBuilder::plain(10), ProgramBuilder::plain(1)}).cooperative = true;
  const program::ArenaPlan plan = builder.plan();
  Bindings bindings = memory(plan, 0, number(0));
  ASSERT_EQ(simcuda_set_fault("cuGraphKernelNodeSetAttribute", 1, CUDA_ERROR_INVALID_VALUE), 0);
  refusal::Refusal error;
  EXPECT_EQ(GraphExec::build(share(builder.program()), whole(builder.program()), plan, bindings, error), nullptr);
  EXPECT_STREQ(refusal::name_of(error.id), "driver_error_of_attribute") << error.text;
}

// The nodes of an exec belong to one context: a program's work in another one needs an exec of its own.
TEST_F(GraphExecTest, InAnotherContextAProgramIsNotTaken) {
  const ProgramBuilder builder = sample();
  const program::ArenaPlan plan = builder.plan();
  const Bindings bindings = memory(plan, floats(kCount, 7), floats(kCount));
  refusal::Refusal error;
  auto exec = GraphExec::build(share(builder.program()), whole(builder.program()), plan, bindings, error);
  ASSERT_NE(exec, nullptr) << error.text;
  EXPECT_TRUE(exec->fits(builder.program(), whole(builder.program())));
  CUcontext other = nullptr;
  ASSERT_CU(cuCtxCreate(&other, nullptr, 0, 0));
  EXPECT_FALSE(exec->fits(builder.program(), whole(builder.program())));
  EXPECT_FALSE(exec->adopt(share(builder.program()), whole(builder.program()), plan, bindings));
  EXPECT_TRUE(exec->usable()) << "it is as it was";
  exec.reset();  // in its own context, and back again
  EXPECT_EQ(simcuda_calls("cuGraphDestroy"), simcuda_calls("cuGraphCreate"));
  CUcontext current = nullptr;
  ASSERT_CU(cuCtxGetCurrent(&current));
  EXPECT_EQ(current, other);
  ASSERT_CU(cuCtxDestroy(other));
  ASSERT_CU(cuCtxSetCurrent(context_));
}

TEST_F(GraphExecTest, AfterItsContextNothingIsCalled) {
  const ProgramBuilder builder = sample();
  const program::ArenaPlan plan = builder.plan();
  Bindings bindings = memory(plan, floats(kCount, 7), floats(kCount));
  refusal::Refusal error;
  auto exec = GraphExec::build(share(builder.program()), whole(builder.program()), plan, bindings, error);
  ASSERT_NE(exec, nullptr) << error.text;
  simcuda_reset();
  exec->abandon();
  EXPECT_NE(exec->launch(nullptr), CUDA_SUCCESS);
  EXPECT_NE(exec->bind(bindings), CUDA_SUCCESS);
  exec.reset();
  EXPECT_EQ(simcuda_calls("cuGraphExecDestroy") + simcuda_calls("cuGraphDestroy") + simcuda_calls("cuGraphLaunch"), 0u);
}

TEST_F(GraphExecTest, NothingBreaksACaptureOfAnotherThread) {
  const CUstream captured = stream(), other = stream();
  ASSERT_CU(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  const std::uint64_t before = simcuda_calls("cuThreadExchangeStreamCaptureMode");
  const ProgramBuilder builder = [&] {
    ProgramBuilder made;
    made.fill(made.add_output(8).at(0), 0, 1, 8);
    return made;
  }();
  Bindings bindings;
  bindings.outputs = {weight_};
  refusal::Refusal error;
  auto exec = GraphExec::build(share(builder.program()), whole(builder.program()), builder.plan(), bindings, error);
  EXPECT_GE(simcuda_calls("cuThreadExchangeStreamCaptureMode"), before + 2);
  ASSERT_NE(exec, nullptr) << error.text;
  exec->upload();
  EXPECT_CU(exec->launch(other));
  ASSERT_CU(cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL) << "as it was";
  CUgraph graph = nullptr;
  ASSERT_CU(cuStreamEndCapture(captured, &graph));
  ASSERT_CU(cuGraphDestroy(graph));
}

}  // namespace
}  // namespace grape::graphs
