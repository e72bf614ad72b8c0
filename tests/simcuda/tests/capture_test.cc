#include <thread>

#include "fixture.h"

namespace simcuda_test {
namespace {

class Capture : public Driver {
 protected:
  CUresult digit(CUstream s, CUdeviceptr p, std::uint64_t value) {
    return launch("_Z3mixPmmm", s, p, std::uint64_t{10}, value);
  }
  static std::size_t node_count(CUgraph graph) {
    std::size_t count = 0;
    EXPECT_CU(cuGraphGetNodes(graph, nullptr, &count));
    return count;
  }
  static std::size_t edge_count(CUgraph graph) {
    std::size_t count = 0;
    EXPECT_CU(cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &count));
    return count;
  }
};

TEST_F(Capture, RecordsInsteadOfExecuting) {
  CUstream s = stream();
  CUdeviceptr p = number(0);
  CUgraph graph = nullptr;
  ASSERT_CU(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  EXPECT_CU(cuStreamIsCapturing(s, &status));
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  ASSERT_CU(digit(s, p, 1));
  ASSERT_CU(digit(s, p, 2));
  ASSERT_CU(cuStreamEndCapture(s, &graph));
  EXPECT_EQ(node_count(graph), 2U);
  EXPECT_EQ(edge_count(graph), 1U);
  EXPECT_EQ(read<std::uint64_t>(p), 0U);
  CUgraphExec exec = nullptr;
  ASSERT_CU(cuGraphInstantiate(&exec, graph, 0));
  ASSERT_CU(cuGraphLaunch(exec, s));
  ASSERT_CU(cuGraphLaunch(exec, s));
  ASSERT_CU(cuStreamSynchronize(s));
  EXPECT_EQ(read<std::uint64_t>(p), 1212U);
  EXPECT_CU(cuGraphExecDestroy(exec));
  EXPECT_CU(cuGraphDestroy(graph));
}

TEST_F(Capture, ForksAndJoinsByEvents) {
  CUstream s = stream();
  CUstream side = stream();
  CUevent fork_event = event();
  CUevent join_event = event();
  CUdeviceptr p = number(0);
  CUdeviceptr q = number(0);
  CUgraph graph = nullptr;
  ASSERT_CU(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  ASSERT_CU(digit(s, p, 1));
  ASSERT_CU(cuEventRecord(fork_event, s));
  ASSERT_CU(cuStreamWaitEvent(side, fork_event, 0));
  ASSERT_CU(digit(side, q, 2));
  ASSERT_CU(digit(s, p, 3));
  ASSERT_CU(cuEventRecord(join_event, side));
  ASSERT_CU(cuStreamWaitEvent(s, join_event, 0));
  ASSERT_CU(digit(s, p, 4));
  ASSERT_CU(cuStreamEndCapture(s, &graph));
  EXPECT_EQ(node_count(graph), 4U);
  EXPECT_EQ(edge_count(graph), 4U);
  EXPECT_CU(digit(side, q, 5)) << "the side stream is free again";
  ASSERT_CU(cuStreamSynchronize(side));
  EXPECT_EQ(read<std::uint64_t>(q), 5U);
}

TEST_F(Capture, UnjoinedForkIsAnError) {
  CUstream s = stream();
  CUstream side = stream();
  CUevent e = event();
  CUdeviceptr p = number(0);
  CUgraph graph = nullptr;
  ASSERT_CU(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASSERT_CU(digit(s, p, 1));
  ASSERT_CU(cuEventRecord(e, s));
  ASSERT_CU(cuStreamWaitEvent(side, e, 0));
  ASSERT_CU(digit(side, p, 2));
  EXPECT_RESULT(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  EXPECT_EQ(graph, nullptr);
  EXPECT_CU(cuStreamQuery(side));
}

TEST_F(Capture, IllegalCallsInvalidate) {
  CUstream s = stream();
  CUgraph graph = nullptr;
  CUdeviceptr address = 0;
  ASSERT_CU(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_RESULT(cuStreamSynchronize(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_RESULT(cuStreamSynchronize(s), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_RESULT(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

  ASSERT_CU(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  std::thread([&] {
    ASSERT_CU(cuCtxSetCurrent(context_));
    EXPECT_RESULT(cuMemAlloc(&address, 16), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }).join();
  EXPECT_RESULT(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

  ASSERT_CU(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_CU(cuMemAlloc(&address, 16));
  EXPECT_CU(cuStreamEndCapture(s, &graph));

  ASSERT_CU(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_RESULT(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_RESULT(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(Capture, LegacyStreamIsOffLimitsForBlockingStreams) {
  CUstream s = stream(CU_STREAM_DEFAULT);
  CUgraph graph = nullptr;
  EXPECT_RESULT(cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  ASSERT_CU(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_RESULT(launch("_Z7nothingv", nullptr), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_RESULT(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(Capture, OnlyTheThreadThatBeganMayEnd) {
  CUstream s = stream();
  CUgraph graph = nullptr;
  ASSERT_CU(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  std::thread([&] {
    ASSERT_CU(cuCtxSetCurrent(context_));
    EXPECT_RESULT(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  }).join();
  EXPECT_CU(cuStreamEndCapture(s, &graph));
}

TEST_F(Capture, InfoAndDependenciesCanBeChanged) {
  CUstream s = stream();
  CUdeviceptr p = number(0);
  CUgraph graph = nullptr;
  ASSERT_CU(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASSERT_CU(digit(s, p, 1));
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  const CUgraphNode* dependencies = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  std::size_t count = 0;
  ASSERT_CU(cuStreamGetCaptureInfo(s, &status, &id, &graph, &dependencies, &edges, &count));
  ASSERT_EQ(count, 1U);
  EXPECT_NE(id, 0U);
  CUgraphNode empty = nullptr;
  ASSERT_CU(cuGraphAddEmptyNode(&empty, graph, dependencies, count));
  ASSERT_CU(cuStreamUpdateCaptureDependencies(s, &empty, nullptr, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  ASSERT_CU(digit(s, p, 2));
  CUgraph ended = nullptr;
  ASSERT_CU(cuStreamEndCapture(s, &ended));
  EXPECT_EQ(ended, graph);
  EXPECT_EQ(node_count(graph), 3U);
  EXPECT_EQ(edge_count(graph), 2U);
}

TEST_F(Capture, CapturedEventsCannotBeWaitedForByTheHost) {
  CUstream s = stream();
  CUevent e = event();
  CUgraph graph = nullptr;
  ASSERT_CU(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASSERT_CU(cuEventRecord(e, s));
  EXPECT_RESULT(cuEventSynchronize(e), CUDA_ERROR_CAPTURED_EVENT);
  EXPECT_RESULT(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(Capture, ProgrammaticLaunchMakesAProgrammaticEdge) {
  CUstream s = stream();
  CUgraph graph = nullptr;
  CUlaunchAttribute attribute = {};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config = {1, 1, 1, 32, 1, 1, 0, s, &attribute, 1};
  ASSERT_CU(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASSERT_CU(launch("_Z7nothingv", s));
  ASSERT_CU(cuLaunchKernelEx(&config, function("_Z7nothingv"), nullptr, nullptr));
  ASSERT_CU(cuStreamEndCapture(s, &graph));
  CUgraphNode from = nullptr;
  CUgraphNode to = nullptr;
  CUgraphEdgeData data = {};
  std::size_t count = 1;
  ASSERT_CU(cuGraphGetEdges(graph, &from, &to, &data, &count));
  EXPECT_EQ(data.type, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
}

TEST_F(Capture, AllocationsInACaptureBelongToTheGraph) {
  CUstream s = stream();
  CUgraph graph = nullptr;
  CUdeviceptr address = 0;
  CUdeviceptr y = floats(2);
  ASSERT_CU(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASSERT_CU(cuMemAllocAsync(&address, 8, s));
  ASSERT_CU(launch("_Z4fillPffi", s, address, 3.0F, 2));
  ASSERT_CU(launch("_Z4copyPfPKfi", s, y, address, 2));
  ASSERT_CU(cuMemFreeAsync(address, s));
  ASSERT_CU(cuStreamEndCapture(s, &graph));
  CUgraphExec exec = nullptr;
  ASSERT_CU(cuGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 2; ++i) {
    ASSERT_CU(cuMemsetD32(y, 0, 2));
    ASSERT_CU(cuGraphLaunch(exec, s));
    ASSERT_CU(cuStreamSynchronize(s));
    EXPECT_EQ(read(y, 1), 3.0F);
  }
}

}  // namespace
}  // namespace simcuda_test
