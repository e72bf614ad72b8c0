// Graphs whose nodes follow each other, launched node by node where they are on no exec: they do what they did.
#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "tests/shim/virtual_execs/graphs.h"

namespace grape::virtual_execs_test {
namespace {

constexpr std::size_t kMany = 120;

class ByNode : public Graphs {
 protected:
  void SetUp() override {
    Graphs::SetUp();
    chains_ = true;
  }

  static std::uint64_t set() { return simcuda_calls("cuGraphExecKernelNodeSetParams_v2"); }
  static std::uint64_t built() { return simcuda_calls("cuGraphInstantiateWithFlags"); }

  static std::vector<std::size_t> at_random(unsigned seed) {
    std::vector<std::size_t> order(kMany);
    for (std::size_t i = 0; i < kMany; ++i) order[i] = i;
    std::mt19937 random(seed);
    std::shuffle(order.begin(), order.end(), random);
    return order;
  }

  void launch(const std::vector<CUgraphExec>& execs, const std::vector<std::size_t>& order, std::uint64_t& expected) {
    for (const std::size_t i : order) {
      ASSERT_CU(cuGraphLaunch(execs[i], stream_));
      expected = step(i, expected);
    }
  }

  // Five nodes: state = 3 * state + 1, four times, and a memset somewhere.
  static constexpr std::size_t kFive = 5;
  CUgraph make_five(std::size_t memset_at) {
    CUgraph graph = nullptr;
    EXPECT_CU(cuGraphCreate(&graph, 0));
    std::vector<CUgraphNode> after;
    for (std::size_t i = 0; i < kFive; ++i) {
      const CUfunction mix = function("_Z3mixPmmm");
      after = {i == memset_at ? add_memset(graph, after, copies_, 17)
                              : add_kernel(graph, after, mix, state_, std::uint64_t{3}, std::uint64_t{1})};
    }
    return graph;
  }

  CUgraphExec slow() { return exec_of(make_slow_graph(state_, 30000)); }

