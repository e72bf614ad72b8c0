// Graphs whose nodes run side by side, launched node by node on several streams: they do what they did, in the order
// that their edges and the application's streams demand.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "tests/shim/virtual_execs/graphs.h"

namespace grape::virtual_execs_test {
namespace {

constexpr std::size_t kMany = 60, kBranches = 5, kKernels = 2 * kBranches + 3;  // of a graph

class Forks : public Graphs {
 protected:
  void SetUp() override {
    Graphs::SetUp();
    slots_ = floats(2 * kBranches);
    out_ = floats(2 * kBranches * kMany);
    ASSERT_CU(cuStreamSynchronize(nullptr));
  }

  CUdeviceptr slot(std::size_t branch) const { return slots_ + 8 * branch; }
  CUdeviceptr out(std::size_t i) const { return out_ + 8 * kBranches * i; }

  // After a while state = state * factor(i), unless all branches are to begin at once. In each branch, after another
  // while, what state is then comes into a slot and is changed there. All slots are copied to out(i), and state = state
  // + i. `longer`: so many nodes more, for another shape. `nodes`: those that it has, branch by branch.
  CUgraph make_fork(std::size_t i, bool with_root = true, unsigned longer = 0,
                    std::vector<CUgraphNode>* nodes = nullptr) {
    CUgraph graph = nullptr;
    EXPECT_CU(cuGraphCreate(&graph, 0));
    const CUfunction mix = function("_Z3mixPmmm");
    std::vector<CUgraphNode> root, ends, all;
    if (with_root) {
      all.push_back(add_kernel(graph, {}, function("_Z5delayj"), 1500U));
      all.push_back(add_kernel(graph, {all.back()}, mix, state_, factor(i), std::uint64_t{0}));
      root.push_back(all.back());
    }
    for (std::size_t branch = 0; branch < kBranches; ++branch) {
      const auto microseconds = static_cast<unsigned>((2 * branch + i) % kBranches * 300);
      all.push_back(add_kernel(graph, root, function("_Z5delayj"), microseconds));
      all.push_back(add_copy(graph, {all.back()}, slot(branch), state_, 8));
      all.push_back(add_kernel(graph, {all.back()}, mix, slot(branch), std::uint64_t{branch + 2}, std::uint64_t{i}));
      ends.push_back(all.back());
    }
    all.push_back(add_copy(graph, ends, out(i), slots_, 8 * kBranches));
    all.push_back(add_kernel(graph, {all.back()}, function("_Z10atomic_addPmm"), state_, std::uint64_t{i}));
    for (unsigned k = 0; k < longer; ++k) all.push_back(add_kernel(graph, {all.back()}, function("_Z7nothingv")));
    if (nodes != nullptr) *nodes = all;
    return graph;
  }

  std::vector<CUgraphExec> make_forks(std::size_t count) {
    std::vector<CUgraphExec> execs;
    for (std::size_t i = 0; i < count; ++i) execs.push_back(exec_of(make_fork(i)));
    return execs;
  }

  // What the graph at i does, to what there should be.
  void model(std::size_t i, bool with_root = true) {
    if (with_root) expected_ *= factor(i);
    for (std::size_t branch = 0; branch < kBranches; ++branch) expected_out_[i][branch] = expected_ * (branch + 2) + i;
    expected_ += i;
  }
  void launch_fork(CUgraphExec exec, std::size_t i, CUstream where) {
    ASSERT_CU(cuGraphLaunch(exec, where));
    model(i);
  }
  void expect_all() {
    ASSERT_CU(cuCtxSynchronize());
    ASSERT_EQ(state(), expected_);
    std::array<std::array<std::uint64_t, kBranches>, kMany> there{};
    ASSERT_CU(cuMemcpyDtoH(&there, out_, sizeof there));
    ASSERT_EQ(there, expected_out_);
  }

  // For graphs that are made from now on.
  void move_elsewhere() {
    state_ = number(1);
    slots_ = floats(2 * kBranches);
    out_ = floats(2 * kBranches * kMany);
    ASSERT_CU(cuStreamSynchronize(nullptr));
  }

  // What is behind it in the stream waits until the host opens it.
  CUdeviceptr close_gate(CUstream where) {
    const CUdeviceptr gate = number(0);
    EXPECT_CU(cuStreamWaitValue64(where, gate, 1, CU_STREAM_WAIT_VALUE_GEQ));
    return gate;
  }
  void open(CUdeviceptr gate) {
    const std::uint64_t one = 1;
    ASSERT_CU(cuMemcpyHtoD(gate, &one, sizeof one));
  }
  static bool ends_soon(CUstream where) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    CUresult result = CUDA_ERROR_NOT_READY;
    while (result == CUDA_ERROR_NOT_READY && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
      result = cuStreamQuery(where);
    }
    return result == CUDA_SUCCESS;
  }

