// Execs that the application changes after it made them: by node, as a whole, enabled and disabled.
#include "tests/shim/virtual_execs/graphs.h"

namespace grape::virtual_execs_test {
namespace {

class Changes : public Graphs {
 protected:
  void SetUp() override {
    Graphs::SetUp();
    launch_on_execs();
    for (std::size_t i = 0; i < kCount; ++i) {
      graphs_.push_back(make_graph(i, &nodes_[i]));
      CUgraphExec exec = nullptr;
      ASSERT_CU(cuGraphInstantiateWithFlags(&exec, graphs_.back(), 0));
      execs_.push_back(exec);
    }
  }

  CUresult set_kernel(std::size_t i, std::size_t node, std::uint64_t a, std::uint64_t b) {
    CUDA_KERNEL_NODE_PARAMS params{};
    void* pointers[] = {&state_, &a, &b};
    params.func = function("_Z3mixPmmm");
    params.gridDimX = params.gridDimY = params.gridDimZ = params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = pointers;
    return cuGraphExecKernelNodeSetParams(execs_[i], nodes_[i][node], &params);
  }

  // Launches all, from 1, and gives back what each left.
  std::vector<std::uint64_t> results() {
    std::vector<std::uint64_t> all;
    for (const CUgraphExec exec : execs_) {
      set_state(1);
      EXPECT_CU(cuGraphLaunch(exec, stream_));
      EXPECT_CU(cuStreamSynchronize(stream_));
      all.push_back(state());
    }
    return all;
  }
  static std::vector<std::uint64_t> as_made() {
    std::vector<std::uint64_t> all;
    for (std::size_t i = 0; i < kCount; ++i) all.push_back(step(i, 1));
    return all;
  }

  static constexpr std::size_t kCount = 8;
  std::vector<CUgraph> graphs_;
  std::vector<CUgraphNode> nodes_[kCount];
  std::vector<CUgraphExec> execs_;
};

TEST_F(Changes, OneNode) {
  EXPECT_EQ(results(), as_made());
  std::vector<std::uint64_t> expected = as_made();
  for (const std::size_t i : {std::size_t{1}, std::size_t{6}}) {
    ASSERT_CU(set_kernel(i, 0, 100 + i, 5));
    expected[i] = 100 + i + 5 + i;
  }
  EXPECT_EQ(results(), expected);
  EXPECT_EQ(results(), expected);
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_CU(set_kernel(i, 0, 7, i));
    expected[i] = 7 + 2 * i;
  }
  EXPECT_EQ(results(), expected);
}

// Graphs that were changed by node share execs like others.
TEST_F(Changes, WhatWasChangedNeedsNoExecOfItsOwn) {
  std::vector<std::uint64_t> expected;
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_CU(set_kernel(i, 0, 100 + i, 5));
    ASSERT_CU(set_kernel(i, 4, 1, 1000));  // where every other graph has another function, with fewer parameters
    expected.push_back(100 + i + 5 + 1000);
  }
  for (int round = 0; round < 3; ++round) EXPECT_EQ(results(), expected);
  ASSERT_CU(cuGraphNodeSetEnabled(execs_[3], nodes_[3][4], 0));
  expected[3] -= 1000;
  for (int round = 0; round < 3; ++round) EXPECT_EQ(results(), expected);
  if (is_virtual()) {
    EXPECT_LE(live(), kResident);
  }
  for (const CUgraph graph : graphs_) ASSERT_CU(cuGraphDestroy(graph));
  EXPECT_EQ(results(), expected);
}