  // Each stream goes when it has got its launch, and may get the handle of the one before.
  void launch_into_brief_streams(CUgraphExec exec, int count, std::uint64_t& expected) {
    std::vector<CUevent> ends;
    for (int i = 0; i < count; ++i) {
      const CUstream brief = stream();
      ASSERT_CU(cuGraphLaunch(exec, brief));
      expected = slowly(expected);
      ends.push_back(event());
      ASSERT_CU(cuEventRecord(ends.back(), brief));
      ASSERT_CU(cuStreamDestroy(brief));
    }
    for (const CUevent end : ends) ASSERT_CU(cuEventSynchronize(end));
  }
};

TEST_F(ByNode, NothingIsSetForGraphsInAnyOrder) {
  const std::vector<CUgraphExec> execs = make_execs(kMany);
  const std::uint64_t set_before = set(), built_before = built();
  std::uint64_t expected = state();
  for (unsigned round = 0; round < 3; ++round) launch(execs, at_random(round), expected);
  synchronize();
  EXPECT_EQ(state(), expected);
  for (std::size_t i = 0; i < kMany; ++i) EXPECT_EQ(read<std::uint32_t>(copies_, 2 * i + 1), 17 + i);
  EXPECT_EQ(built(), built_before);
  if (is_virtual()) {
    EXPECT_EQ(set(), set_before);
    EXPECT_GE(launched_alone(), (3 * kMany - 4 * kResident) * 2);
  }
}

// One stream is enough, and the event behind all of it.
TEST_F(ByNode, NoStreamsAndNoEventsBetweenNodes) {
  const std::vector<CUgraphExec> execs = make_execs(kMany);
  const std::uint64_t streams = simcuda_calls("cuStreamCreate"), waits = simcuda_calls("cuStreamWaitEvent");
  const std::uint64_t alone = launched_alone(), records = simcuda_calls("cuEventRecord");
  std::uint64_t expected = state();
  launch(execs, at_random(6), expected);
  synchronize();
  EXPECT_EQ(state(), expected);
  EXPECT_EQ(simcuda_calls("cuStreamCreate"), streams);
  EXPECT_EQ(simcuda_calls("cuStreamWaitEvent"), waits);
  EXPECT_LE(simcuda_calls("cuEventRecord") - records, (launched_alone() - alone) / 2 + 2 * kResident);
}

TEST_F(ByNode, GraphsInAKnownOrderAreMadeReady) {
  const std::vector<CUgraphExec> execs = make_execs(kMany);
  std::uint64_t expected = state();
  std::vector<std::size_t> order = at_random(1);
  std::sort(order.begin(), order.end());
  launch(execs, order, expected);
  const std::uint64_t before = launched_alone();
  launch(execs, order, expected);
  synchronize();
  EXPECT_EQ(state(), expected);
  if (is_virtual()) {
    EXPECT_LE(launched_alone() - before, 20u);
  }
}

// Graphs of many shapes, of each of which few follow one another: by the time that an exec is built, it is not needed.
TEST_F(ByNode, ExecsThatServeTooFewAreNotBuiltForAKnownOrder) {
  constexpr std::size_t kOfEach = 6;
  std::vector<CUgraphExec> execs;
  for (std::size_t i = 0; i < kFive * kOfEach; ++i) execs.push_back(exec_of(make_five(i / kOfEach)));
  std::uint64_t expected = state();
  const auto round = [&] {
    const std::uint64_t before = built();
    for (const CUgraphExec exec : execs) {
      EXPECT_CU(cuGraphLaunch(exec, stream_));
      synchronize();  // what runs is not given up
      for (std::size_t step = 1; step < kFive; ++step) expected = 3 * expected + 1;
    }
    return built() - before;
  };
  const std::uint64_t first = round() + round();
  for (int i = 0; i < 8; ++i) round();
  const std::uint64_t last = round() + round();
  EXPECT_EQ(state(), expected);
  if (is_virtual()) {
    EXPECT_GE(first, kFive);  // it was tried
    EXPECT_EQ(last, 0u);
  }
}

TEST_F(ByNode, AGraphThatComesOftenGetsAnExec) {
  const std::vector<CUgraphExec> execs = make_execs(8);
  std::uint64_t expected = state();
  for (int i = 0; i < 12; ++i) launch(execs, {0}, expected);
  const std::uint64_t before = launched_alone();
  for (int i = 0; i < 12; ++i) launch(execs, {0}, expected);
  synchronize();
  EXPECT_EQ(state(), expected);
  EXPECT_EQ(launched_alone(), before);
}

TEST_F(ByNode, LaunchesOfOneGraphFollowEachOtherOnAllStreams) {
  std::vector<CUgraphExec> execs;
  for (int i = 0; i < 8; ++i) execs.push_back(slow());
  const CUstream streams[] = {stream_, stream(), nullptr, CU_STREAM_PER_THREAD, stream(CU_STREAM_DEFAULT)};
  std::uint64_t expected = state();
  // Node by node, on an exec, and from one to the other.
  for (int i = 0; i < 12; ++i) {
    ASSERT_CU(cuGraphLaunch(execs[0], streams[i % 5]));
    expected = slowly(expected);
    if (i % 3 != 2) continue;
    ASSERT_CU(cuCtxSynchronize());
    for (int k = 1; k < 8; ++k) {
      ASSERT_CU(cuGraphLaunch(execs[k], stream_));
      expected = slowly(expected);
    }
    synchronize();
  }
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(state(), expected);
}

TEST_F(ByNode, AStreamThatIsGoneAndItsHandleForAnother) {
  std::vector<CUgraphExec> execs;
  for (int i = 0; i < 8; ++i) execs.push_back(slow());
  std::uint64_t expected = state();
  launch_into_brief_streams(execs[0], 6, expected);
  EXPECT_EQ(state(), expected);
}

// The same where there are no execs.
TEST_F(ByNode, AStreamThatIsGoneWhileThereAreNoExecs) {
  const CUgraphExec exec = slow();
  free_execs();
  std::uint64_t expected = state();
  launch_into_brief_streams(exec, 2, expected);
  EXPECT_EQ(state(), expected);
}

TEST_F(ByNode, WhatFailsAtTheFirstNodeIsLaunchedOnAnExec) {
  std::vector<CUgraphExec> execs(8);  // of a shape of their own, which is left to execs from then on
  for (std::size_t i = 0; i < execs.size(); ++i) {
    const CUgraph graph = make_graph(i);
    ASSERT_CU(cuGraphInstantiateWithFlags(&execs[i], graph, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY));
    ASSERT_CU(cuGraphDestroy(graph));
  }
  simcuda_set_fault("cuLaunchKernelEx", 0, CUDA_ERROR_NOT_SUPPORTED);
  std::uint64_t expected = state();
  launch(execs, {0, 5, 2, 0, 7}, expected);
  synchronize();
  EXPECT_EQ(state(), expected);
}

TEST_F(ByNode, WhatFailsLaterIsEndedOnAnExec) {
  const std::vector<CUgraphExec> execs = make_execs(12);
  std::uint64_t expected = state();
  for (const std::size_t i : {0, 5, 2, 1, 3}) {
    simcuda_set_fault("cuLaunchKernelEx", 2, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    launch(execs, {i}, expected);
    synchronize();
    ASSERT_EQ(state(), expected) << i;
    EXPECT_EQ(read<std::uint32_t>(copies_, 2 * i + 1), 17 + i);
    simcuda_set_fault("cuMemsetD32Async", 1, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    launch(execs, {i + 1}, expected);
    synchronize();
    ASSERT_EQ(state(), expected) << i;
  }
  // What is put on the exec that ended one has all of its nodes.
  simcuda_reset();
  set_state(1);
  expected = 1;
  for (int round = 0; round < 4; ++round) {
    for (std::size_t i = 0; i < 12; ++i) launch(execs, {i}, expected);
  }
  synchronize();
  EXPECT_EQ(state(), expected);
  // And where nothing helps the error is the driver's.
  if (!is_virtual()) return;
  for (const std::size_t i : {3, 9, 1, 6, 11, 4}) launch(execs, {i}, expected);  // the order is no known one any more
  simcuda_set_fault("cuLaunchKernelEx", 2, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  simcuda_set_fault("cuGraphInstantiateWithFlags", 0, CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_RESULT(cuGraphLaunch(execs[8], stream_), CUDA_ERROR_NOT_SUPPORTED);
}

// Nobody knows what they would be to a launch into a stream.
TEST_F(ByNode, NewAttributesAreLeftToExecs) {
  std::vector<CUgraphNode> nodes;
  const CUgraph graph = make_graph(0, &nodes);
  CUkernelNodeAttrValue value{};
  value.priority = 1;
  ASSERT_CU(cuGraphKernelNodeSetAttribute(nodes[0], static_cast<CUkernelNodeAttrID>(21), &value));
  const CUgraphExec exec = exec_of(graph);
  free_execs();
  ASSERT_CU(cuGraphLaunch(exec, stream_));
  synchronize();
  EXPECT_EQ(state(), step(0, 1));
  EXPECT_EQ(launched_alone(), 0u);
}

// In a graph they are read when it runs; on a stream when they are launched.
TEST_F(ByNode, CopiesOfHostMemoryAreLeftToExecs) {
  std::vector<std::uint64_t> host(8);
  std::vector<CUgraphExec> execs;
  const CUfunction mix = function("_Z3mixPmmm");
  for (std::size_t i = 0; i < host.size(); ++i) {
    CUgraph graph = nullptr;
    ASSERT_CU(cuGraphCreate(&graph, 0));
    const CUgraphNode slept = add_kernel(graph, {}, function("_Z5delayj"), 10000U);
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcHost = &host[i];
    copy.dstDevice = state_;
    copy.WidthInBytes = 8;
    copy.Height = copy.Depth = 1;
    CUgraphNode copied = nullptr;
    ASSERT_CU(cuGraphAddMemcpyNode(&copied, graph, &slept, 1, &copy, context_));
    add_kernel(graph, {copied}, mix, state_, std::uint64_t{3}, std::uint64_t{i});
    execs.push_back(exec_of(graph));
  }
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < host.size(); ++i) {
      const std::size_t at = (i * 5) % host.size();
      host[at] = 0;
      ASSERT_CU(cuGraphLaunch(execs[at], stream_));
      host[at] = 100 + at;
      synchronize();
      EXPECT_EQ(state(), host[at] * 3 + at);
    }
  }
}

// Another thread's work could come in between.
TEST_F(ByNode, NotWhileAnotherThreadLaunches) {
  const std::vector<CUgraphExec> execs = make_execs(kMany);
  std::uint64_t expected = state();
  launch(execs, at_random(3), expected);
  std::atomic<bool> launches{false}, stop{false};
  std::atomic<int> failures{0};
  const CUdeviceptr other = number(0);
  const CUfunction add = function("_Z10atomic_addPmm");
  std::thread thread([&] {
    if (cuCtxSetCurrent(context_) != CUDA_SUCCESS) ++failures;
    CUdeviceptr counter = other;
    std::uint64_t one = 1;
    void* parameters[] = {&counter, &one};
    do {
      if (cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, CU_STREAM_PER_THREAD, parameters, nullptr) != CUDA_SUCCESS)
        ++failures;
      launches = true;
      std::this_thread::yield();
    } while (!stop);
    if (cuStreamSynchronize(CU_STREAM_PER_THREAD) != CUDA_SUCCESS) ++failures;
  });
  while (!launches) std::this_thread::yield();
  const std::uint64_t before = launched_alone();
  launch(execs, at_random(4), expected);
  EXPECT_EQ(launched_alone(), before);
  stop = true;
  thread.join();
  // It is gone: what it did lies behind it.
  launch(execs, at_random(5), expected);
  synchronize();
  EXPECT_EQ(state(), expected);
  EXPECT_EQ(failures, 0);
  if (is_virtual()) {
    EXPECT_GT(launched_alone(), before);
  }
}

TEST_F(ByNode, ThreadsThatBeginWhileOneLaunches) {
  const std::vector<CUgraphExec> execs = make_execs(kMany);
  std::uint64_t expected = state();
  std::atomic<int> failures{0};
  const CUdeviceptr other = number(0);
  std::vector<std::thread> threads;
  for (unsigned round = 0; round < 20; ++round) {
    threads.push_back(add_one_elsewhere(other, failures));
    launch(execs, at_random(round), expected);
  }
  for (std::thread& thread : threads) thread.join();
  synchronize();
  EXPECT_EQ(state(), expected);
  EXPECT_EQ(read<std::uint64_t>(other), 20u);
  EXPECT_EQ(failures, 0);
}

// Nodes that the application disabled or changed, of graphs that are on no exec any more.
TEST_F(ByNode, WhatTheApplicationChanged) {
  std::vector<CUgraphNode> nodes;
  const CUgraph graph = make_graph(0, &nodes);
  CUgraphExec exec = nullptr;
  ASSERT_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  const std::vector<CUgraphExec> others = make_execs(kMany);
  ASSERT_CU(cuGraphNodeSetEnabled(exec, nodes[2], 0));
  std::uint64_t factor = 5, summand = 9;
  void* parameters[] = {&state_, &factor, &summand};
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = function("_Z3mixPmmm");
  params.gridDimX = params.gridDimY = params.gridDimZ = params.blockDimX = params.blockDimY = params.blockDimZ = 1;
  params.kernelParams = parameters;
  ASSERT_CU(cuGraphExecKernelNodeSetParams(exec, nodes[4], &params));
  std::uint64_t expected = state();
  for (unsigned round = 0; round < 3; ++round) {
    launch(others, at_random(round), expected);
    const std::uint32_t zero = 0;
    synchronize();
    ASSERT_CU(cuMemcpyHtoD(copies_ + 4, &zero, sizeof zero));
    ASSERT_CU(cuStreamSynchronize(nullptr));
    ASSERT_CU(cuGraphLaunch(exec, stream_));
    expected = expected * Graphs::factor(0) * factor + summand;
    synchronize();
    ASSERT_EQ(state(), expected);
    EXPECT_EQ(read<std::uint32_t>(copies_, 1), 0u);
  }
}

TEST_F(ByNode, OfOneThatWasDestroyed) {
  std::vector<CUgraphExec> execs = make_execs(kMany);
  std::uint64_t expected = state();
  launch(execs, at_random(2), expected);
  for (std::size_t i = 0; i < kMany; i += 2) ASSERT_CU(cuGraphExecDestroy(execs[i]));
  for (std::size_t i = 1; i < kMany; i += 2) launch(execs, {(i * 7) % kMany | 1}, expected);
  synchronize();
  EXPECT_EQ(state(), expected);
  EXPECT_RESULT(cuGraphLaunch(execs[0], stream_), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace grape::virtual_execs_test