  CUdeviceptr slots_ = 0, out_ = 0;
  std::uint64_t expected_ = 1;
  std::array<std::array<std::uint64_t, kBranches>, kMany> expected_out_{};
};

TEST_F(Forks, GraphsInAnyOrder) {
  const std::vector<CUgraphExec> execs = make_forks(kMany);
  std::vector<std::size_t> order(kMany);
  for (std::size_t i = 0; i < kMany; ++i) order[i] = i;
  std::mt19937 random(3);
  const std::uint64_t built = simcuda_calls("cuGraphInstantiateWithFlags"), before = launched_alone();
  for (int round = 0; round < 3; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order) launch_fork(execs[i], i, stream_);
    expect_all();
  }
  EXPECT_EQ(simcuda_calls("cuGraphInstantiateWithFlags"), built);
  if (is_virtual()) {
    EXPECT_GE(launched_alone() - before, (3 * kMany - 4) * kKernels);
    EXPECT_EQ(simcuda_calls("cuStreamCreate"), 1 + kBranches - 1) << "the same streams for all";
  }
}

// Each of sixteen kernels waits for the others.
TEST_F(Forks, BranchesRunSideBySide) {
  constexpr std::uint64_t kWide = 16;
  if (!is_virtual()) return;  // the simulated driver's own graphs run one node after the other
  const CUdeviceptr met = number(0);
  CUgraph graph = nullptr;
  ASSERT_CU(cuGraphCreate(&graph, 0));
  for (std::uint64_t branch = 0; branch < kWide; ++branch) {
    const CUgraphNode first = add_kernel(graph, {}, function("_Z7nothingv"));
    const CUgraphNode second = add_kernel(graph, {first}, function("_Z4meetPmm"), met, kWide);
    add_kernel(graph, {second}, function("_Z10atomic_addPmm"), state_, std::uint64_t{1});
  }
  const CUgraphExec exec = exec_of(graph);
  free_execs();
  for (std::uint64_t round = 1; round <= 3; ++round) {
    ASSERT_CU(cuMemsetD32Async(met, 0, 2, stream_));
    ASSERT_CU(cuGraphLaunch(exec, stream_));
    ASSERT_CU(cuStreamSynchronize(stream_));
    EXPECT_EQ(state(), 1 + kWide * round);
  }
  EXPECT_EQ(launched_alone(), 3 * 3 * kWide);
}

TEST_F(Forks, AllOfAGraphIsBehindWhatItsStreamHadBefore) {
  const CUstream blocking = stream(CU_STREAM_DEFAULT), other = stream(CU_STREAM_DEFAULT);
  std::size_t i = 0;
  // On the default stream what others had before counts, too.
  for (const auto& [where, place] : {std::pair{stream_, stream_},
                                     {blocking, blocking},
                                     {CUstream{}, CUstream{}},
                                     {CUstream{}, other},
                                     {CU_STREAM_PER_THREAD, CU_STREAM_PER_THREAD},
                                     {other, CUstream{}}}) {
    for (int round = 0; round < 2; ++round, ++i) {
      const bool with_root = round == 0;
      const CUgraphExec exec = exec_of(make_fork(i, with_root));
      free_execs();
      const std::uint64_t before = launched_alone();
      ASSERT_CU(launch("_Z5delayj", place, 20000U));
      ASSERT_CU(launch("_Z3mixPmmm", place, state_, std::uint64_t{3}, std::uint64_t{1}));
      expected_ = expected_ * 3 + 1;
      ASSERT_CU(cuGraphLaunch(exec, where));
      model(i, with_root);
      ASSERT_CU(launch("_Z3mixPmmm", place, state_, std::uint64_t{5}, std::uint64_t{2}));
      expected_ = expected_ * 5 + 2;
      ASSERT_CU(cuMemsetD32Async(slots_, 77, 2 * kBranches, place));
      expect_all();
      ASSERT_EQ(read<std::uint32_t>(slots_), 77u);
      if (is_virtual()) {
        EXPECT_GT(launched_alone(), before);
      }
    }
  }
}

