// What a graph can consist of: all that is kept is kept exactly, and all else stays with the driver.
#include <cstring>

#include "tests/shim/virtual_execs/graphs.h"

namespace grape::virtual_execs_test {
namespace {

class Kinds : public Graphs {
 protected:
  // A graph of which there are several, with more than fits: is each of them on an exec of its own?
  void expect_real(const std::vector<CUgraphExec>& execs, std::uint64_t before) {
    EXPECT_EQ(live() - before, execs.size());
    for (const CUgraphExec exec : execs) EXPECT_CU(cuGraphLaunch(exec, stream_));
    synchronize();
    for (const CUgraphExec exec : execs) EXPECT_CU(cuGraphExecDestroy(exec));
    EXPECT_EQ(live(), before);
  }

  template <typename Add>
  std::vector<CUgraphExec> several(const Add& add, cuuint64_t flags = 0) {
    std::vector<CUgraphExec> execs;
    for (int i = 0; i < 6; ++i) {
      const CUgraph graph = make_graph(static_cast<std::size_t>(i));
      add(graph);
      CUgraphExec exec = nullptr;
      EXPECT_CU(cuGraphInstantiateWithFlags(&exec, graph, flags));
      EXPECT_CU(cuGraphDestroy(graph));
      execs.push_back(exec);
    }
    return execs;
  }
};

void count_up(void* data) { ++*static_cast<int*>(data); }

TEST_F(Kinds, HostNodesStayWithTheDriver) {
  int calls = 0;
  const std::uint64_t before = live();
  expect_real(several([&](CUgraph graph) {
                const CUDA_HOST_NODE_PARAMS params{count_up, &calls};
                CUgraphNode node = nullptr;
                ASSERT_CU(cuGraphAddHostNode(&node, graph, nullptr, 0, &params));
              }),
              before);
  EXPECT_EQ(calls, 6);
}

TEST_F(Kinds, EventsAndChildrenStayWithTheDriver) {
  const CUevent happened = event();
  const std::uint64_t before = live();
  expect_real(several([&](CUgraph graph) {
                CUgraphNode node = nullptr;
                ASSERT_CU(cuGraphAddEventRecordNode(&node, graph, nullptr, 0, happened));
              }),
              before);
  const CUgraph child = make_graph(7);
  expect_real(several([&](CUgraph graph) {
                CUgraphNode node = nullptr;
                ASSERT_CU(cuGraphAddChildGraphNode(&node, graph, nullptr, 0, child));
              }),
              before);
}

TEST_F(Kinds, AllocationsAndDeviceLaunchesStayWithTheDriver) {
  const std::uint64_t before = live();
  expect_real(several([&](CUgraph graph) {
                CUDA_MEM_ALLOC_NODE_PARAMS params{};
                params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
                params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
                params.bytesize = 64;
                CUgraphNode made = nullptr, freed = nullptr;
                ASSERT_CU(cuGraphAddMemAllocNode(&made, graph, nullptr, 0, &params));
                ASSERT_CU(cuGraphAddMemFreeNode(&freed, graph, &made, 1, params.dptr));
              }),
              before);
  expect_real(several([](CUgraph) {}, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH), before);
}

TEST_F(Kinds, WhatKeepsObjectsAliveStaysWithTheDriver) {
  int calls = 0;
  const std::uint64_t before = live();
  expect_real(several([&](CUgraph graph) {
                CUuserObject object = nullptr;
                ASSERT_CU(cuUserObjectCreate(&object, &calls, count_up, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
                ASSERT_CU(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
              }),
              before);
  EXPECT_EQ(calls, 6);
  // A clone keeps them too; and the handle of a graph that is gone may come again for one that keeps none.
  const CUgraph original = make_graph(0);
  CUuserObject object = nullptr;
  ASSERT_CU(cuUserObjectCreate(&object, &calls, count_up, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  ASSERT_CU(cuGraphRetainUserObject(original, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  CUgraph clone = nullptr;
  ASSERT_CU(cuGraphClone(&clone, original));
  CUgraphExec exec = nullptr;
  ASSERT_CU(cuGraphInstantiateWithFlags(&exec, clone, 0));
  ASSERT_CU(cuGraphDestroy(clone));
  ASSERT_CU(cuGraphDestroy(original));
  for (std::size_t i = 0; i < 6; ++i) make_exec(i);
  EXPECT_EQ(live() - before, is_virtual() ? 1 + kResident : 7);
}

TEST_F(Kinds, CopiesAndMemsetsWithRows) {
  const CUdeviceptr from = floats(64), to = floats(64);
  std::vector<float> numbers(64);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  ASSERT_CU(cuMemcpyHtoD(from, numbers.data(), 256));
  std::vector<CUgraphExec> execs;
  for (std::size_t i = 0; i < 6; ++i) {
    CUgraph graph = nullptr;
    ASSERT_CU(cuGraphCreate(&graph, 0));
    CUDA_MEMSET_NODE_PARAMS memset{};
    memset.dst = to;
    memset.pitch = 32;
    memset.elementSize = 4;
    memset.value = 0x3f800000;  // 1.0f
    memset.width = 8;
    memset.height = 8;
    CUgraphNode set = nullptr, copied = nullptr;
    ASSERT_CU(cuGraphAddMemsetNode(&set, graph, nullptr, 0, &memset, context_));
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = from + 4 * i;
    copy.dstDevice = to;
    copy.srcPitch = copy.dstPitch = 32;
    copy.srcHeight = copy.dstHeight = 4;
    copy.WidthInBytes = 8;
    copy.Height = 4;
    copy.Depth = 1;
    ASSERT_CU(cuGraphAddMemcpyNode(&copied, graph, &set, 1, &copy, context_));
    execs.push_back(exec_of(graph));
  }
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < execs.size(); ++i) {
      ASSERT_CU(cuGraphLaunch(execs[i], stream_));
      synchronize();
      for (std::size_t row = 0; row < 8; ++row) {
        for (std::size_t column = 0; column < 8; ++column) {
          const float expected = row < 4 && column < 2 ? static_cast<float>(row * 8 + column + i) : 1.0f;
          ASSERT_EQ(read(to, row * 8 + column), expected) << row << ' ' << column;
        }
      }
    }
  }
  if (is_virtual()) {  // they are small
    EXPECT_LE(live(), 3u);
  }
}

TEST_F(Kinds, PackedParametersAndKernelsOfLibraries) {
  CUlibrary library = nullptr;
  CUkernel mix = nullptr;
  ASSERT_CU(cuLibraryLoadData(&library, simcuda_test::kImage, nullptr, nullptr, 0, nullptr, nullptr, 0));
  ASSERT_CU(cuLibraryGetKernel(&mix, library, "_Z3mixPmmm"));
  std::vector<CUgraphExec> execs;
  for (std::size_t i = 0; i < 10; ++i) {
    CUgraph graph = nullptr;
    ASSERT_CU(cuGraphCreate(&graph, 0));
    struct {
      CUdeviceptr p;
      std::uint64_t a, b;
    } packed{state_, factor(i), i};
    std::size_t bytes = sizeof packed;
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    CUDA_KERNEL_NODE_PARAMS params{};
    params.kern = mix;
    params.gridDimX = params.gridDimY = params.gridDimZ = params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    params.extra = extra;
    CUgraphNode node = nullptr;
    ASSERT_CU(cuGraphAddKernelNode(&node, graph, nullptr, 0, &params));
    execs.push_back(exec_of(graph));
  }
  expect_steps(execs, 20);
  if (is_virtual()) {
    EXPECT_LE(live(), 3u);
  }
}

// Attributes are no part of what a node's parameters are: graphs that differ in them share no exec, and all keep
// theirs.
TEST_F(Kinds, AttributesOfKernels) {
  launch_on_execs();
  std::vector<CUgraphExec> execs;
  for (std::size_t i = 0; i < 8; ++i) {
    std::vector<CUgraphNode> nodes;
    const CUgraph graph = make_graph(i, &nodes);
    CUkernelNodeAttrValue value{};
    value.priority = static_cast<int>(i % 2);
    ASSERT_CU(cuGraphKernelNodeSetAttribute(nodes[0], CU_KERNEL_NODE_ATTRIBUTE_PRIORITY, &value));
    execs.push_back(exec_of(graph));
  }
  const std::uint64_t before = simcuda_calls("cuGraphKernelNodeSetAttribute");
  expect_steps(execs, 16);
  if (is_virtual()) {
    EXPECT_GE(simcuda_calls("cuGraphKernelNodeSetAttribute"), before + 1);
  }
}

TEST_F(Kinds, NodesThatTheDeviceMayChangeStayWithTheDriver) {
  std::vector<CUgraphExec> execs;
  const std::uint64_t before = live();
  for (std::size_t i = 0; i < 6; ++i) {
    std::vector<CUgraphNode> nodes;
    const CUgraph graph = make_graph(i, &nodes);
    CUkernelNodeAttrValue value{};
    value.deviceUpdatableKernelNode.deviceUpdatable = 1;
    ASSERT_CU(cuGraphKernelNodeSetAttribute(nodes[0], CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &value));
    execs.push_back(exec_of(graph));
  }
  expect_real(execs, before);
}

TEST_F(Kinds, GraphsWithoutNodesStayWithTheDriver) {
  const std::uint64_t before = live();
  std::vector<CUgraphExec> execs(6);
  for (CUgraphExec& exec : execs) {
    CUgraph graph = nullptr;
    ASSERT_CU(cuGraphCreate(&graph, 0));
    exec = exec_of(graph);
  }
  expect_real(execs, before);
}

TEST_F(Kinds, CopiesOfArraysStayWithTheDriver) {
  const std::uint64_t before = live();
  expect_real(several([&](CUgraph graph) {
                CUDA_MEMCPY3D copy{};  // of no bytes: the simulated driver has no arrays
                copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
                copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
                copy.dstDevice = copies_;
                CUgraphNode node = nullptr;
                ASSERT_CU(cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy, context_));
              }),
              before);
}

TEST_F(Kinds, MemoryOfAnotherDeviceStaysWithTheDriver) {
  CUcontext other = nullptr;
  CUdeviceptr there = 0;
  ASSERT_CU(cuDevicePrimaryCtxRetain(&other, 1));
  ASSERT_CU(cuCtxSetCurrent(other));
  ASSERT_CU(cuMemAlloc(&there, 256));
  ASSERT_CU(cuCtxSetCurrent(context_));
  const std::uint64_t before = live();
  expect_real(several([&](CUgraph graph) { add_copy(graph, {}, copies_, there, 8); }), before);
  expect_real(several([&](CUgraph graph) { add_memset(graph, {}, there, 1); }), before);
  ASSERT_CU(cuDevicePrimaryCtxReset_v2(1));
}

// From here on every call of the function fails, or the one of that number.
void fail(const char* symbol, std::uint64_t nth = 0) {
  EXPECT_EQ(simcuda_set_fault(symbol, nth, CUDA_ERROR_UNKNOWN), 0);
}
void fail_no_more(const char* symbol) { fail(symbol, ~std::uint64_t{0}); }

TEST_F(Kinds, WhatIsNotToldStaysWithTheDriver) {
  for (const char* symbol : {"cuFuncGetParamInfo", "cuGraphGetNodes"}) {
    if (!is_virtual()) return;  // the driver asks itself
    CUmodule loaded = nullptr;
    CUfunction mix = nullptr;
    ASSERT_CU(cuModuleLoadData(&loaded, simcuda_test::kImage));
    ASSERT_CU(cuModuleGetFunction(&mix, loaded, "_Z3mixPmmm"));
    const std::uint64_t before = live();
    fail(symbol);
    const auto execs = several([&](CUgraph graph) { add_kernel(graph, {}, mix, state_, factor(1), std::uint64_t{1}); });
    fail_no_more(symbol);
    expect_real(execs, before);
  }
}

TEST_F(Kinds, WhatIsNotTheSameWhenBuiltAnewStaysWithTheDriver) {
  if (!is_virtual()) return;
  const std::uint64_t asked = simcuda_calls("cuGraphKernelNodeGetAttribute");
  make_exec(0);  // read three times: as it is, and when it is built and then looked at
  const std::uint64_t reading = (simcuda_calls("cuGraphKernelNodeGetAttribute") - asked) / 3;
  std::vector<CUgraphNode> nodes;
  const CUgraph graph = make_graph(1, &nodes);
  CUkernelNodeAttrValue value{};
  value.priority = 1;
  ASSERT_CU(cuGraphKernelNodeSetAttribute(nodes[0], CU_KERNEL_NODE_ATTRIBUTE_PRIORITY, &value));
  const std::uint64_t before = live();
  fail("cuGraphKernelNodeGetAttribute", 2 * reading + CU_KERNEL_NODE_ATTRIBUTE_PRIORITY);
  CUgraphExec exec = nullptr;
  ASSERT_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  ASSERT_CU(cuGraphDestroy(graph));
  fail_no_more("cuGraphKernelNodeGetAttribute");
  expect_real({exec}, before);
}

// Programmatic edges let a kernel begin before the one ahead of it has ended.
TEST_F(Kinds, EdgesKeepTheirData) {
  std::vector<CUgraphExec> execs;
  for (std::size_t i = 0; i < 8; ++i) {
    CUgraph graph = nullptr;
    ASSERT_CU(cuGraphCreate(&graph, 0));
    const CUfunction mix = function("_Z3mixPmmm");
    const CUgraphNode zeroth = add_kernel(graph, {}, mix, state_, std::uint64_t{1}, std::uint64_t{0});
    const CUgraphNode first = add_kernel(graph, {}, mix, state_, factor(i), std::uint64_t{0});
    const CUgraphNode second = add_kernel(graph, {}, mix, state_, std::uint64_t{1}, std::uint64_t{i});
    CUgraphEdgeData data{};
    ASSERT_CU(cuGraphAddDependencies_v2(graph, &zeroth, &first, &data, 1));
    data.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
    data.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
    ASSERT_CU(cuGraphAddDependencies_v2(graph, &first, &second, &data, 1));
    execs.push_back(exec_of(graph));
  }
  const std::uint64_t before = simcuda_calls("cuGraphAddDependencies_v2");
  expect_steps(execs, 16);
  if (is_virtual()) {
    EXPECT_GE(simcuda_calls("cuGraphAddDependencies_v2"), before + 1);
  }
}

TEST_F(Kinds, WhatWasCaptured) {
  std::vector<CUgraphExec> execs;
  for (std::size_t i = 0; i < 10; ++i) {
    CUgraph graph = nullptr;
    ASSERT_CU(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    ASSERT_CU(launch("_Z3mixPmmm", stream_, state_, factor(i), std::uint64_t{0}));
    ASSERT_CU(cuMemcpyDtoDAsync(copies_ + 8 * i, state_, 8, stream_));
    ASSERT_CU(cuMemsetD32Async(copies_ + 8 * i + 4, static_cast<unsigned>(i), 1, stream_));
    ASSERT_CU(launch("_Z10atomic_addPmm", stream_, state_, std::uint64_t{i}));
    ASSERT_CU(cuStreamEndCapture(stream_, &graph));
    CUgraphExec exec = nullptr;
    ASSERT_CU(cuGraphInstantiateWithFlags(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    ASSERT_CU(cuGraphDestroy(graph));
    execs.push_back(exec);
  }
  if (is_virtual()) {
    EXPECT_LE(live(), kResident);
  }
  expect_steps(execs, 30);
  for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(read<std::uint32_t>(copies_, 2 * i + 1), i);
}

}  // namespace
}  // namespace grape::virtual_execs_test
