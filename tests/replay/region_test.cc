// What a thread does while it is observed, as a record, and what makes a call unfit to be one.
#include <dirent.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include "compressor/program/symbolise.h"
#include "shim/driver/unhandled.h"
#include "shim/lifecycle/config.h"
#include "tests/replay/region_fixture.h"

namespace grape::replay_test {
namespace {

using program::NodeKind;
using program::RegionRecord;
using replay::LiveBlocks;
using replay::RegionSink;

std::vector<std::uint32_t> edges(const RegionRecord& record, std::size_t node) {
  const auto& n = record.nodes[node];
  return {record.after.begin() + n.after_at, record.after.begin() + n.after_at + n.after_count};
}

std::vector<std::uint64_t> words(const RegionRecord& record, std::size_t node) {
  const auto& n = record.nodes[node];
  return {record.words.begin() + n.words_at, record.words.begin() + n.words_at + n.word_count};
}

bool has_writer_thread() {
  DIR* tasks = opendir("/proc/self/task");
  bool found = false;
  while (const dirent* task = readdir(tasks)) {
    std::ifstream file("/proc/self/task/" + std::string(task->d_name) + "/comm");
    std::string name;
    std::getline(file, name);
    found = found || name == "grape-writer";
  }
  closedir(tasks);
  return found;
}

TEST_F(RegionTest, KernelsCopiesAndMemsetsOfTwoStreams) {
  const CUfunction axpy = function("_Z4axpyPfPKffi"), mix = function("_Z3mixPmmm");
  const CUstream main = stream(), side = stream();
  const CUdeviceptr x = torch_alloc(256), y = torch_alloc(256);
  const auto result = observe([&] {
    ASSERT_CU(cuMemsetD32Async(y, 7, 64, main));
    const CUevent forked = event();
    ASSERT_CU(cuEventRecord(forked, main));
    ASSERT_CU(cuStreamWaitEvent(side, forked, 0));
    ASSERT_CU(cuMemcpyDtoDAsync(x, y, 128, side));
    ASSERT_CU(run(axpy, main, y, x, 2.0F, 64));
    ASSERT_CU(cuEventRecord(forked, side));
    ASSERT_CU(cuStreamWaitEvent(main, forked, 0));
    ASSERT_CU(cuEventDestroy(forked));
    std::uint64_t packed[3] = {x, 3, 4};
    std::size_t bytes = sizeof packed;
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    ASSERT_CU(cuLaunchKernel(mix, 2, 3, 4, 5, 6, 7, 88, main, nullptr, extra));
    ASSERT_CU(cuMemsetD2D16Async(y, 32, 0xAB, 3, 4, main));
    EXPECT_NE(cuStreamQuery(main), CUDA_ERROR_INVALID_VALUE);  // looks, and changes nothing
  });
  ASSERT_NE(result.record, nullptr) << result.refusal.text;
  const RegionRecord& record = *result.record;
  ASSERT_EQ(record.nodes.size(), 5u);
  EXPECT_EQ(record.streams,
            (std::vector<std::uint64_t>{reinterpret_cast<std::uint64_t>(main), reinterpret_cast<std::uint64_t>(side)}));
  EXPECT_EQ(words(record, 0), (std::vector<std::uint64_t>{y, 7, 4, 64, 1, 0}));
  EXPECT_EQ(words(record, 1), (std::vector<std::uint64_t>{x, y, 128}));
  EXPECT_EQ(words(record, 4), (std::vector<std::uint64_t>{y, 0xAB, 2, 3, 4, 32}));
  EXPECT_EQ(record.nodes[0].kind, NodeKind::kMemset);
  EXPECT_EQ(record.nodes[1].kind, NodeKind::kCopy);
  EXPECT_EQ(record.nodes[1].stream, 1u);
  EXPECT_EQ(edges(record, 0), std::vector<std::uint32_t>{});
  EXPECT_EQ(edges(record, 1), std::vector<std::uint32_t>{0});
  EXPECT_EQ(edges(record, 2), std::vector<std::uint32_t>{0});
  EXPECT_EQ(edges(record, 3), (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(edges(record, 4), std::vector<std::uint32_t>{3});

  const program::RecordedNode& kernel = record.nodes[2];
  const program::FunctionInfo& info = record.functions[kernel.function];
  EXPECT_EQ(info.name, "_Z4axpyPfPKffi");
  EXPECT_EQ(info.handle, reinterpret_cast<std::uint64_t>(axpy));
  ASSERT_TRUE(info.has_layout);
  ASSERT_EQ(info.parameters.size(), 4u);
  EXPECT_EQ(info.parameters[3].offset, 20u);
  EXPECT_EQ(kernel.parameter_bytes, 24u);
  EXPECT_EQ(words(record, 2), (std::vector<std::uint64_t>{y, x, 0x40'40000000}));
  EXPECT_FALSE(kernel.packed);

  const program::RecordedNode& packed = record.nodes[3];
  EXPECT_TRUE(packed.packed);
  EXPECT_EQ(words(record, 3), (std::vector<std::uint64_t>{x, 3, 4}));
  EXPECT_EQ(packed.grid, (program::Dimensions{2, 3, 4}));
  EXPECT_EQ(packed.block, (program::Dimensions{5, 6, 7}));
  EXPECT_EQ(packed.shared_bytes, 88u);
}

TEST_F(RegionTest, AttributesAndCooperationAreKept) {
  const CUfunction mix = function("_Z3mixPmmm");
  CUdeviceptr p = torch_alloc(8);
  std::uint64_t a = 1, b = 2;
  void* parameters[] = {&p, &a, &b};
  CUlaunchAttribute cluster{};
  cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  cluster.value.clusterDim = {2, 1, 1};
  CUlaunchConfig config{2, 1, 1, 32, 1, 1, 0, nullptr, &cluster, 1};
  const auto result = observe([&] {
    ASSERT_CU(cuLaunchKernelEx(&config, mix, parameters, nullptr));
    ASSERT_CU(cuLaunchCooperativeKernel(mix, 1, 1, 1, 32, 1, 1, 0, nullptr, parameters));
  });
  ASSERT_NE(result.record, nullptr) << result.refusal.text;
  ASSERT_EQ(result.record->nodes.size(), 2u);
  EXPECT_FALSE(result.record->nodes[0].cooperative);
  EXPECT_TRUE(result.record->nodes[1].cooperative);
  ASSERT_EQ(result.record->nodes[0].attribute_count, 1u);
  EXPECT_EQ(std::memcmp(result.record->attributes.data(), &cluster, 12), 0);
  EXPECT_EQ(result.record->streams, std::vector<std::uint64_t>{0});
}

TEST_F(RegionTest, BlocksOfTheAllocatorHaveTheirSerials) {
  const CUfunction nothing = function("_Z7nothingv");
  const CUdeviceptr weight = torch_alloc(1024), freed = torch_alloc(512);
  CUdeviceptr temp = 0, output = 0;
  const auto result = observe([&] {
    temp = torch_alloc(512);
    ASSERT_CU(run(nothing, nullptr));
    torch_free(temp, 512);
    torch_alloc_at(temp, 512);  // the same place again
    torch_free(freed, 512);
    ASSERT_CU(run(nothing, nullptr));
    output = torch_alloc(2048);
    torch_free(temp, 512);
  });
  ASSERT_NE(result.record, nullptr) << result.refusal.text;
  const RegionRecord& record = *result.record;
  ASSERT_EQ(record.before.size(), 2u) << "the segment that holds them is none";
  EXPECT_EQ(record.before[0].address, weight);
  EXPECT_EQ(record.before[0].bytes, 1024u);
  ASSERT_EQ(record.block_events.size(), 6u);
  const auto& events = record.block_events;
  const bool allocs[] = {true, false, true, false, true, false};
  const std::uint32_t before[] = {0, 1, 1, 1, 2, 2};
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(events[i].alloc, allocs[i]) << i;
    EXPECT_EQ(events[i].before_node, before[i]) << i;
  }
  EXPECT_EQ(events[0].address, temp);
  EXPECT_EQ(events[0].bytes, 512u);
  EXPECT_EQ(events[0].serial, events[1].serial);
  EXPECT_NE(events[0].serial, events[2].serial);
  EXPECT_EQ(events[2].serial, events[5].serial);
  EXPECT_EQ(events[3].serial, record.before[1].serial);
  EXPECT_TRUE(LiveBlocks::instance().alive(output, events[4].serial));
  EXPECT_FALSE(LiveBlocks::instance().alive(temp, events[5].serial));
}

TEST_F(RegionTest, OutsideOfRegionsNothingIsRecorded) {
  EXPECT_NE(observe([&] {}).record, nullptr);
  EXPECT_EQ(record::t_thread.sink, nullptr);
  const bool traced = writes_trace(config());
  EXPECT_EQ(record::thread_log() != nullptr, traced);
  EXPECT_EQ(has_writer_thread(), traced);
  const CUfunction nothing = function("_Z7nothingv");
  ASSERT_CU(run(nothing, nullptr));
  const auto result = observe([&] { ASSERT_CU(run(nothing, nullptr)); });
  ASSERT_NE(result.record, nullptr) << result.refusal.text;
  EXPECT_EQ(result.record->nodes.size(), 1u);
}

TEST_F(RegionTest, OneSinkForAThreadAndEachThreadItsOwn) {
  const CUfunction nothing = function("_Z7nothingv");
  ASSERT_TRUE(sink_.begin());
  RegionSink second;
  EXPECT_FALSE(second.begin());
  EXPECT_EQ(second.end().record, nullptr);
  std::thread other([&] {
    ASSERT_CU(cuCtxSetCurrent(context_));
    RegionSink own;
    ASSERT_TRUE(own.begin());
    for (int i = 0; i < 3; ++i) ASSERT_CU(run(nothing, nullptr));
    const auto result = own.end();
    ASSERT_NE(result.record, nullptr) << result.refusal.text;
    EXPECT_EQ(result.record->nodes.size(), 3u);
  });
  other.join();
  ASSERT_CU(run(nothing, nullptr));
  const auto result = sink_.end();
  ASSERT_NE(result.record, nullptr) << result.refusal.text;
  EXPECT_EQ(result.record->nodes.size(), 1u);
}

TEST_F(RegionTest, AThreadThatEndsWhileItCollects) {
  for (int i = 0; i < 3; ++i) {
    auto* left = new RegionSink;
    std::thread other([&] {
      ASSERT_CU(cuCtxSetCurrent(context_));
      ASSERT_TRUE(left->begin());
      ASSERT_CU(run(function("_Z7nothingv"), nullptr));
    });
    other.join();
    EXPECT_EQ(left->end().record, nullptr);
    delete left;
  }
}

TEST_F(RegionTest, NoRecordOnceGrapeIsInert) {
  const CUfunction nothing = function("_Z7nothingv");
  const auto result = observe([&] {
    ASSERT_CU(run(nothing, nullptr));
    lifecycle::g_state.store(lifecycle::State::kInert);
    ASSERT_CU(run(nothing, nullptr));  // goes by
  });
  EXPECT_EQ(result.record, nullptr);
  EXPECT_TRUE(result.refusal);
  EXPECT_FALSE(sink_.begin());
  lifecycle::g_state.store(lifecycle::State::kActive);
}

TEST_F(RegionTest, MoreThanCanBeKeptIsNotUsed) {
  const CUfunction nothing = function("_Z7nothingv");
  const auto result = observe([&] {
    simcuda_set_null_launch(1);
    std::vector<char> parameters(64'000);
    std::size_t bytes = parameters.size();
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, parameters.data(), CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    for (int i = 0; i < 1200; ++i) {
      ASSERT_CU(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
    }
    simcuda_set_null_launch(0);
  });
  EXPECT_EQ(result.record, nullptr);
  EXPECT_EQ(result.refusal.text, "does more than can be recorded");
  EXPECT_FALSE(result.again);
  EXPECT_NE(observe([&] { ASSERT_CU(run(nothing, nullptr)); }).record, nullptr) << "the next one is used";
}

TEST_F(RegionTest, WhatTheHostReadsAndWaitsForIsKeptWithItsValue) {
  const CUstream main = stream();
  const CUdeviceptr p = torch_alloc(16);
  ASSERT_CU(cuMemsetD32(p, 0x01020304, 4));
  const CUfunction mix = function("_Z3mixPmmm");
  const auto result = observe([&] {
    std::uint32_t three[3] = {};
    std::uint64_t one = 0;
    ASSERT_CU(cuMemcpyDtoHAsync(three, p, 12, main));
    ASSERT_CU(cuStreamSynchronize(main));
    ASSERT_CU(run(mix, main, p, std::uint64_t{0}, std::uint64_t{77}));
    ASSERT_CU(cuMemcpyDtoHAsync(&one, p, 8, main));
    ASSERT_CU(cuStreamSynchronize(main));
    EXPECT_EQ(one, 77u);
    EXPECT_EQ(three[2], 0x01020304u);
  });
  ASSERT_NE(result.record, nullptr) << result.refusal.text;
  const RegionRecord& record = *result.record;
  ASSERT_EQ(record.nodes.size(), 3u);
  EXPECT_EQ(record.nodes[0].kind, NodeKind::kHostRead);
  EXPECT_EQ(words(record, 0), (std::vector<std::uint64_t>{p, 12, 0x0102030401020304, 0x01020304}));
  EXPECT_EQ(record.nodes[2].kind, NodeKind::kHostRead);
  EXPECT_EQ(words(record, 2), (std::vector<std::uint64_t>{p, 8, 77}));
}

TEST_F(RegionTest, AskingForAKernelOrSettingItsLimitsLoadsNothing) {
  const auto result = observe([&] {
    const CUfunction nothing = function("_Z7nothingv");
    ASSERT_CU(cuFuncSetAttribute(nothing, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536));
    ASSERT_CU(run(nothing, nullptr));
  });
  ASSERT_NE(result.record, nullptr) << result.refusal.text;
}

TEST_F(RegionTest, UnifiedCopiesBetweenKnownBlocksAreOnTheDevice) {
  const CUdeviceptr x = torch_alloc(256);
  const auto result = observe([&] {
    const CUdeviceptr y = torch_alloc(256);
    ASSERT_CU(cuMemcpyAsync(y, x + 64, 128, nullptr));
  });
  ASSERT_NE(result.record, nullptr) << result.refusal.text;
  EXPECT_EQ(words(*result.record, 0), (std::vector<std::uint64_t>{x + 512, x + 64, 128}));
}

// The allocator may ask the driver for more. What the call itself takes from the driver points into no block.
TEST_F(RegionTest, MemoryFromTheDriverIsKnownAsSuch) {
  const CUfunction copy = function("_Z4copyPfPKfi");
  const CUdeviceptr x = torch_alloc(256);
  CUdeviceptr made = 0;
  const auto result = observe([&] {
    ASSERT_CU(cuMemAlloc(&made, 4096));
    ASSERT_CU(run(copy, nullptr, made + 64, x, 8));
  });
  ASSERT_NE(result.record, nullptr) << result.refusal.text;
  const auto& segments = result.record->segments;
  EXPECT_TRUE(std::any_of(segments.begin(), segments.end(), [&](const auto& each) { return each.address == made; }));
  const program::Program program = program::symbolise(*result.record);
  EXPECT_EQ(program.strays, (std::vector<std::uint32_t>{0}));
  ASSERT_CU(cuMemFree(made));
}

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