// What an exec of ours holds is what the application made of it, not what was put on it.
TEST_F(Changes, TwinsOfWhatWasChanged) {
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_CU(cuGraphExecDestroy(execs_[i]));
    graphs_[i] = make_graph(2, &nodes_[i]);
    ASSERT_CU(cuGraphInstantiateWithFlags(&execs_[i], graphs_[i], 0));
  }
  std::vector<std::uint64_t> expected(kCount, step(2, 1));
  EXPECT_EQ(results(), expected);
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_CU(cuGraphLaunch(execs_[i], stream_));
    synchronize();
    ASSERT_CU(set_kernel(i, 0, 100 + i, 0));
    expected[i] = 100 + i + 2;
    EXPECT_EQ(results(), expected);
    ASSERT_CU(cuGraphNodeSetEnabled(execs_[i], nodes_[i][4], 0));
    expected[i] -= 2;
    EXPECT_EQ(results(), expected);
    ASSERT_CU(set_kernel(i, 0, factor(2), 0));
    ASSERT_CU(cuGraphNodeSetEnabled(execs_[i], nodes_[i][4], 1));
    expected[i] = step(2, 1);
    EXPECT_EQ(results(), expected);
  }
  if (is_virtual()) {
    EXPECT_LE(live(), kResident);
  }
}

// An exec of ours outlives the graph that was on it, as the application left it.
TEST_F(Changes, DestroyedAfterAChange) {
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_CU(cuGraphExecDestroy(execs_[i]));
    graphs_[i] = make_graph(2, &nodes_[i]);
    ASSERT_CU(cuGraphInstantiateWithFlags(&execs_[i], graphs_[i], 0));
  }
  EXPECT_EQ(results(), std::vector<std::uint64_t>(kCount, step(2, 1)));
  while (execs_.size() > 1) {
    ASSERT_CU(set_kernel(execs_.size() - 1, 0, 1000, 1));
    ASSERT_CU(cuGraphExecDestroy(execs_.back()));
    execs_.pop_back();
    EXPECT_EQ(results(), std::vector<std::uint64_t>(execs_.size(), step(2, 1)));
  }
}

TEST_F(Changes, CopiesAndMemsets) {
  const CUdeviceptr elsewhere = floats(64);
  for (std::size_t i = 0; i < kCount; ++i) {
    CUDA_MEMSET_NODE_PARAMS memset{};
    memset.dst = elsewhere + 8 * i;
    memset.value = static_cast<unsigned>(900 + i);
    memset.elementSize = 4;
    memset.width = memset.height = 1;
    ASSERT_CU(cuGraphExecMemsetNodeSetParams(execs_[i], nodes_[i][2], &memset, context_));
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = state_;
    copy.dstDevice = elsewhere + 8 * i + 4;
    copy.WidthInBytes = 4;
    copy.Height = copy.Depth = 1;
    ASSERT_CU(cuGraphExecMemcpyNodeSetParams(execs_[i], nodes_[i][1], &copy, context_));
  }
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(results(), as_made());
    for (std::size_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(read<std::uint32_t>(elsewhere, 2 * i), 900 + i);
      EXPECT_EQ(read<std::uint32_t>(elsewhere, 2 * i + 1), factor(i));
      EXPECT_EQ(read<std::uint32_t>(copies_, 2 * i + 1), 0u);
    }
  }
}

TEST_F(Changes, TheNewerCallForOneNode) {
  for (std::size_t i = 0; i < kCount; ++i) {
    CUgraphNodeParams params{};
    std::uint64_t a = 50 + i, b = 1;
    void* pointers[] = {&state_, &a, &b};
    params.type = CU_GRAPH_NODE_TYPE_KERNEL;
    params.kernel.func = function("_Z3mixPmmm");
    params.kernel.gridDimX = params.kernel.gridDimY = params.kernel.gridDimZ = 1;
    params.kernel.blockDimX = params.kernel.blockDimY = params.kernel.blockDimZ = 1;
    params.kernel.kernelParams = pointers;
    ASSERT_CU(cuGraphExecNodeSetParams(execs_[i], nodes_[i][0], &params));
  }
  std::vector<std::uint64_t> expected;
  for (std::size_t i = 0; i < kCount; ++i) expected.push_back(50 + i + 1 + i);
  EXPECT_EQ(results(), expected);
  EXPECT_EQ(results(), expected);
}

