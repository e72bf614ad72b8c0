// Thousands of graphs on few execs: launched in any order they do what they do on execs of their own.
#include <algorithm>
#include <random>
#include <thread>

#include "tests/shim/virtual_execs/graphs.h"

namespace grape::virtual_execs_test {
namespace {

constexpr std::size_t kMany = 120;

class Launch : public Graphs {
 protected:
  void SetUp() override {
    Graphs::SetUp();
    launch_on_execs();
  }

  // Launches them one behind the other without waiting, and checks what came out, in the order that they ran in.
  void run(const std::vector<CUgraphExec>& execs, const std::vector<std::size_t>& order) {
    std::uint64_t expected = state();
    std::vector<std::uint32_t> copied(kCopies);
    for (const std::size_t i : order) {
      ASSERT_CU(cuGraphLaunch(execs[i], stream_));
      copied[i] = static_cast<std::uint32_t>(expected * factor(i));
      expected = step(i, expected);
    }
    synchronize();
    EXPECT_EQ(state(), expected);
    for (const std::size_t i : order) {
      ASSERT_EQ(read<std::uint32_t>(copies_, 2 * i), copied[i]) << i;
      ASSERT_EQ(read<std::uint32_t>(copies_, 2 * i + 1), 17 + i);
    }
  }
  static std::vector<std::size_t> in_order() {
    std::vector<std::size_t> order(kMany);
    for (std::size_t i = 0; i < kMany; ++i) order[i] = i;
    return order;
  }
};

TEST_F(Launch, InOrder) {
  const std::vector<CUgraphExec> execs = make_execs(kMany);
  for (int round = 0; round < 3; ++round) run(execs, in_order());
  EXPECT_LE(live(), is_virtual() ? kResident : kMany);
  EXPECT_GE(live(), is_virtual() ? 1 : kMany);
}

TEST_F(Launch, AtRandom) {
  const std::vector<CUgraphExec> execs = make_execs(kMany);
  std::vector<std::size_t> order = in_order();
  std::mt19937 random(7);
  for (int round = 0; round < 3; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    run(execs, order);
  }
  if (is_virtual()) {
    EXPECT_LE(live(), kResident);
  }
}

TEST_F(Launch, AnotherExecIsNotBuiltForEachLaunch) {
  const std::vector<CUgraphExec> execs = make_execs(kMany);
  run(execs, in_order());
  const std::uint64_t before = simcuda_calls("cuGraphInstantiateWithFlags");
  run(execs, in_order());
  EXPECT_EQ(simcuda_calls("cuGraphInstantiateWithFlags"), before);
}

// What follows is made ready after a launch: when it comes nothing is left to be set.
TEST_F(Launch, TheNextOneIsMadeReady) {
  const std::vector<CUgraphExec> execs = make_execs(kMany);
  // In the order in which they were made, backwards, and by a pattern that comes twice.
  std::vector<std::size_t> backwards = in_order(), pattern;
  std::reverse(backwards.begin(), backwards.end());
  for (std::size_t i = 0; i < 40; ++i) pattern.push_back(i * i * 7 % 83);
  for (const auto& order : {in_order(), backwards, pattern, pattern}) {
    run(execs, order);
  }
  if (!is_virtual()) {
    return;
  }
  // The launch itself finds its graph: a driver that refuses to change any exec is not asked to.
  for (std::size_t i = 110; i > 99; --i) ASSERT_CU(cuGraphLaunch(execs[i], stream_));
  synchronize();
  set_state(1);
  const std::uint64_t instantiated = simcuda_calls("cuGraphInstantiateWithFlags");
  simcuda_set_fault("cuGraphExecKernelNodeSetParams_v2", 0, CUDA_ERROR_NOT_SUPPORTED);
  simcuda_set_fault("cuGraphInstantiateWithFlags", 0, CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_CU(cuGraphLaunch(execs[99], stream_));
  synchronize();
  EXPECT_EQ(state(), step(99, 1));
  EXPECT_EQ(simcuda_calls("cuGraphInstantiateWithFlags"), instantiated);
}

TEST_F(Launch, OnlyWhatDiffersIsSet) {
  std::vector<CUgraphExec> execs = make_execs(4);
  for (const CUgraphExec exec : execs) ASSERT_CU(cuGraphLaunch(exec, stream_));
  // Twins of graph 0 but for their second kernel's parameters.
  for (std::uint64_t i = 0; i < 6; ++i) {
    CUgraph graph = nullptr;
    ASSERT_CU(cuGraphCreate(&graph, 0));
    CUgraphNode last = nullptr;
    for (std::uint64_t k = 0; k < 20; ++k) {
      const std::vector<CUgraphNode> after =
          last != nullptr ? std::vector<CUgraphNode>{last} : std::vector<CUgraphNode>{};
      if (k == 0) add_memset(graph, {}, copies_, 1);
      last = add_kernel(graph, after, function("_Z3mixPmmm"), state_, std::uint64_t{1}, k == 7 ? i : 0);
    }
    execs.push_back(exec_of(graph));
  }
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 4; i < execs.size(); ++i) ASSERT_CU(cuGraphLaunch(execs[i], stream_));
  }
  const std::uint64_t before = simcuda_calls("cuGraphExecKernelNodeSetParams_v2");
  for (std::size_t i = 4; i < execs.size(); ++i) ASSERT_CU(cuGraphLaunch(execs[i], stream_));
  synchronize();
  if (is_virtual()) {
    EXPECT_EQ(simcuda_calls("cuGraphExecKernelNodeSetParams_v2") - before, 6u);
  }
}

TEST_F(Launch, TheGraphOfAResidentExecIsLeftAlone) {
  const CUgraphExec exec = make_exec(3);
  const std::uint64_t before = live();
  for (int i = 0; i < 10; ++i) ASSERT_CU(cuGraphLaunch(exec, stream_));
  synchronize();
  EXPECT_EQ(live(), before);
  EXPECT_EQ(simcuda_calls("cuGraphLaunch"), 10u);
}

TEST_F(Launch, DestroyedInAnyOrder) {
  std::vector<CUgraphExec> execs = make_execs(kMany);
  std::vector<std::size_t> order = in_order();
  std::mt19937 random(11);
  std::shuffle(order.begin(), order.end(), random);
  std::uint64_t expected = state();
  for (std::size_t at = 0; at < order.size(); ++at) {
    const std::size_t launched = order[order.size() - 1 - at / 2];
    ASSERT_CU(cuGraphLaunch(execs[launched], stream_));
    expected = step(launched, expected);
    if (at % 2 == 0 && at / 2 < order.size() / 2) {
      ASSERT_CU(cuGraphExecDestroy(execs[order[at / 2]]));
    }
  }
  synchronize();
  EXPECT_EQ(state(), expected);
  for (std::size_t at = order.size() / 2; at < order.size(); ++at) ASSERT_CU(cuGraphExecDestroy(execs[order[at]]));
  EXPECT_EQ(live(), 0u);
}

TEST_F(Launch, ADestroyedHandleIsTheDriversError) {
  const CUgraphExec exec = make_exec(1), other = make_exec(2);
  ASSERT_CU(cuGraphExecDestroy(exec));
  EXPECT_RESULT(cuGraphExecDestroy(exec), CUDA_ERROR_INVALID_VALUE);
  EXPECT_RESULT(cuGraphLaunch(exec, stream_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_RESULT(cuGraphUpload(exec, stream_), CUDA_ERROR_INVALID_VALUE);
  cuuint64_t flags = 0;
  EXPECT_RESULT(cuGraphExecGetFlags(exec, &flags), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuGraphLaunch(other, stream_));
  synchronize();
}

TEST_F(Launch, AnUnknownHandleIsTheDriversError) {
  for (const std::uintptr_t handle : {std::uintptr_t{0}, std::uintptr_t{0x1238}, ~std::uintptr_t{7}}) {
    const auto exec = reinterpret_cast<CUgraphExec>(handle);
    EXPECT_RESULT(cuGraphLaunch(exec, stream_), CUDA_ERROR_INVALID_VALUE);
    EXPECT_RESULT(cuGraphExecDestroy(exec), CUDA_ERROR_INVALID_VALUE);
    EXPECT_RESULT(cuGraphUpload(exec, stream_), CUDA_ERROR_INVALID_VALUE);
  }
  EXPECT_RESULT(cuGraphLaunch(make_exec(0), reinterpret_cast<CUstream>(0x77)), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(Launch, ErrorsOfInstantiatingAreTheDrivers) {
  const auto untouched = reinterpret_cast<CUgraphExec>(0x99);
  CUgraphExec exec = untouched;
  EXPECT_RESULT(cuGraphInstantiateWithFlags(&exec, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(exec, untouched);
  const CUgraph graph = make_graph(0);
  EXPECT_RESULT(cuGraphInstantiateWithFlags(nullptr, graph, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_RESULT(cuGraphInstantiateWithFlags(&exec, graph, 1 << 20), CUDA_ERROR_INVALID_VALUE);
  simcuda_set_fault("cuGraphInstantiateWithFlags", 1, CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_RESULT(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(exec, untouched);
}

TEST_F(Launch, EveryWayOfInstantiating) {
  std::vector<CUgraphExec> execs(4);
  for (std::size_t i = 0; i < 4; ++i) {
    const CUgraph graph = make_graph(i);
    CUDA_GRAPH_INSTANTIATE_PARAMS params{};
    params.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
    params.hUploadStream = stream_;
    if (i == 0) {
      ASSERT_CU(cuGraphInstantiate(&execs[i], graph, 0));
    }
    if (i == 1) {
      ASSERT_CU(cuGraphInstantiateWithFlags(&execs[i], graph, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY));
    }
    if (i == 2) {
      ASSERT_CU(cuGraphInstantiateWithParams(&execs[i], graph, &params));
    }
    if (i == 3) {
      ASSERT_CU(cuGraphInstantiateWithFlags(&execs[i], graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    }
    ASSERT_CU(cuGraphDestroy(graph));
  }
  const std::vector<CUgraphExec> more = make_execs(4);
  for (int round = 0; round < 2; ++round) {
    std::uint64_t expected = state();
    for (std::size_t i = 0; i < 4; ++i) {
      ASSERT_CU(cuGraphUpload(execs[i], stream_));
      ASSERT_CU(cuGraphLaunch(execs[i], stream_));
      expected = step(i, expected);
    }
    synchronize();
    EXPECT_EQ(state(), expected);
  }
  const cuuint64_t flags[] = {0, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD,
                              CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH};
  for (std::size_t i = 0; i < 4; ++i) {
    cuuint64_t told = ~cuuint64_t{0};
    ASSERT_CU(cuGraphExecGetFlags(execs[i], &told));
    EXPECT_EQ(told, flags[i]);
  }
}

TEST_F(Launch, WithoutMemoryForAnExec) {
  const std::vector<CUgraphExec> execs = make_execs(8);
  if (!is_virtual()) return;
  // The first attempt fails, the next one, after room was made, does not.
  simcuda_set_fault("cuGraphInstantiateWithFlags", 1, CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_CU(cuGraphLaunch(execs[0], stream_));
  synchronize();
  EXPECT_EQ(state(), step(0, 1));
  ASSERT_CU(cuGraphExecDestroy(make_exec(9)));  // of the same kind, for the application itself
  for (int i = 0; i < 4; ++i) ASSERT_CU(cuGraphLaunch(execs[4 + i], stream_));
  synchronize();
  // Where there is none at all the driver says so, and no launch is half done.
  std::vector<CUgraphExec> kept = make_execs(3);  // no exec of ours fits into the budget beside these
  simcuda_set_fault("cuGraphInstantiateWithFlags", 0, CUDA_ERROR_OUT_OF_MEMORY);
  simcuda_set_fault("cuGraphExecKernelNodeSetParams_v2", 0, CUDA_ERROR_OUT_OF_MEMORY);
  set_state(5);
  EXPECT_RESULT(cuGraphLaunch(execs[2], stream_), CUDA_ERROR_OUT_OF_MEMORY);
  synchronize();
  EXPECT_EQ(state(), 5u);
  simcuda_reset();
  ASSERT_CU(cuGraphLaunch(execs[2], stream_));
  synchronize();
  EXPECT_EQ(state(), step(2, 5));
}

// The application's own allocations come first: execs that do not run make room for them.
TEST_F(Launch, AnAllocationThatFails) {
  const std::vector<CUgraphExec> execs = make_execs(4);
  const std::uint64_t before = live();
  CUdeviceptr made = 0;
  simcuda_set_fault("cuMemAlloc_v2", 1, CUDA_ERROR_OUT_OF_MEMORY);
  const CUresult result = cuMemAlloc(&made, 64);
  if (is_virtual()) {
    EXPECT_RESULT(result, CUDA_SUCCESS);
    EXPECT_EQ(live(), 0u);
  } else {
    EXPECT_RESULT(result, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(live(), before);
  }
  // Where there is nothing to give the error is the driver's.
  simcuda_set_fault("cuMemAlloc_v2", 1, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_RESULT(cuMemAlloc(&made, 64), CUDA_ERROR_OUT_OF_MEMORY);
  std::uint64_t expected = 1;
  for (std::size_t i = 0; i < 4; ++i) {
    ASSERT_CU(cuGraphLaunch(execs[i], stream_));
    expected = step(i, expected);
  }
  synchronize();
  EXPECT_EQ(state(), expected);
}

TEST_F(Launch, AFailureOfTheLaunchIsTheDrivers) {
  const std::vector<CUgraphExec> execs = make_execs(4);
  for (const CUgraphExec exec : execs) {
    simcuda_set_fault("cuGraphLaunch", 1, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    const std::uint64_t before = simcuda_calls("cuGraphLaunch");
    EXPECT_RESULT(cuGraphLaunch(exec, stream_), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    EXPECT_EQ(simcuda_calls("cuGraphLaunch"), before + 1);
    EXPECT_CU(cuGraphLaunch(exec, stream_));
  }
  synchronize();
}

}  // namespace
}  // namespace grape::virtual_execs_test
