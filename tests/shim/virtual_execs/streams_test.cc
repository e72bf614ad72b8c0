// Streams, threads and captures: graphs that share an exec are as independent of each other as those that do not.
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/shim/virtual_execs/graphs.h"

namespace grape::virtual_execs_test {
namespace {

// `GetParam()`: on execs only, or also node by node.
class Streams : public Graphs, public testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    Graphs::SetUp();
    if (GetParam()) launch_on_execs();
  }

  // One kernel that sleeps, and one that writes to a place of its own: all of one shape.
  CUgraphExec sleeper(unsigned microseconds, CUdeviceptr counter) {
    CUgraph graph = nullptr;
    EXPECT_CU(cuGraphCreate(&graph, 0));
    const CUgraphNode slept = add_kernel(graph, {}, function("_Z5delayj"), microseconds);
    add_kernel(graph, {slept}, function("_Z10atomic_addPmm"), counter, std::uint64_t{1});
    return exec_of(graph);
  }

  // With a node beside the others.
  CUgraphExec slow_fork(CUdeviceptr where, unsigned microseconds) {
    const CUgraph graph = make_slow_graph(where, microseconds);
    add_memset(graph, {}, copies_, 1);
    return exec_of(graph);
  }
};

TEST_P(Streams, AGraphDoesNotWaitForAnotherOneOnAnotherStream) {
  const CUdeviceptr counter = number(0);
  const CUstream other = stream();
  std::vector<CUgraphExec> execs;
  for (int i = 0; i < 12; ++i) execs.push_back(sleeper(i == 0 ? 400000 : 0, counter));
  // All execs of the shape were used on this stream, and the last of them runs on it.
  for (int i = 1; i < 6; ++i) ASSERT_CU(cuGraphLaunch(execs[i], stream_));
  ASSERT_CU(cuGraphLaunch(execs[0], stream_));
  for (int i = 6; i < 12; ++i) {
    ASSERT_CU(cuGraphLaunch(execs[i], other));
    ASSERT_CU(cuStreamSynchronize(other));
  }
  EXPECT_RESULT(cuStreamQuery(stream_), CUDA_ERROR_NOT_READY);
  synchronize();
  EXPECT_EQ(read<std::uint64_t>(counter), 12u);
}

TEST_P(Streams, NoWaitingInACircle) {
  // The second graph's stream goes on only after the first graph's, which waits for it.
  const CUdeviceptr counter = number(0);
  const CUstream other = stream();
  std::vector<CUgraphExec> execs;
  for (int i = 0; i < 8; ++i) execs.push_back(sleeper(0, counter));
  for (int i = 0; i < 8; ++i) ASSERT_CU(cuGraphLaunch(execs[i], stream_));
  synchronize();
  for (int i = 0; i < 7; ++i) {
    const CUstream third = stream();
    const CUevent done = event();
    ASSERT_CU(cuGraphLaunch(sleeper(20000, counter), third));
    ASSERT_CU(cuEventRecord(done, third));
    ASSERT_CU(cuStreamWaitEvent(stream_, done, 0));
    ASSERT_CU(cuGraphLaunch(execs[i], stream_));
    ASSERT_CU(cuGraphLaunch(execs[i + 1], other));
    ASSERT_CU(cuStreamSynchronize(other));
    synchronize();
  }
  EXPECT_EQ(read<std::uint64_t>(counter), 8u + 7 * 3);
}

TEST_P(Streams, AStreamThatIsDestroyedWhileAGraphRunsOnIt) {
  const CUdeviceptr counter = number(0);
  std::vector<CUgraphExec> execs;
  for (int i = 0; i < 30; ++i) execs.push_back(sleeper(i % 5 == 0 ? 20000 : 0, counter));
  std::vector<CUevent> ends;
  for (const CUgraphExec exec : execs) {
    const CUstream brief = stream();
    ASSERT_CU(cuGraphLaunch(exec, brief));
    ends.push_back(event());
    ASSERT_CU(cuEventRecord(ends.back(), brief));
    ASSERT_CU(cuStreamDestroy(brief));
  }
  for (const CUevent end : ends) ASSERT_CU(cuEventSynchronize(end));
  EXPECT_EQ(read<std::uint64_t>(counter), 30u);
}

// The driver gives a destroyed stream's handle to the next one: that is another place all the same.
TEST_P(Streams, AStreamThatHasTheHandleOfOneThatIsGone) {
  const CUdeviceptr counter = number(0);
  std::vector<CUgraphExec> execs;
  for (int i = 0; i < 12; ++i) execs.push_back(sleeper(i == 0 ? 400000 : 0, counter));
  const CUstream brief = stream();
  const CUevent end = event();
  for (const int i : {1, 2, 3, 0}) ASSERT_CU(cuGraphLaunch(execs[i], brief));
  ASSERT_CU(cuEventRecord(end, brief));
  ASSERT_CU(cuStreamDestroy(brief));
  const CUstream next = stream();
  for (int i = 4; i < 12; ++i) {
    ASSERT_CU(cuGraphLaunch(execs[i], next));
    ASSERT_CU(cuStreamSynchronize(next));
  }
  EXPECT_RESULT(cuEventQuery(end), CUDA_ERROR_NOT_READY);
  ASSERT_CU(cuEventSynchronize(end));
  EXPECT_EQ(read<std::uint64_t>(counter), 12u);
}

