// What graphs are made of goes: contexts, modules, the process.
#include <sys/wait.h>
#include <unistd.h>

#include "tests/shim/virtual_execs/graphs.h"

namespace grape::virtual_execs_test {
namespace {

class Life : public Graphs {
 protected:
  void SetUp() override {
    Graphs::SetUp();
    launch_on_execs();
  }
};

TEST_F(Life, TheContextIsReset) {
  const std::vector<CUgraphExec> execs = make_execs(6);
  for (const CUgraphExec exec : execs) ASSERT_CU(cuGraphLaunch(exec, stream_));
  synchronize();
  const std::uint64_t destroyed = simcuda_calls("cuGraphExecDestroy");
  ASSERT_CU(cuDevicePrimaryCtxReset_v2(0));
  EXPECT_EQ(simcuda_calls("cuGraphExecDestroy"), destroyed);  // its execs went with it
  ASSERT_CU(cuDevicePrimaryCtxRetain(&context_, 0));
  ASSERT_CU(cuCtxSetCurrent(context_));
  ASSERT_CU(cuModuleLoadData(&module_, simcuda_test::kImage));
  state_ = number(1);
  copies_ = floats(2 * kCopies);
  stream_ = stream();
  for (const CUgraphExec exec : execs) {
    if (is_virtual()) {
      EXPECT_RESULT(cuGraphLaunch(exec, stream_), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    }
    EXPECT_CU(cuGraphExecDestroy(exec));
  }
  EXPECT_EQ(state(), 1u);
  // And all goes on in the new one.
  const std::vector<CUgraphExec> more = make_execs(6);
  expect_steps(more, 12);
  const std::uint64_t before = simcuda_calls("cuGraphExecDestroy");
  for (const CUgraphExec exec : more) EXPECT_CU(cuGraphExecDestroy(exec));
  // Nothing is kept for graphs of the context that is gone, which had the same handle.
  if (is_virtual()) {
    EXPECT_EQ(simcuda_calls("cuGraphExecDestroy") - before, kResident);
  }
}

TEST_F(Life, AContextOfItsOwnIsDestroyed) {
  const std::vector<CUgraphExec> execs = make_execs(4);
  CUcontext own = nullptr;
  CUmodule module = nullptr;
  ASSERT_CU(cuCtxCreate(&own, nullptr, 0, 0));
  ASSERT_CU(cuModuleLoadData(&module, simcuda_test::kImage));
  CUfunction add = nullptr;
  ASSERT_CU(cuModuleGetFunction(&add, module, "_Z10atomic_addPmm"));
  std::vector<CUgraphExec> others;
  const CUdeviceptr counter = number(0);
  for (std::uint64_t i = 0; i < 6; ++i) {
    CUgraph graph = nullptr;
    ASSERT_CU(cuGraphCreate(&graph, 0));
    add_kernel(graph, {}, add, counter, i);
    CUgraphExec exec = nullptr;
    ASSERT_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
    ASSERT_CU(cuGraphDestroy(graph));
    others.push_back(exec);
  }
  const CUstream there = stream();
  ASSERT_CU(cuCtxSetCurrent(context_));
  // Graphs are launched where they were made, whichever context is current.
  for (const CUgraphExec exec : others) ASSERT_CU(cuGraphLaunch(exec, there));
  ASSERT_CU(cuCtxSetCurrent(own));
  ASSERT_CU(cuStreamSynchronize(there));
  EXPECT_EQ(read<std::uint64_t>(counter), 15u);
  ASSERT_CU(cuCtxDestroy(own));
  ASSERT_CU(cuCtxSetCurrent(context_));
  for (const CUgraphExec exec : others) EXPECT_CU(cuGraphExecDestroy(exec));
  expect_steps(execs, 8);
}

TEST_F(Life, CodeThatIsUnloadedIsNeverMistaken) {
  // Graphs of a module that goes; and of one that stays.
  CUmodule brief = nullptr;
  ASSERT_CU(cuModuleLoadData(&brief, "SIMCUDA MODULE 1\nthing = _Z10atomic_addPmm\n"));
  CUfunction thing = nullptr;
  ASSERT_CU(cuModuleGetFunction(&thing, brief, "thing"));
  std::vector<CUgraphExec> going;
  for (std::uint64_t i = 0; i < 6; ++i) {
    CUgraph graph = nullptr;
    ASSERT_CU(cuGraphCreate(&graph, 0));
    add_kernel(graph, {add_kernel(graph, {}, thing, state_, i)}, function("_Z7nothingv"));
    CUgraphExec exec = nullptr;
    ASSERT_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
    ASSERT_CU(cuGraphDestroy(graph));
    going.push_back(exec);
  }
  const std::vector<CUgraphExec> staying = make_execs(6);
  for (const CUgraphExec exec : going) ASSERT_CU(cuGraphLaunch(exec, stream_));
  synchronize();
  EXPECT_EQ(state(), 16u);
  ASSERT_CU(cuModuleUnload(brief));
  // Its handles come again, for something else.
  CUmodule next = nullptr;
  CUfunction other = nullptr;
  ASSERT_CU(cuModuleLoadData(&next, "SIMCUDA MODULE 1\nthing = _Z3mixPmmm\n"));
  ASSERT_CU(cuModuleGetFunction(&other, next, "thing"));
  EXPECT_EQ(other, thing);
  set_state(1);
  for (const CUgraphExec exec : going) {
    const CUresult result = cuGraphLaunch(exec, stream_);
    if (is_virtual()) {
      EXPECT_TRUE(result == CUDA_SUCCESS || result == CUDA_ERROR_INVALID_HANDLE) << result;
    }
    synchronize();
    EXPECT_LE(state(), 16u);  // a factor never comes in
  }
  set_state(1);
  std::vector<CUgraphExec> fresh;
  for (std::uint64_t i = 0; i < 6; ++i) {
    CUgraph graph = nullptr;
    ASSERT_CU(cuGraphCreate(&graph, 0));
    add_kernel(graph, {add_kernel(graph, {}, other, state_, std::uint64_t{2}, i)}, function("_Z7nothingv"));
    CUgraphExec exec = nullptr;
    ASSERT_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
    ASSERT_CU(cuGraphDestroy(graph));
    fresh.push_back(exec);
  }
  std::uint64_t expected = 1;
  for (std::size_t i = 0; i < 6; ++i) {
    ASSERT_CU(cuGraphLaunch(fresh[i], stream_));
    expected = expected * 2 + i;
    ASSERT_CU(cuGraphLaunch(staying[i], stream_));
    expected = step(i, expected);
  }
  synchronize();
  EXPECT_EQ(state(), expected);
}

// The same of functions that go with their context, when their graphs are gone already.
TEST_F(Life, FunctionsOfAContextThatIsGoneAreNeverMistaken) {
  CUfunction last = nullptr;
  for (int round = 0; round < 2; ++round) {
    CUcontext own = nullptr;
    CUmodule module = nullptr;
    CUfunction thing = nullptr;
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    ASSERT_CU(cuCtxCreate(&own, nullptr, 0, 0));
    const CUdeviceptr counter = number(5);
    ASSERT_CU(cuModuleLoadData(&module, round == 0 ? "SIMCUDA MODULE 1\nthing = _Z3mixPmmm\n"
                                                   : "SIMCUDA MODULE 1\nthing = _Z10atomic_addPmm\n"));
    ASSERT_CU(cuModuleGetFunction(&thing, module, "thing"));
    if (round == 1) {
      EXPECT_EQ(thing, last);
    }
    last = thing;
    ASSERT_CU(cuGraphCreate(&graph, 0));
    if (round == 0) {
      add_kernel(graph, {}, thing, counter, std::uint64_t{2}, std::uint64_t{1});
    } else {
      add_kernel(graph, {}, thing, counter, std::uint64_t{2});
    }
    ASSERT_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
    ASSERT_CU(cuGraphLaunch(exec, CU_STREAM_LEGACY));
    ASSERT_CU(cuCtxSynchronize());
    EXPECT_EQ(read<std::uint64_t>(counter), round == 0 ? 11u : 7u);
    ASSERT_CU(cuGraphDestroy(graph));
    ASSERT_CU(cuGraphExecDestroy(exec));
    ASSERT_CU(cuCtxDestroy(own));
  }
  ASSERT_CU(cuCtxSetCurrent(context_));
}

TEST_F(Life, AChildIsLeftAlone) {
  const std::vector<CUgraphExec> execs = make_execs(4);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    bool refused = true;
    for (const CUgraphExec exec : execs) refused = cuGraphLaunch(exec, stream_) != CUDA_SUCCESS && refused;
    for (const CUgraphExec exec : execs) (void)cuGraphExecDestroy(exec);
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  for (const CUgraphExec exec : execs) EXPECT_CU(cuGraphLaunch(exec, stream_));
  synchronize();
}

}  // namespace
}  // namespace grape::virtual_execs_test
