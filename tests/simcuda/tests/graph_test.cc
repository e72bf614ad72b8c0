#include <atomic>

#include "fixture.h"

namespace simcuda_test {
namespace {

class Graphs : public Driver {
 protected:
  void SetUp() override {
    Driver::SetUp();
    ASSERT_CU(cuGraphCreate(&graph_, 0));
    p_ = number(0);
  }

  // A node that appends a digit to *p_.
  CUgraphNode digit(std::uint64_t value, std::vector<CUgraphNode> after = {}) {
    CUgraphNode node = nullptr;
    const CUDA_KERNEL_NODE_PARAMS params = mix(value);
    EXPECT_CU(cuGraphAddKernelNode(&node, graph_, after.data(), after.size(), &params));
    return node;
  }
  CUDA_KERNEL_NODE_PARAMS mix(std::uint64_t value) {
    value_ = value;
    CUDA_KERNEL_NODE_PARAMS params = {};
    params.func = function("_Z3mixPmmm");
    params.gridDimX = params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = pointers_;
    return params;
  }
  std::uint64_t run(CUgraphExec exec) {
    EXPECT_CU(cuMemsetD32(p_, 0, 2));
    EXPECT_CU(cuGraphLaunch(exec, nullptr));
    return read<std::uint64_t>(p_);
  }
  CUgraphExec instantiate() {
    CUgraphExec exec = nullptr;
    EXPECT_CU(cuGraphInstantiate(&exec, graph_, 0));
    return exec;
  }

