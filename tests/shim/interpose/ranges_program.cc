// Launches within and outside of ranges, and what makes streams and graphs outside of them. With an argument the ranges
// are left out.
#include "shim/driver/driver_api.h"
#include "tests/shim/interpose/program.h"

using grape::interpose::test::fake_state_of;
using grape::interpose::test::FakeFunction;
using grape::interpose::test::FakeGraph;
using grape::interpose::test::FakeNode;
using grape::interpose::test::FakeState;
using grape::interpose::test::finish;
using grape::interpose::test::get;
using grape::interpose::test::open_driver;

namespace {

FakeFunction g_bare{"bare", false, 0, {}};

}  // namespace

int main(int argc, char**) {
  void* driver = open_driver();
  FakeState& state = fake_state_of(driver);
  auto start = get<PFN_cuProfilerStart_v4000>(driver, "cuProfilerStart");
  auto stop = get<PFN_cuProfilerStop_v4000>(driver, "cuProfilerStop");
  auto raw_launch = get<PFN_cuLaunchKernel_v4000>(driver, "cuLaunchKernel");
  const auto launch = [raw_launch](unsigned grid) {
    raw_launch(reinterpret_cast<CUfunction>(&g_bare), grid, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  };
  launch(1);
  state.out_handle = reinterpret_cast<void*>(0xbeef);
  CUstream stream = nullptr;
  get<PFN_cuStreamCreate_v2000>(driver, "cuStreamCreate")(&stream, CU_STREAM_NON_BLOCKING);
  CUDA_KERNEL_NODE_PARAMS_v2 kernel = {};
  kernel.func = reinterpret_cast<CUfunction>(&g_bare);
  FakeNode node{CU_GRAPH_NODE_TYPE_KERNEL, &kernel, sizeof(kernel)};
  FakeNode* nodes[] = {&node};
  FakeGraph graph{1, nodes, 0, nullptr, nullptr};
  state.out_handle = reinterpret_cast<void*>(0xe4ec);
  CUgraphExec exec = nullptr;
  get<PFN_cuGraphInstantiateWithFlags_v11040>(driver, "cuGraphInstantiateWithFlags")(
      &exec, reinterpret_cast<CUgraph>(&graph), 0);
  CUdeviceptr memory = 0;
  get<PFN_cuMemAlloc_v3020>(driver, "cuMemAlloc_v2")(&memory, 64);
  if (argc > 1) return finish();
  for (const unsigned grid : {10u, 20u}) {
    *state.result = grid == 20 ? CUDA_ERROR_NOT_INITIALIZED : CUDA_SUCCESS;
    EXPECT(start() == *state.result, "what the driver answers");
    *state.result = CUDA_SUCCESS;
    launch(grid);
    EXPECT(stop() == CUDA_SUCCESS, "what the driver answers");
    launch(grid + 1);
  }
  EXPECT(state.names_asked == 1, "the name is asked once");
  return finish();
}