// The driver's launches of one exec follow each other on any streams; so do a graph's whose exec another graph has got.
TEST_P(Streams, LaunchesOfOneGraphFollowEachOther) {
  const CUdeviceptr others = number(1);
  const CUstream other = stream();
  std::vector<CUgraphExec> execs;
  for (int i = 0; i < 8; ++i) execs.push_back(slow_fork(i == 0 ? state_ : others, 20000));
  std::uint64_t expected = state();
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 8; ++i) {
      ASSERT_CU(cuGraphLaunch(execs[i], stream_));
      if (i % 3 == 0) synchronize();
    }
    synchronize();
    for (int i = 0; i < 4; ++i) ASSERT_CU(cuGraphLaunch(execs[i], stream_));
    ASSERT_CU(cuGraphLaunch(execs[0], other));
    synchronize();
    ASSERT_CU(cuStreamSynchronize(other));
    for (int i = 0; i < 3; ++i) expected = slowly(expected);
    ASSERT_EQ(state(), expected) << round;
  }
}

TEST_P(Streams, DefaultStreams) {
  const std::vector<CUgraphExec> execs = make_execs(10);
  std::uint64_t expected = state();
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < execs.size(); ++i) {
      ASSERT_CU(cuGraphLaunch(execs[i], round == 0 ? nullptr : CU_STREAM_PER_THREAD));
      expected = step(i, expected);
    }
    ASSERT_CU(cuCtxSynchronize());
  }
  EXPECT_EQ(state(), expected);
}