// As the driver's launches of one exec do.
TEST_F(Forks, LaunchesOfOneGraphIntoSeveralStreamsFollowEachOther) {
  const CUgraphExec exec = exec_of(make_fork(1));
  const CUstream streams[] = {stream_, stream(), nullptr, CU_STREAM_PER_THREAD, stream(CU_STREAM_DEFAULT)};
  for (int i = 0; i < 40; ++i) {
    if (i % 4 == 0) free_execs();
    launch_fork(exec, 1, streams[i % 5]);
    if (i % 7 == 0) {
      ASSERT_CU(cuCtxSynchronize());
    }
  }
  expect_all();
}

// Not even where it would need the streams that the other one has.
TEST_F(Forks, AGraphDoesNotWaitForAnotherOneOnAnotherStream) {
  const CUgraphExec first = exec_of(make_fork(2));
  move_elsewhere();
  const CUgraphExec second = exec_of(make_fork(9));
  const CUstream other = stream();
  free_execs();
  const CUdeviceptr gate = close_gate(stream_);
  const std::uint64_t before = launched_alone();
  ASSERT_CU(cuGraphLaunch(first, stream_));
  const std::uint64_t between = launched_alone();
  ASSERT_CU(cuGraphLaunch(second, other));
  EXPECT_EQ(launched_alone(), between);
  EXPECT_TRUE(ends_soon(other));
  EXPECT_EQ(state(), factor(9) + 9);
  EXPECT_RESULT(cuStreamQuery(stream_), CUDA_ERROR_NOT_READY);
  open(gate);
  synchronize();
  free_execs();
  ASSERT_CU(cuGraphLaunch(second, other));
  ASSERT_CU(cuStreamSynchronize(other));
  EXPECT_EQ(state(), (factor(9) + 9) * factor(9) + 9);
  if (is_virtual()) {
    EXPECT_GT(between, before);
    EXPECT_EQ(launched_alone() - between, between - before);
  }
}

TEST_F(Forks, NorForOneThatTheDriverRefused) {
  // A node that is disabled, and one on another stream that is refused: that stream waits for what lies before all.
  std::vector<CUgraphNode> nodes;
  const CUgraph graph = make_fork(2, false, 1, &nodes);
  CUgraphExec first = nullptr;
  ASSERT_CU(cuGraphInstantiateWithFlags(&first, graph, 0));
  ASSERT_CU(cuGraphNodeSetEnabled(first, nodes[0], 0));
  move_elsewhere();
  const CUgraphExec second = exec_of(make_fork(9));
  const CUstream other = stream();
  free_execs();
  const CUdeviceptr gate = close_gate(stream_);
  simcuda_set_fault("cuLaunchKernelEx", 0, CUDA_ERROR_NOT_SUPPORTED);
  ASSERT_CU(cuGraphLaunch(first, stream_));
  simcuda_reset();
  ASSERT_CU(cuGraphLaunch(second, other));
  EXPECT_TRUE(ends_soon(other));
  EXPECT_EQ(state(), factor(9) + 9);
  open(gate);
  synchronize();
  // What the driver refuses at once is not tried again.
  free_execs();
  simcuda_reset();
  ASSERT_CU(cuGraphLaunch(first, stream_));
  synchronize();
  EXPECT_EQ(launched_alone(), 0u);
}

// Wherever the driver fails: all of it is done, once, and in order.
TEST_F(Forks, WhatFailsIsEndedOnAnExec) {
  std::size_t i = 0;
  unsigned shape = 0;
  const auto attempt = [&](const char* text) {
    SCOPED_TRACE(text);
    i %= kMany;
    const CUgraphExec exec = exec_of(make_fork(i, true, ++shape));
    free_execs();
    ASSERT_EQ(simcuda_set_faults(text), 0);
    launch_fork(exec, i, stream_);
    simcuda_reset();
    expect_all();
    ASSERT_CU(cuGraphExecDestroy(exec));
  };
  // With each branch as the one that takes longest.
  for (std::size_t at = 0; at < 14 * kBranches; ++at) {
    for (const char* symbol : {"cuLaunchKernelEx", "cuStreamWaitEvent", "cuEventRecord", "cuMemcpy3DAsync_v2"}) {
      attempt((std::string(symbol) + ":" + std::to_string(1 + at / kBranches) + ":701").c_str());
      if (HasFatalFailure()) return;
    }
    ++i;
  }
  // And where streams cannot be joined by events either.
  for (int at = 1; at <= 12; ++at) {
    const std::string kernel = "cuLaunchKernelEx:" + std::to_string(at) + ":701,";
    for (int event = 1; event <= 8; ++event) {
      attempt((kernel + "cuEventRecord:" + std::to_string(event) + ":701").c_str());
      attempt((kernel + "cuStreamWaitEvent:" + std::to_string(event) + ":701").c_str());
      if (HasFatalFailure()) return;
      ++i;
    }
  }
}