  CUgraph graph_ = nullptr;
  CUdeviceptr p_ = 0;
  std::uint64_t ten_ = 10;
  std::uint64_t value_ = 0;
  void* pointers_[3] = {&p_, &ten_, &value_};
};

TEST_F(Graphs, RunInTheOrderOfTheEdges) {
  CUgraphNode third = digit(3);
  CUgraphNode first = digit(1);
  CUgraphNode second = digit(2, {first});
  ASSERT_CU(cuGraphAddDependencies(graph_, &second, &third, nullptr, 1));
  EXPECT_RESULT(cuGraphAddDependencies(graph_, &third, &first, nullptr, 1), CUDA_ERROR_INVALID_VALUE) << "a circle";
  EXPECT_RESULT(cuGraphAddDependencies(graph_, &second, &third, nullptr, 1), CUDA_ERROR_INVALID_VALUE) << "twice";
  EXPECT_EQ(run(instantiate()), 123U);
  std::size_t count = 0;
  ASSERT_CU(cuGraphGetRootNodes(graph_, nullptr, &count));
  EXPECT_EQ(count, 1U);
  CUgraphNode root = nullptr;
  ASSERT_CU(cuGraphGetRootNodes(graph_, &root, &count));
  EXPECT_EQ(root, first);
  ASSERT_CU(cuGraphNodeGetDependentNodes(first, nullptr, nullptr, &count));
  EXPECT_EQ(count, 1U);
  ASSERT_CU(cuGraphDestroyNode(second));
  EXPECT_RESULT(cuGraphDestroyNode(second), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(cuGraphGetRootNodes(graph_, nullptr, &count));
  EXPECT_EQ(count, 2U);
}

TEST_F(Graphs, ParametersOfNodes) {
  CUgraphNode node = digit(5);
  CUDA_KERNEL_NODE_PARAMS params = {};
  ASSERT_CU(cuGraphKernelNodeGetParams(node, &params));
  EXPECT_EQ(params.func, function("_Z3mixPmmm"));
  EXPECT_EQ(*static_cast<std::uint64_t*>(params.kernelParams[2]), 5U);
  CUgraphExec exec = instantiate();
  EXPECT_EQ(run(exec), 5U);
  CUDA_KERNEL_NODE_PARAMS other = mix(6);
  ASSERT_CU(cuGraphExecKernelNodeSetParams(exec, node, &other));
  EXPECT_EQ(run(exec), 6U);
  ASSERT_CU(cuGraphKernelNodeGetParams(node, &params));
  EXPECT_EQ(*static_cast<std::uint64_t*>(params.kernelParams[2]), 5U) << "the graph itself is as it was";
  other = mix(7);
  ASSERT_CU(cuGraphKernelNodeSetParams(node, &other));
  EXPECT_EQ(run(exec), 6U);
  EXPECT_EQ(run(instantiate()), 7U);
  CUDA_MEMSET_NODE_PARAMS wrong = {};
  EXPECT_RESULT(cuGraphMemsetNodeGetParams(node, &wrong), CUDA_ERROR_INVALID_VALUE);
}

// A launch that is still queued keeps the parameters it was launched with.
TEST_F(Graphs, SetParamsDoesNotReachQueuedLaunches) {
  CUgraphNode node = digit(1);
  CUgraphExec exec = instantiate();
  CUstream s = stream();
  ASSERT_CU(launch("_Z5delayj", s, 10000U));
  ASSERT_CU(cuGraphLaunch(exec, s));
  const CUDA_KERNEL_NODE_PARAMS other = mix(2);
  ASSERT_CU(cuGraphExecKernelNodeSetParams(exec, node, &other));
  ASSERT_CU(cuGraphLaunch(exec, s));
  ASSERT_CU(cuStreamSynchronize(s));
  EXPECT_EQ(read<std::uint64_t>(p_), 12U);
}

TEST_F(Graphs, NodesCanBeDisabled) {
  CUgraphNode first = digit(1);
  CUgraphNode second = digit(2, {first});
  digit(3, {second});
  CUgraphExec exec = instantiate();
  ASSERT_CU(cuGraphNodeSetEnabled(exec, second, 0));
  unsigned enabled = 1;
  EXPECT_CU(cuGraphNodeGetEnabled(exec, second, &enabled));
  EXPECT_EQ(enabled, 0U);
  EXPECT_EQ(run(exec), 13U);
  ASSERT_CU(cuGraphNodeSetEnabled(exec, second, 1));
  EXPECT_EQ(run(exec), 123U);
}

TEST_F(Graphs, EveryKindOfNode) {
  CUdeviceptr a = floats(2);
  CUDA_MEMSET_NODE_PARAMS memset = {};
  memset.dst = a;
  memset.elementSize = 4;
  memset.value = 9;
  memset.width = 2;
  memset.height = 1;
  CUgraphNode set_node = nullptr;
  ASSERT_CU(cuGraphAddMemsetNode(&set_node, graph_, nullptr, 0, &memset, context_));
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = a;
  copy.dstDevice = p_;
  copy.WidthInBytes = 4;
  copy.Height = copy.Depth = 1;
  CUgraphNode copy_node = nullptr;
  ASSERT_CU(cuGraphAddMemcpyNode(&copy_node, graph_, &set_node, 1, &copy, context_));
  CUgraph child = nullptr;
  ASSERT_CU(cuGraphCreate(&child, 0));
  const CUDA_KERNEL_NODE_PARAMS params = mix(1);
  CUgraphNode inner = nullptr;
  ASSERT_CU(cuGraphAddKernelNode(&inner, child, nullptr, 0, &params));
  CUgraphNode child_node = nullptr;
  ASSERT_CU(cuGraphAddChildGraphNode(&child_node, graph_, &copy_node, 1, child));
  ASSERT_CU(cuGraphDestroy(child));
  std::atomic<int> calls{0};
  CUDA_HOST_NODE_PARAMS host = {[](void* data) { ++*static_cast<std::atomic<int>*>(data); }, &calls};
  CUgraphNode host_node = nullptr;
  ASSERT_CU(cuGraphAddHostNode(&host_node, graph_, &child_node, 1, &host));
  CUevent e = event();
  CUgraphNode event_node = nullptr;
  ASSERT_CU(cuGraphAddEventRecordNode(&event_node, graph_, &host_node, 1, e));
  CUgraphNode empty_node = nullptr;
  ASSERT_CU(cuGraphAddEmptyNode(&empty_node, graph_, &event_node, 1));
  CUgraphExec exec = instantiate();
  EXPECT_EQ(run(exec), 91U);
  EXPECT_EQ(calls, 1);
  EXPECT_CU(cuEventQuery(e));

  CUgraph owned = nullptr;
  ASSERT_CU(cuGraphChildGraphNodeGetGraph(child_node, &owned));
  EXPECT_RESULT(cuGraphDestroy(owned), CUDA_ERROR_INVALID_VALUE) << "its node owns it";
  CUgraphNode inside = nullptr;
  std::size_t count = 1;
  ASSERT_CU(cuGraphGetNodes(owned, &inside, &count));
  const CUDA_KERNEL_NODE_PARAMS other = mix(4);
  ASSERT_CU(cuGraphExecKernelNodeSetParams(exec, inside, &other));
  memset.value = 8;
  ASSERT_CU(cuGraphExecMemsetNodeSetParams(exec, set_node, &memset, context_));
  EXPECT_EQ(run(exec), 84U);
}

TEST_F(Graphs, GenericAddNode) {
  CUgraphNodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_KERNEL;
  const CUDA_KERNEL_NODE_PARAMS kernel = mix(3);
  params.kernel.func = kernel.func;
  params.kernel.gridDimX = params.kernel.gridDimY = params.kernel.gridDimZ = 1;
  params.kernel.blockDimX = params.kernel.blockDimY = params.kernel.blockDimZ = 1;
  params.kernel.kernelParams = pointers_;
  CUgraphNode node = nullptr;
  ASSERT_CU(cuGraphAddNode(&node, graph_, nullptr, nullptr, 0, &params));
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  ASSERT_CU(cuGraphNodeGetType(node, &type));
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_KERNEL);
  CUgraphExec exec = instantiate();
  EXPECT_EQ(run(exec), 3U);
  value_ = 4;
  ASSERT_CU(cuGraphExecNodeSetParams(exec, node, &params));
  EXPECT_EQ(run(exec), 4U);
}

TEST_F(Graphs, UpdateTakesTheSameTopologyOnly) {
  CUgraphNode first = digit(1);
  digit(2, {first});
  CUgraphExec exec = instantiate();
  CUgraph clone = nullptr;
  ASSERT_CU(cuGraphClone(&clone, graph_));
  CUgraphNode twin = nullptr;
  ASSERT_CU(cuGraphNodeFindInClone(&twin, first, clone));
  const CUDA_KERNEL_NODE_PARAMS other = mix(8);
  ASSERT_CU(cuGraphKernelNodeSetParams(twin, &other));
  CUgraphExecUpdateResultInfo info = {};
  ASSERT_CU(cuGraphExecUpdate(exec, clone, &info));
  EXPECT_EQ(run(exec), 82U);
  digit(3);
  EXPECT_RESULT(cuGraphExecUpdate(exec, graph_, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  EXPECT_EQ(run(exec), 82U) << "a failed update changes nothing";
}

TEST_F(Graphs, ExecOutlivesItsGraphAndQueuedLaunchesOutliveTheExec) {
  digit(6);
  CUgraphExec exec = instantiate();
  ASSERT_CU(cuGraphDestroy(graph_));
  CUstream s = stream();
  ASSERT_CU(launch("_Z5delayj", s, 10000U));
  ASSERT_CU(cuGraphLaunch(exec, s));
  ASSERT_CU(cuGraphExecDestroy(exec));
  EXPECT_RESULT(cuGraphLaunch(exec, s), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(cuStreamSynchronize(s));
  EXPECT_EQ(read<std::uint64_t>(p_), 6U);
}

TEST_F(Graphs, LaunchesOfOneExecDoNotOverlap) {
  CUdeviceptr flag = number(0);
  unsigned microseconds = 3000;
  void* pointers[] = {&flag, &microseconds};
  CUDA_KERNEL_NODE_PARAMS params = mix(0);
  params.func = function("_Z9exclusivePij");
  params.kernelParams = pointers;
  CUgraphNode node = nullptr;
  ASSERT_CU(cuGraphAddKernelNode(&node, graph_, nullptr, 0, &params));
  CUgraphExec exec = instantiate();
  CUstream a = stream();
  CUstream b = stream();
  for (int i = 0; i < 4; ++i) ASSERT_CU(cuGraphLaunch(exec, i % 2 == 0 ? a : b));
  EXPECT_CU(cuCtxSynchronize());
}

TEST_F(Graphs, LaunchInACaptureBecomesAChild) {
  digit(4);
  CUgraphExec exec = instantiate();
  CUstream s = stream();
  CUgraph outer = nullptr;
  ASSERT_CU(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASSERT_CU(cuGraphLaunch(exec, s));
  ASSERT_CU(cuStreamEndCapture(s, &outer));
  CUgraphExec outer_exec = nullptr;
  ASSERT_CU(cuGraphInstantiate(&outer_exec, outer, 0));
  EXPECT_EQ(run(outer_exec), 4U);
}

TEST_F(Graphs, FailedLaunchEnqueuesNothing) {
  digit(4);
  CUgraphExec exec = instantiate();
  ASSERT_EQ(simcuda_set_fault("cuGraphLaunch", 1, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES), 0);
  EXPECT_RESULT(cuGraphLaunch(exec, nullptr), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_EQ(read<std::uint64_t>(p_), 0U);
  EXPECT_EQ(run(exec), 4U);
}

TEST_F(Graphs, UserObjectsEndWithTheGraph) {
  std::atomic<int> destroyed{0};
  CUuserObject object = nullptr;
  ASSERT_CU(cuUserObjectCreate(
      &object, &destroyed, [](void* data) { ++*static_cast<std::atomic<int>*>(data); }, 1,
      CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  ASSERT_CU(cuGraphRetainUserObject(graph_, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  EXPECT_EQ(destroyed, 0);
  ASSERT_CU(cuGraphDestroy(graph_));
  EXPECT_EQ(destroyed, 1);
}

}  // namespace
}  // namespace simcuda_test
