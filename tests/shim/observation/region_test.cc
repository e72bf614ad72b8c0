// What a thread does while it is observed, as a record.
#include <dirent.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <thread>
#include <vector>

#include "compressor/program/symbolise.h"
#include "shim/lifecycle/config.h"
#include "tests/shim/observation/region_fixture.h"

namespace grape::replay_test {
namespace {

using memory::LiveBlocks;
using observation::RegionSink;
using program::NodeKind;
using program::RegionRecord;

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
    EXPECT_EQ(left->end().refusal.id, refusal::not_recorded.id);
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
  EXPECT_EQ(result.refusal.text, "was not recorded: its thread has ended, or Grape has");
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

}  // namespace
}  // namespace grape::replay_test