// Then there is nothing left for an exec.
TEST_F(Forks, WhatFailsBehindAllNodes) {
  CUgraph graph = nullptr;
  ASSERT_CU(cuGraphCreate(&graph, 0));
  for (std::uint64_t branch = 0; branch < 3; ++branch) {
    const CUgraphNode slept = add_kernel(graph, {}, function("_Z5delayj"), static_cast<unsigned>(branch * 5000));
    const CUgraphNode next = add_kernel(graph, {slept}, function("_Z7nothingv"));
    add_kernel(graph, {next}, function("_Z10atomic_addPmm"), state_, std::uint64_t{1});
  }
  const CUgraphExec exec = exec_of(graph);
  for (const char* fault : {"cuStreamWaitEvent:3:701", "cuStreamWaitEvent:4:701", "cuEventRecord:3:701"}) {
    free_execs();
    set_state(0);
    const std::uint64_t built = simcuda_calls("cuGraphInstantiateWithFlags"), before = launched_alone();
    ASSERT_EQ(simcuda_set_faults(fault), 0);
    ASSERT_CU(cuGraphLaunch(exec, stream_));
    ASSERT_CU(launch("_Z3mixPmmm", stream_, state_, std::uint64_t{10}, std::uint64_t{0}));
    EXPECT_EQ(simcuda_calls("cuGraphInstantiateWithFlags"), built) << fault;
    EXPECT_EQ(launched_alone() - before, is_virtual() ? 9u : 0u) << fault;
    simcuda_reset();
    synchronize();
    EXPECT_EQ(state(), 30u) << fault;
  }
}

TEST_F(Forks, WithoutStreamsOrEvents) {
  const std::vector<CUgraphExec> execs = make_forks(8);
  std::size_t i = 0;
  free_execs();
  const std::uint64_t before = launched_alone();
  for (const char* symbol : {"cuStreamCreate", "cuEventCreate"}) {
    for (std::uint64_t at = 1; at <= 3; ++at, ++i) {
      simcuda_set_fault(symbol, at, CUDA_ERROR_OUT_OF_MEMORY);
      launch_fork(execs[i], i, stream_);
      expect_all();
      EXPECT_EQ(launched_alone(), before) << symbol << at;
      free_execs();
    }
  }
  simcuda_reset();
  launch_fork(execs[i], i, stream_);
  expect_all();
  if (is_virtual()) {
    EXPECT_GT(launched_alone(), 0u);
  }
}

// Streams of Grape's have none.
TEST_F(Forks, AStreamWithAPriorityOfItsOwn) {
  const CUgraphExec exec = exec_of(make_fork(1));
  CUstream urgent = nullptr;
  ASSERT_CU(cuStreamCreateWithPriority(&urgent, CU_STREAM_NON_BLOCKING, -1));
  free_execs();
  const std::uint64_t before = launched_alone();
  launch_fork(exec, 1, urgent);
  expect_all();
  EXPECT_EQ(launched_alone(), before);
}

TEST_F(Forks, TheContextIsReset) {
  for (int round = 0; round < 3; ++round) {
    expected_ = 1;
    expected_out_ = {};
    const std::vector<CUgraphExec> execs = make_forks(4);
    free_execs();
    const std::uint64_t before = launched_alone();
    for (std::size_t i = 0; i < 4; ++i) launch_fork(execs[i], i, stream_);
    expect_all();
    if (is_virtual()) {
      EXPECT_EQ(launched_alone() - before, 4 * kKernels);
    }
    ASSERT_CU(cuDevicePrimaryCtxReset_v2(0));
    for (const CUgraphExec exec : execs) EXPECT_CU(cuGraphExecDestroy(exec));
    ASSERT_CU(cuDevicePrimaryCtxRetain(&context_, 0));
    ASSERT_CU(cuCtxSetCurrent(context_));
    ASSERT_CU(cuModuleLoadData(&module_, simcuda_test::kImage));
    // Handles come again: these are the application's now.
    std::vector<CUstream> streams;
    for (int i = 0; i < 8; ++i) streams.push_back(stream());
    stream_ = streams[static_cast<std::size_t>(round)];
    move_elsewhere();
  }
}

