// What makes a call unfit to be a record.
#include <functional>
#include <string>
#include <vector>

#include "shim/driver/unhandled.h"
#include "tests/shim/observation/region_fixture.h"

namespace grape::replay_test {
namespace {

// What makes a call unfit, in words, and whether the next one may do better.
class RefusalTest : public RegionTest {
 protected:
  void expect(const std::string& reason, bool again, const std::function<void()>& work) {
    const auto result = observe(work);
    EXPECT_EQ(result.record, nullptr);
    EXPECT_EQ(result.refusal.text, reason);
    EXPECT_EQ(result.again, again) << reason;
    simcuda_reset();
  }
};

TEST_F(RefusalTest, UnknownDriverFunctions) {
  const auto real = reinterpret_cast<void*>(&cuSimUnknownCount);
  const auto unknown = reinterpret_cast<decltype(&cuSimUnknownCount)>(driver::counted("cuSimUnknownCount", real));
  expect("calls a driver function that Grape does not know: cuSimUnknownCount", true, [&] { unknown(); });
  const auto result = observe([] {});
  EXPECT_NE(result.record, nullptr) << result.refusal.text;
}

TEST_F(RefusalTest, HostReadsWaitsAndCopies) {
  const CUdeviceptr x = torch_alloc(256);
  const CUstream main = stream();
  const CUevent done = event();
  float host[64] = {};
  const char* unseen = "reads device memory to the host without waiting for it, or more than Grape keeps";
  expect(unseen, false, [&] { ASSERT_CU(cuMemcpyDtoHAsync(host, x, 4, main)); });
  std::vector<char> large(8192);
  const CUdeviceptr y = torch_alloc(large.size());
  expect(unseen, false, [&] {
    ASSERT_CU(cuMemcpyDtoHAsync(large.data(), y, large.size(), main));
    ASSERT_CU(cuStreamSynchronize(main));
  });
  expect("waits for the device (cuStreamSynchronize)", false, [&] {
    ASSERT_CU(cuMemcpyDtoHAsync(host, x, 4, main));
    ASSERT_CU(cuStreamSynchronize(main));
    ASSERT_CU(cuStreamSynchronize(main));  // for nothing that is known
  });
  expect("reads device memory to the host (cuMemcpyDtoH)", false, [&] { ASSERT_CU(cuMemcpyDtoH(host, x, 4)); });
  expect("copies between the device and memory that may be the host's (cuMemcpyAsync)", false,
         [&] { ASSERT_CU(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(host), x, 4, main)); });
  expect("waits for the device (cuStreamSynchronize)", false, [&] { ASSERT_CU(cuStreamSynchronize(main)); });
  expect("waits for the device (cuCtxSynchronize)", false, [&] { ASSERT_CU(cuCtxSynchronize()); });
  expect("waits for the device (cuEventSynchronize)", false, [&] { ASSERT_CU(cuEventSynchronize(done)); });
  expect("calls back into the host (cuLaunchHostFunc)", false, [&] {
    ASSERT_CU(cuLaunchHostFunc(
        main, [](void*) {}, nullptr));
  });
  CUDA_MEMCPY2D rows{};
  rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  rows.srcDevice = rows.dstDevice = x;
  rows.srcPitch = rows.dstPitch = 64;
  rows.WidthInBytes = 32;
  rows.Height = 2;
  expect("copies memory in a way that Grape cannot replay (cuMemcpy2DAsync)", false,
         [&] { ASSERT_CU(cuMemcpy2DAsync(&rows, main)); });
  expect("has the device wait for memory, or moves memory (cuStreamWriteValue32)", false,
         [&] { ASSERT_CU(cuStreamWriteValue32(main, x, 1, 0)); });
}

TEST_F(RefusalTest, EventsThatAKernelRecords) {
  const CUstream main = stream();
  const CUevent lasting = event();
  const CUfunction nothing = function("_Z7nothingv");
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
  attribute.value.launchCompletionEvent.event = lasting;
  CUlaunchConfig config{1, 1, 1, 32, 1, 1, 0, main, &attribute, 1};
  expect("records an event from inside a kernel", false,
         [&] { ASSERT_CU(cuLaunchKernelEx(&config, nothing, nullptr, nullptr)); });
}

TEST_F(RefusalTest, GraphsAndCaptures) {
  const CUstream main = stream();
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  ASSERT_CU(cuGraphCreate(&graph, 0));
  ASSERT_CU(cuGraphInstantiate(&exec, graph, 0));
  expect("launches a graph of the application's own (cuGraphLaunch)", false,
         [&] { ASSERT_CU(cuGraphLaunch(exec, main)); });
  expect("builds or captures a CUDA graph of its own (cuStreamBeginCapture)", false, [&] {
    ASSERT_CU(cuStreamBeginCapture(main, CU_STREAM_CAPTURE_MODE_RELAXED));
    ASSERT_CU(cuStreamEndCapture(main, &graph));
  });
  const CUfunction nothing = function("_Z7nothingv");
  ASSERT_CU(cuStreamBeginCapture(main, CU_STREAM_CAPTURE_MODE_RELAXED));
  expect("captures a CUDA graph of its own (cuLaunchKernel)", false, [&] { ASSERT_CU(run(nothing, main)); });
  ASSERT_CU(cuStreamEndCapture(main, &graph));
}

TEST_F(RefusalTest, FailuresAndUnknownCalls) {
  const CUdeviceptr x = torch_alloc(256);
  const CUfunction nothing = function("_Z7nothingv");
  expect("a kernel launch failed (cuLaunchKernel)", false, [&] {
    simcuda_set_fault("cuLaunchKernel", 1, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    EXPECT_NE(run(nothing, nullptr), CUDA_SUCCESS);
  });
  expect("a driver call failed (cuMemcpyDtoDAsync)", false, [&] {
    simcuda_set_fault("cuMemcpyDtoDAsync_v2", 1, CUDA_ERROR_INVALID_VALUE);
    EXPECT_NE(cuMemcpyDtoDAsync(x, x + 128, 64, nullptr), CUDA_SUCCESS);
  });
  expect("makes a driver call that Grape cannot replay (cuMemAdvise)", false,
         [&] { cuMemAdvise_v2(x, 64, CU_MEM_ADVISE_SET_READ_MOSTLY, CUmemLocation{}); });
}

TEST_F(RefusalTest, AttributesOfLaunches) {
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW;
  attribute.value.accessPolicyWindow.base_ptr = reinterpret_cast<void*>(torch_alloc(256));
  attribute.value.accessPolicyWindow.num_bytes = 256;
  CUlaunchConfig config{1, 1, 1, 32, 1, 1, 0, stream(), &attribute, 1};
  const CUfunction nothing = function("_Z7nothingv");
  expect("launches a kernel with an attribute that Grape cannot replay (number 1)", false,
         [&] { ASSERT_CU(cuLaunchKernelEx(&config, nothing, nullptr, nullptr)); });
}

// In a process of its own: once the allocator has reported, it is known to.
class AllocatorTest : public simcuda_test::Driver {};

TEST_F(AllocatorTest, ThatReportsNothing) {
  if (memory::LiveBlocks::instance().has_framework()) GTEST_SKIP() << "another test's allocator has reported";
  observation::RegionSink sink;
  ASSERT_TRUE(sink.begin());
  ASSERT_CU(launch("_Z7nothingv", nullptr));
  const auto result = sink.end();
  EXPECT_EQ(result.record, nullptr);
  EXPECT_EQ(result.refusal.text, "uses memory that PyTorch's allocator does not report");
}

TEST_F(RefusalTest, ParametersThatCannotBeRead) {
  const std::string reason = "launches a kernel whose parameters cannot be read (cuLaunchKernel";
  CUmodule loaded = nullptr;
  CUfunction nothing = nullptr;
  ASSERT_CU(cuModuleLoadData(&loaded, "SIMCUDA MODULE 1\n_Z7nothingv\n"));
  ASSERT_CU(cuModuleGetFunction(&nothing, loaded, "_Z7nothingv"));
  ASSERT_EQ(simcuda_set_fault("cuFuncGetParamInfo", 0, CUDA_ERROR_UNKNOWN), 0);
  expect(reason + ")", false, [&] { ASSERT_CU(run(nothing, nullptr)); });
  std::vector<CUlaunchAttribute> many(65);  // CUDA has fewer
  CUlaunchConfig config{1, 1, 1, 32, 1, 1, 0, nullptr, many.data(), static_cast<unsigned>(many.size())};
  expect(reason + "Ex)", false,
         [&] { ASSERT_CU(cuLaunchKernelEx(&config, function("_Z7nothingv"), nullptr, nullptr)); });
}

TEST_F(RefusalTest, WorkOfSeveralDevicesOrOfAWholeContext) {
  const CUstream main = stream();
  const CUevent done = event();
  CUDA_LAUNCH_PARAMS each{function("_Z7nothingv"), 1, 1, 1, 32, 1, 1, 0, main, nullptr};
  expect("uses more than one device (cuLaunchCooperativeKernelMultiDevice)", false,
         [&] { ASSERT_CU(cuLaunchCooperativeKernelMultiDevice(&each, 1, 0)); });
  expect("orders whole contexts (cuCtxRecordEvent)", false, [&] { ASSERT_CU(cuCtxRecordEvent(context_, done)); });
  expect("orders whole contexts (cuCtxWaitEvent)", false, [&] { ASSERT_CU(cuCtxWaitEvent(context_, done)); });
}

TEST_F(RefusalTest, ContextsThatAreMade) {
  expect("contexts were made or changed (cuCtxCreate)", true, [&] {
    CUcontext made = nullptr;
    ASSERT_CU(cuCtxCreate(&made, nullptr, 0, 0));
    ASSERT_CU(cuCtxDestroy(made));
  });
}

TEST_F(RefusalTest, MuchHostDataInSmallCopies) {
  constexpr std::size_t kBytes = 48 << 10;
  const CUdeviceptr x = torch_alloc(kBytes);
  const std::vector<char> data(kBytes);
  expect("copies more host memory to the device than Grape keeps (cuMemcpyHtoD)", false, [&] {
    for (int i = 0; i < 8; ++i) ASSERT_CU(cuMemcpyHtoD(x, data.data(), kBytes));
  });
}

TEST_F(RefusalTest, WhatTheNextCallMayDoWithout) {
  CUmodule loaded = nullptr;
  ASSERT_CU(cuModuleLoadData(&loaded, "SIMCUDA MODULE 1\n_Z7nothingv\n"));
  expect("kernels were unloaded (cuModuleUnload)", true, [&] { ASSERT_CU(cuModuleUnload(loaded)); });
  // What lasts is said rather than what passes.
  expect("waits for the device (cuCtxSynchronize)", false, [&] {
    ASSERT_CU(cuModuleLoadData(&loaded, "SIMCUDA MODULE 1\n_Z7nothingv\n"));
    ASSERT_CU(cuCtxSynchronize());
  });
}

// As libraries do in their first call. The others are to do without.
TEST_F(RefusalTest, WhatIsMadeForTheCallsThatFollowIsSaid) {
  CUdeviceptr made = 0;
  ASSERT_CU(cuMemAlloc(&made, 512));
  void* pinned = nullptr;
  const auto says = [this](const std::string& what, const std::function<void()>& call) {
    const auto result = observe(call);
    EXPECT_NE(result.record, nullptr) << result.refusal.text;
    EXPECT_EQ(result.set_up.text, what);
  };
  says("memory was given back to the driver (cuMemFree)", [&] { ASSERT_CU(cuMemFree(made)); });
  says("memory was allocated from the driver (cuMemAllocHost)", [&] { ASSERT_CU(cuMemAllocHost(&pinned, 64)); });
  says("streams were made or changed (cuStreamCreate)", [&] { stream(); });
  says("", [&] {
    ASSERT_CU(cuInit(0));
    ASSERT_CU(cuMemAlloc(&made, 512));
  });
}

TEST_F(RefusalTest, KernelsThatWereLoadedAreThereFromThenOn) {
  const CUdeviceptr x = torch_alloc(256);
  CUmodule loaded = nullptr;
  const auto once = observe([&] {
    ASSERT_CU(cuModuleLoadData(&loaded, "SIMCUDA MODULE 1\n_Z7nothingv\n"));
    CUfunction nothing = nullptr;
    ASSERT_CU(cuModuleGetFunction(&nothing, loaded, "_Z7nothingv"));
    ASSERT_CU(run(nothing, nullptr));
    ASSERT_CU(cuMemsetD8Async(x, 1, 256, nullptr));
  });
  ASSERT_NE(once.record, nullptr) << once.refusal.text;
  EXPECT_TRUE(once.loaded);
  EXPECT_EQ(once.record->nodes.size(), 2u);
  const auto again = observe([&] {
    CUfunction nothing = nullptr;
    ASSERT_CU(cuModuleGetFunction(&nothing, loaded, "_Z7nothingv"));
    ASSERT_CU(run(nothing, nullptr));
  });
  ASSERT_NE(again.record, nullptr) << again.refusal.text;
  EXPECT_FALSE(again.loaded) << "asking for one is not loading it";
  const auto gone = observe([&] { ASSERT_CU(cuModuleUnload(loaded)); });
  EXPECT_FALSE(gone.loaded);
}

TEST_F(RefusalTest, MemoryOfTheHost) {
  void* pinned = nullptr;
  ASSERT_CU(cuMemAllocHost(&pinned, 4096));
  const CUfunction copy = function("_Z4copyPfPKfi");
  const CUdeviceptr x = torch_alloc(256);
  simcuda_set_null_launch(1);  // the simulated kernels take device memory only
  expect("launches a kernel on memory of the host (pinned or managed)", false,
         [&] { ASSERT_CU(run(copy, nullptr, x, reinterpret_cast<CUdeviceptr>(pinned) + 64, 8)); });
  ASSERT_CU(cuMemFreeHost(pinned));
  EXPECT_NE(observe([&] { ASSERT_CU(run(copy, nullptr, x, reinterpret_cast<CUdeviceptr>(pinned) + 64, 8)); }).record,
            nullptr);
  CUdeviceptr managed = 0;
  ASSERT_CU(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
  expect("copies or sets memory of the host (pinned or managed)", false,
         [&] { ASSERT_CU(cuMemsetD8Async(managed, 0, 64, nullptr)); });
  ASSERT_CU(cuMemFree(managed));
}

}  // namespace
}  // namespace grape::replay_test