TEST_F(Changes, AKernelWithMoreParametersInItsPlace) {
  // From two to three and back, on execs that others have been on meanwhile.
  std::vector<std::uint64_t> expected = as_made();
  for (int round = 0; round < 3; ++round) {
    ASSERT_CU(set_kernel(1, 4, 3, 7));
    expected[1] = factor(1) * 3 + 7;
    EXPECT_EQ(results(), expected);
    std::uint64_t b = 50;
    void* pointers[] = {&state_, &b};
    CUDA_KERNEL_NODE_PARAMS params{};
    params.func = function("_Z10atomic_addPmm");
    params.gridDimX = params.gridDimY = params.gridDimZ = params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = pointers;
    ASSERT_CU(cuGraphExecKernelNodeSetParams(execs_[1], nodes_[1][4], &params));
    expected[1] = factor(1) + 50;
    EXPECT_EQ(results(), expected);
  }
}

TEST_F(Changes, ErrorsForANode) {
  EXPECT_RESULT(cuGraphExecKernelNodeSetParams(execs_[0], nodes_[0][0], nullptr), CUDA_ERROR_INVALID_VALUE);
  // Of another graph, of another kind, of nobody's.
  CUDA_MEMSET_NODE_PARAMS memset{};
  memset.dst = copies_;
  memset.elementSize = 4;
  memset.width = memset.height = 1;
  EXPECT_RESULT(cuGraphExecMemsetNodeSetParams(execs_[0], nodes_[1][2], &memset, context_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_RESULT(cuGraphExecMemsetNodeSetParams(execs_[0], nodes_[0][0], &memset, context_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_RESULT(cuGraphExecMemsetNodeSetParams(execs_[0], nullptr, &memset, context_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_RESULT(set_kernel(0, 2, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(results(), as_made());
}

TEST_F(Changes, DisabledNodes) {
  std::vector<std::uint64_t> expected = as_made();
  for (std::size_t i = 0; i < kCount; i += 3) {
    ASSERT_CU(cuGraphNodeSetEnabled(execs_[i], nodes_[i][0], 0));
    expected[i] = 1 + i;
  }
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(results(), expected);
    for (std::size_t i = 0; i < kCount; ++i) {
      unsigned enabled = 7;
      ASSERT_CU(cuGraphNodeGetEnabled(execs_[i], nodes_[i][0], &enabled));
      EXPECT_EQ(enabled, i % 3 == 0 ? 0u : 1u) << i;
      ASSERT_CU(cuGraphNodeGetEnabled(execs_[i], nodes_[i][4], &enabled));
      EXPECT_EQ(enabled, 1u);
    }
  }
  for (std::size_t i = 0; i < kCount; i += 3) ASSERT_CU(cuGraphNodeSetEnabled(execs_[i], nodes_[i][0], 1));
  EXPECT_EQ(results(), as_made());
  unsigned enabled = 0;
  EXPECT_RESULT(cuGraphNodeGetEnabled(execs_[0], nodes_[1][0], &enabled), CUDA_ERROR_INVALID_VALUE);
  EXPECT_RESULT(cuGraphNodeGetEnabled(execs_[0], nodes_[0][0], nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_RESULT(cuGraphNodeSetEnabled(execs_[0], nodes_[0][3], 0), CUDA_ERROR_INVALID_VALUE);  // an empty one
}

TEST_F(Changes, AsAWhole) {
  std::vector<std::uint64_t> expected = as_made();
  for (std::size_t i = 0; i < kCount; i += 2) {
    const CUgraph graph = make_graph(i + 40);
    CUgraphExecUpdateResultInfo info{};
    info.result = CU_GRAPH_EXEC_UPDATE_ERROR;
    ASSERT_CU(cuGraphExecUpdate(execs_[i], graph, &info));
    EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
    ASSERT_CU(cuGraphDestroy(graph));
    expected[i] = step(i + 40, 1);
  }
  EXPECT_EQ(results(), expected);
  EXPECT_EQ(results(), expected);
}

TEST_F(Changes, AnUpdateThatDoesNotFit) {
  const CUgraph graph = make_graph(1);
  add_memset(graph, {}, copies_, 1);
  for (std::size_t i = 0; i < kCount; ++i) {
    CUgraphExecUpdateResultInfo info{};
    EXPECT_RESULT(cuGraphExecUpdate(execs_[i], graph, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  }
  EXPECT_EQ(results(), as_made());
}

// Step after step an exec is brought up to date, as some programs do for each token.
TEST_F(Changes, AFunctionThatNobodyKnows) {
  using Nodes = decltype(&cuSimGraphExecNodes);
  void* found = nullptr;
  CUdriverProcAddressQueryResult status;
  ASSERT_CU(cuGetProcAddress("cuSimGraphExecNodes", &found, 12000, 0, &status));
  for (const CUgraphExec exec : {execs_[0], execs_[7], execs_[3]}) {
    double nodes = 0;
    EXPECT_CU(reinterpret_cast<Nodes>(found)(exec, &nodes, 10, 0.5, 100, 0.25F, 1000));
    EXPECT_EQ(nodes, 5 + 1110.75);
  }
  ASSERT_CU(cuGraphExecDestroy(execs_[3]));
  double nodes = 0;
  EXPECT_RESULT(reinterpret_cast<Nodes>(found)(execs_[3], &nodes, 0, 0, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  execs_.resize(3);
  const std::vector<std::uint64_t> expected = as_made();
  EXPECT_EQ(results(), std::vector<std::uint64_t>(expected.begin(), expected.begin() + 3));
}

TEST_F(Changes, AnUpdateBeforeEachLaunch) {
  const CUgraphExec exec = execs_[0];
  std::uint64_t expected = 1;
  set_state(1);
  for (std::size_t i = 0; i < 40; ++i) {
    const CUgraph graph = make_graph(2 * i);
    CUgraphExecUpdateResultInfo info{};
    ASSERT_CU(cuGraphExecUpdate(exec, graph, &info));
    ASSERT_CU(cuGraphDestroy(graph));
    ASSERT_CU(cuGraphLaunch(exec, stream_));
    expected = step(2 * i, expected);
  }
  synchronize();
  EXPECT_EQ(state(), expected);
}

TEST_F(Changes, TheGraphGoesAndItsNodesWithIt) {
  for (const CUgraph graph : graphs_) ASSERT_CU(cuGraphDestroy(graph));
  // The handles of its nodes come again, for others.
  std::vector<CUgraphNode> nodes;
  const CUgraph another = make_graph(99, &nodes);
  EXPECT_EQ(results(), as_made());
  ASSERT_CU(cuGraphDestroy(another));
  for (const CUgraphExec exec : execs_) EXPECT_CU(cuGraphExecDestroy(exec));
  EXPECT_EQ(live(), 0u);
}

TEST_F(Changes, TheGraphIsChangedAfterwards) {
  // Execs are as their graphs were when they were made.
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_CU(cuGraphDestroyNode(nodes_[i][4]));
    std::uint64_t a = 1000, b = 1000;
    CUDA_KERNEL_NODE_PARAMS params{};
    void* pointers[] = {&state_, &a, &b};
    params.func = function("_Z3mixPmmm");
    params.gridDimX = params.gridDimY = params.gridDimZ = params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = pointers;
    ASSERT_CU(cuGraphKernelNodeSetParams(nodes_[i][0], &params));
  }
  EXPECT_EQ(results(), as_made());
  // Several of one graph.
  CUgraphExec second = nullptr;
  ASSERT_CU(cuGraphInstantiateWithFlags(&second, graphs_[2], 0));
  EXPECT_EQ(results(), as_made());
  set_state(1);
  ASSERT_CU(cuGraphLaunch(second, stream_));
  synchronize();
  EXPECT_EQ(state(), 2000u);
}

}  // namespace
}  // namespace grape::virtual_execs_test