TEST_F(Forks, BesideACapture) {
  const std::vector<CUgraphExec> execs = make_forks(6);
  const CUstream other = stream();
  free_execs();
  CUgraph graph = nullptr;
  const std::uint64_t before = launched_alone();
  ASSERT_CU(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASSERT_CU(launch("_Z10atomic_addPmm", other, state_, std::uint64_t{1}));
  for (std::size_t i = 0; i < 6; ++i) launch_fork(execs[i], i, stream_);
  ASSERT_CU(cuStreamEndCapture(other, &graph));
  expect_all();
  std::size_t nodes = 0;
  ASSERT_CU(cuGraphGetNodes(graph, nullptr, &nodes));
  EXPECT_EQ(nodes, 1u);
  ASSERT_CU(cuGraphDestroy(graph));
  if (is_virtual()) {
    EXPECT_EQ(launched_alone() - before, 6 * kKernels);
  }
}

TEST_F(Forks, ALaunchThatIsCaptured) {
  const std::vector<CUgraphExec> execs = make_forks(6);
  for (std::size_t i = 0; i < 6; ++i) launch_fork(execs[i], i, stream_);
  expect_all();
  const std::uint64_t before = launched_alone();
  CUgraph graph = nullptr;
  ASSERT_CU(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  for (const std::size_t i : {2, 5}) launch_fork(execs[i], i, stream_);
  ASSERT_CU(cuStreamEndCapture(stream_, &graph));
  EXPECT_EQ(launched_alone(), before);
  std::size_t nodes = 0;
  ASSERT_CU(cuGraphGetNodes(graph, nullptr, &nodes));
  EXPECT_EQ(nodes, 2u);
  ASSERT_CU(cuGraphLaunch(exec_of(graph), stream_));
  expect_all();
}

// Their edges hold all the same: what follows a disabled node comes behind what is before it.
TEST_F(Forks, DisabledNodes) {
  CUgraph graph = nullptr;
  ASSERT_CU(cuGraphCreate(&graph, 0));
  const CUfunction mix = function("_Z3mixPmmm");
  std::vector<CUgraphNode> ends;
  for (std::uint64_t branch = 0; branch < kBranches; ++branch) {
    const CUgraphNode slept = add_kernel(graph, {}, function("_Z5delayj"), static_cast<unsigned>(branch * 3000));
    ends.push_back(add_kernel(graph, {slept}, mix, slot(branch), std::uint64_t{1}, branch + 1));
    ends.back() = add_kernel(graph, {ends.back()}, function("_Z7nothingv"));
  }
  const CUgraphNode joined = add_kernel(graph, ends, mix, state_, std::uint64_t{0}, std::uint64_t{99});
  add_copy(graph, {joined}, out(0), slots_, 8 * kBranches);
  add_copy(graph, {joined}, out(1), slots_, 8 * kBranches);
  CUgraphExec exec = nullptr;
  ASSERT_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  ASSERT_CU(cuGraphNodeSetEnabled(exec, joined, 0));
  ASSERT_CU(cuGraphNodeSetEnabled(exec, ends[1], 0));
  free_execs();
  const std::uint64_t before = launched_alone();
  for (std::uint64_t round = 1; round <= 3; ++round) {
    ASSERT_CU(cuGraphLaunch(exec, stream_));
    for (std::uint64_t branch = 0; branch < kBranches; ++branch) {
      expected_out_[0][branch] = expected_out_[1][branch] = (branch + 1) * round;
    }
    expect_all();
  }
  if (is_virtual()) {
    EXPECT_EQ(launched_alone() - before, 3 * (3 * kBranches - 1));
  }
}

TEST_F(Forks, ThreadsThatBeginWhileOneLaunches) {
  const std::vector<CUgraphExec> execs = make_forks(kMany);
  const CUdeviceptr other = number(0);
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (std::size_t round = 0; round < 10; ++round) {
    threads.push_back(add_one_elsewhere(other, failures));
    for (std::size_t i = round; i < kMany; i += 7) launch_fork(execs[i], i, stream_);
  }
  for (std::thread& thread : threads) thread.join();
  expect_all();
  EXPECT_EQ(read<std::uint64_t>(other), 10u);
  EXPECT_EQ(failures, 0);
}

// More branches than a launch by node has streams, with too little in each of them.
TEST_F(Forks, ManySmallBranchesAreLeftToExecs) {
  CUgraph graph = nullptr;
  ASSERT_CU(cuGraphCreate(&graph, 0));
  for (int branch = 0; branch < 20; ++branch) {
    add_kernel(graph, {}, function("_Z10atomic_addPmm"), state_, std::uint64_t{1});
  }
  const CUgraphExec exec = exec_of(graph);
  free_execs();
  const std::uint64_t before = launched_alone();
  ASSERT_CU(cuGraphLaunch(exec, stream_));
  synchronize();
  EXPECT_EQ(state(), 21u);
  EXPECT_EQ(launched_alone(), before);
}

}  // namespace
}  // namespace grape::virtual_execs_test