// Each thread has graphs of its own; they share the execs.
TEST_P(Streams, ThreadsWithGraphsOfTheirOwn) {
  constexpr std::size_t kThreads = 4, kEach = 12, kRounds = 60;
  std::vector<CUdeviceptr> states;
  std::vector<std::vector<CUgraphExec>> execs(kThreads);
  for (std::size_t t = 0; t < kThreads; ++t) {
    states.push_back(number(1));
    state_ = states.back();
    copies_ = floats(2 * kCopies);
    execs[t] = make_execs(kEach);
  }
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      CUstream own = nullptr;
      if (cuCtxSetCurrent(context_) != CUDA_SUCCESS || cuStreamCreate(&own, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
        ++failures;
      }
      for (std::size_t i = 0; i < kRounds; ++i) {
        const CUstream place = t % 2 == 0 ? own : CU_STREAM_PER_THREAD;
        if (cuGraphLaunch(execs[t][(i * (t + 1)) % kEach], place) != CUDA_SUCCESS) ++failures;
      }
      if (cuStreamSynchronize(t % 2 == 0 ? own : CU_STREAM_PER_THREAD) != CUDA_SUCCESS) ++failures;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  for (std::size_t t = 0; t < kThreads; ++t) {
    std::uint64_t expected = 1;
    for (std::size_t i = 0; i < kRounds; ++i) expected = step((i * (t + 1)) % kEach, expected);
    EXPECT_EQ(read<std::uint64_t>(states[t]), expected) << t;
  }
}

// One thread makes and destroys graphs while others launch theirs.
TEST_P(Streams, MadeAndDestroyedMeanwhile) {
  const std::vector<CUgraphExec> execs = make_execs(8);
  std::atomic<bool> stop{false};
  std::atomic<int> failures{0};
  const CUdeviceptr other = number(0);
  std::thread maker([&] {
    if (cuCtxSetCurrent(context_) != CUDA_SUCCESS) ++failures;
    while (!stop) {
      CUgraph graph = nullptr;
      CUgraphExec exec = nullptr;
      if (cuGraphCreate(&graph, 0) != CUDA_SUCCESS) ++failures;
      add_kernel(graph, {}, function("_Z10atomic_addPmm"), other, std::uint64_t{1});
      if (cuGraphInstantiateWithFlags(&exec, graph, 0) != CUDA_SUCCESS || cuGraphDestroy(graph) != CUDA_SUCCESS ||
          cuGraphExecDestroy(exec) != CUDA_SUCCESS) {
        ++failures;
      }
    }
  });
  std::uint64_t expected = state();
  for (std::size_t i = 0; i < 400; ++i) {
    ASSERT_CU(cuGraphLaunch(execs[i * 3 % execs.size()], stream_));
    expected = step(i * 3 % execs.size(), expected);
  }
  synchronize();
  stop = true;
  maker.join();
  EXPECT_EQ(state(), expected);
  EXPECT_EQ(failures, 0);
}

TEST_P(Streams, ALaunchThatIsCapturedBecomesAChild) {
  const std::vector<CUgraphExec> execs = make_execs(8);
  for (int i = 0; i < 8; ++i) ASSERT_CU(cuGraphLaunch(execs[i], stream_));
  synchronize();
  set_state(1);
  CUgraph graph = nullptr;
  ASSERT_CU(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  // The last ones first: they are on execs that were made for others.
  for (int i = 7; i >= 0; --i) ASSERT_CU(cuGraphLaunch(execs[i], stream_));
  ASSERT_CU(cuStreamEndCapture(stream_, &graph));
  std::size_t count = 0;
  ASSERT_CU(cuGraphGetNodes(graph, nullptr, &count));
  EXPECT_EQ(count, 8u);
  EXPECT_EQ(state(), 1u);
  CUgraphExec all = nullptr;
  ASSERT_CU(cuGraphInstantiateWithFlags(&all, graph, 0));
  ASSERT_CU(cuGraphDestroy(graph));
  for (const CUgraphExec exec : execs) ASSERT_CU(cuGraphExecDestroy(exec));
  ASSERT_CU(cuGraphLaunch(all, stream_));
  synchronize();
  std::uint64_t expected = 1;
  for (std::size_t i = 8; i > 0; --i) expected = step(i - 1, expected);
  EXPECT_EQ(state(), expected);
}

// For the captured launch it may get another exec, while the one that it had still runs it.
TEST_P(Streams, LaunchesBesideACapturedOneFollowEachOther) {
  const CUdeviceptr others = number(1);
  const CUstream second = stream(), third = stream();
  std::vector<CUgraphExec> execs;
  for (int i = 0; i < 8; ++i) execs.push_back(slow_fork(i == 5 ? state_ : others, i == 5 ? 50000 : 1000));
  for (int i = 0; i < 16; ++i) {
    ASSERT_CU(cuGraphLaunch(execs[i % 8], stream_));
    synchronize();
  }
  set_state(1);
  ASSERT_CU(cuGraphLaunch(execs[5], stream_));
  CUgraph graph = nullptr;
  ASSERT_CU(cuStreamBeginCapture(second, CU_STREAM_CAPTURE_MODE_RELAXED));
  ASSERT_CU(cuGraphLaunch(execs[5], second));
  ASSERT_CU(cuStreamEndCapture(second, &graph));
  ASSERT_CU(cuGraphLaunch(execs[5], third));
  ASSERT_CU(cuStreamSynchronize(third));
  synchronize();
  EXPECT_EQ(state(), 2u * (2 * 1 + 4) + 4);
  ASSERT_CU(cuGraphDestroy(graph));
}

// To ask about the default stream while another one is captured is an error, and ends the capture.
TEST_P(Streams, GraphsOnTheDefaultStreamBesideACapture) {
  const std::vector<CUgraphExec> execs = make_execs(12);
  for (int i = 0; i < 8; ++i) ASSERT_CU(cuGraphLaunch(execs[i], nullptr));
  ASSERT_CU(cuCtxSynchronize());
  set_state(1);
  const CUstream blocking = stream(CU_STREAM_DEFAULT);
  CUgraph graph = nullptr;
  ASSERT_CU(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASSERT_CU(launch("_Z10atomic_addPmm", blocking, copies_, std::uint64_t{1}));
  std::uint64_t expected = 1;
  for (std::size_t i = 0; i < 12; ++i) {
    ASSERT_CU(cuGraphLaunch(execs[i], stream_));
    expected = step(i, expected);
  }
  ASSERT_CU(cuStreamEndCapture(blocking, &graph));
  synchronize();
  EXPECT_EQ(state(), expected);
  ASSERT_CU(cuGraphDestroy(graph));
}

TEST_P(Streams, LaunchesBesideACaptureDoNotDisturbIt) {
  const std::vector<CUgraphExec> execs = make_execs(8);
  const CUstream other = stream();
  CUgraph graph = nullptr;
  ASSERT_CU(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_RELAXED));
  ASSERT_CU(launch("_Z10atomic_addPmm", other, state_, std::uint64_t{1}));
  std::uint64_t expected = 1;
  for (int i = 0; i < 8; ++i) {
    ASSERT_CU(cuGraphLaunch(execs[i], stream_));
    expected = step(i, expected);
  }
  ASSERT_CU(cuStreamEndCapture(other, &graph));
  synchronize();
  EXPECT_EQ(state(), expected);
  ASSERT_CU(cuGraphDestroy(graph));
}

INSTANTIATE_TEST_SUITE_P(Graphs, Streams, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& kind) { return kind.param ? "OnExecs" : "ByNode"; });

}  // namespace
}  // namespace grape::virtual_execs_test
