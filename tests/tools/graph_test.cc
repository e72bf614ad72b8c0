// The graph builder: stream order, events, the default stream's rules.
#include "shim/record/graph.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/tools/trace_maker.h"

namespace grape::tools {
namespace {

using record::ApiTable;
using record::Graph;
using record::GraphBuilder;
using record::GraphDetail;
using record::NodeKind;
using record::StreamModes;
using Edges = std::vector<std::vector<std::uint32_t>>;

const std::string& name_of(std::uint32_t function, void*) {
  static const std::vector<std::string> names = {"none", "a", "b", "c"};
  return names[function < names.size() ? function : 0];
}

constexpr std::uint64_t kA = 0x100, kB = 0x200, kC = 0x300;

Graph build(const TraceMaker& maker, GraphDetail detail = GraphDetail::kFull) {
  static const ApiTable apis(TraceMaker::apis());
  StreamModes modes;
  GraphBuilder builder(apis, name_of, nullptr, &modes, detail);
  for (const auto& [thread, words] : maker.events()) {
    const trace::EventView view{reinterpret_cast<const trace::EventHeader*>(words.data())};
    if (view.header->kind == trace::EventKind::kCall) {
      const record::CallView call(view);
      modes.add(apis[call.api()], call);
    }
    builder.add(view, thread, 0);
  }
  return builder.finish();
}

Edges edges(const Graph& graph) {
  Edges list;
  for (const record::Node& node : graph.nodes) {
    list.emplace_back(graph.after.begin() + node.after_at, graph.after.begin() + node.after_at + node.after_count);
  }
  return list;
}

void non_blocking(TraceMaker& t) {
  for (const std::uint64_t stream : {kA, kB, kC}) t.call(TraceMaker::kStreamCreate, {stream, 1});
}

TEST(GraphBuilder, OneStreamIsAChain) {
  TraceMaker t;
  for (int i = 0; i < 3; ++i) t.launch({1, kA});
  EXPECT_EQ(edges(build(t)), (Edges{{}, {0}, {1}}));
}

TEST(GraphBuilder, NonBlockingStreamsAreApart) {
  TraceMaker t;
  non_blocking(t);
  t.launch({1, kA});
  t.launch({1, kB});
  t.launch({1, 0});
  t.launch({1, kA});
  const Graph graph = build(t);
  EXPECT_EQ(edges(graph), (Edges{{}, {}, {}, {0}}));
  EXPECT_EQ(graph.streams, 3u);
}

TEST(GraphBuilder, EventsForkAndJoin) {
  TraceMaker t;
  non_blocking(t);
  t.launch({1, kA});                              // 0
  t.call(TraceMaker::kEventRecord, {0xe1, kA});   //
  t.call(TraceMaker::kEventWait, {kB, 0xe1, 0});  //
  t.launch({1, kB});                              // 1 after 0
  t.launch({1, kA});                              // 2 after 0
  t.call(TraceMaker::kEventRecord, {0xe2, kB});   //
  t.call(TraceMaker::kEventWait, {kA, 0xe2, 0});  //
  t.launch({1, kA});                              // 3 after 1 and 2
  EXPECT_EQ(edges(build(t)), (Edges{{}, {0}, {0}, {1, 2}}));
}

TEST(GraphBuilder, ImpliedEdgesAreLeftOut) {
  TraceMaker t;
  non_blocking(t);
  t.launch({1, kA});  // 0
  t.call(TraceMaker::kEventRecord, {0xe1, kA});
  t.launch({1, kA});  // 1
  t.call(TraceMaker::kEventRecord, {0xe2, kA});
  t.call(TraceMaker::kEventWait, {kB, 0xe1, 0});
  t.call(TraceMaker::kEventWait, {kB, 0xe2, 0});
  t.launch({1, kB});  // 2: after 1, which follows 0
  t.call(TraceMaker::kEventWait, {kB, 0xe1, 0});
  t.launch({1, kB});  // 3: after 2 alone
  EXPECT_EQ(edges(build(t)), (Edges{{}, {0}, {1}, {2}}));
}

TEST(GraphBuilder, AnEventKeepsWhatItRecordedFirst) {
  TraceMaker t;
  non_blocking(t);
  t.launch({1, kA});
  t.call(TraceMaker::kEventRecord, {0xe1, kA});
  t.launch({1, kA});
  t.call(TraceMaker::kEventWait, {kB, 0xe1, 0});
  t.launch({1, kB});
  EXPECT_EQ(edges(build(t)), (Edges{{}, {0}, {0}}));
}

TEST(GraphBuilder, ADestroyedEventOrdersNothing) {
  TraceMaker t;
  non_blocking(t);
  t.launch({1, kA});
  t.call(TraceMaker::kEventRecord, {0xe1, kA});
  t.call(TraceMaker::kEventDestroy, {0xe1});
  t.call(TraceMaker::kEventWait, {kB, 0xe1, 0});
  t.launch({1, kB});
  EXPECT_EQ(edges(build(t)), (Edges{{}, {}}));
}

TEST(GraphBuilder, TheLegacyStreamOrdersWithBlockingStreams) {
  TraceMaker t;
  t.launch({1, kA});  // 0
  t.launch({1, kB});  // 1: beside it
  t.launch({1, 0});   // 2: after both
  t.launch({1, kA});  // 3: after the legacy stream's
  t.launch({1, kB});  // 4
  t.launch({1, 1});   // 5: CU_STREAM_LEGACY is the same stream
  EXPECT_EQ(edges(build(t)), (Edges{{}, {}, {0, 1}, {2}, {2}, {3, 4}}));
}

TEST(GraphBuilder, PerThreadStreamsAreOneForEachThread) {
  TraceMaker t;
  TraceMaker::Launch launch;
  launch.api = TraceMaker::kLaunchKernelPerThread;
  t.thread(1).launch(launch);  // 0
  t.thread(2).launch(launch);  // 1: another stream
  t.thread(1).launch(launch);  // 2 after 0
  t.launch({1, 2});            // 3: CU_STREAM_PER_THREAD by its handle
  t.launch({1, 0});            // 4: the legacy stream waits for both
  EXPECT_EQ(edges(build(t)), (Edges{{}, {}, {0}, {2}, {1, 3}}));
}

TEST(GraphBuilder, CapturedAndFailedCallsAreNoNodes) {
  TraceMaker t;
  TraceMaker::Launch captured{1, kA}, failed{1, kA};
  captured.flags = trace::kFlagCaptured;
  failed.result = 1;
  t.launch(captured);
  t.launch(failed);
  t.call(TraceMaker::kMemset, {0x1000, 0, 4, kA}, 1);
  t.launch({1, kA});
  EXPECT_EQ(build(t).nodes.size(), 1u);
}

TEST(GraphBuilder, KindsBytesAndHostEvents) {
  TraceMaker t;
  t.alloc(0x1000, 64);
  t.call(TraceMaker::kCopyToDevice, {0x1000, 0x7000, 64, 0});
  t.call(TraceMaker::kMemset, {0x1000, 0, 16, 0});
  t.call(TraceMaker::kGraphLaunch, {0xaa, 0});
  t.call(TraceMaker::kCopyToHost, {0x7000, 0x1000, 8, 0});
  t.call(TraceMaker::kSynchronize, {0});
  t.free(0x1000, 64);
  const Graph graph = build(t);
  ASSERT_EQ(graph.nodes.size(), 4u);
  EXPECT_EQ(graph.nodes[0].kind, NodeKind::kCopy);
  EXPECT_EQ(graph.nodes[0].bytes, 64u);
  EXPECT_EQ(graph.nodes[1].kind, NodeKind::kMemset);
  EXPECT_EQ(graph.nodes[1].bytes, 64u) << "16 elements of D32";
  EXPECT_EQ(graph.nodes[2].kind, NodeKind::kGraph);
  EXPECT_EQ(graph.nodes[3].direction, record::CopyDirection::kToHost);
  EXPECT_EQ(graph.host_reads, 1u);
  EXPECT_EQ(graph.syncs, 1u);
  std::vector<std::pair<trace::EventKind, std::uint32_t>> host;
  for (const auto& event : graph.host_events) host.emplace_back(event.kind, event.before_node);
  using trace::EventKind;
  EXPECT_EQ(
      host,
      (decltype(host){
          {EventKind::kBlockAlloc, 0}, {EventKind::kCall, 4}, {EventKind::kCall, 4}, {EventKind::kBlockFree, 4}}));
}

TEST(GraphBuilder, CopiesThroughStructsHaveDirectionAndBytes) {
  std::vector<std::uint64_t> copy(16, 0);
  copy[2] = 2;    // from the device
  copy[9] = 1;    // to the host
  copy[14] = 32;  // 32 bytes wide
  copy[15] = 4;   // 4 rows
  TraceMaker t;
  t.call_with_blob(TraceMaker::kCopy2D, {0x1234, 0}, copy);
  const Graph graph = build(t);
  ASSERT_EQ(graph.nodes.size(), 1u);
  EXPECT_EQ(graph.nodes[0].bytes, 128u);
  EXPECT_EQ(graph.nodes[0].direction, record::CopyDirection::kToHost);
}

TEST(GraphBuilder, ShapeIgnoresAddressesAndHandles) {
  const auto shape = [](std::uint64_t stream, std::uint64_t parameter, std::uint32_t grid, std::uint32_t function) {
    TraceMaker t;
    TraceMaker::Launch launch{function, stream, packed(parameter)};
    launch.grid = grid;
    t.launch(launch);
    t.launch({1, stream});
    return build(t, GraphDetail::kShape).shape_hash;
  };
  EXPECT_EQ(shape(kA, 1, 4, 1), shape(kB, 2, 4, 1));
  EXPECT_NE(shape(kA, 1, 4, 1), shape(kA, 1, 5, 1));
  EXPECT_NE(shape(kA, 1, 4, 1), shape(kA, 1, 4, 2));
}

TEST(GraphBuilder, ShapeKnowsEdges) {
  TraceMaker chain, apart;
  non_blocking(apart);
  chain.launch({1, kA});
  chain.launch({1, kA});
  apart.launch({1, kA});
  apart.launch({1, kB});
  EXPECT_NE(build(chain).shape_hash, build(apart).shape_hash);
}

TEST(GraphBuilder, ManyStreamsAndEventsStayFast) {
  // Every wait joins what another stream has, and the default stream orders with all: no work may grow with the square.
  TraceMaker t;
  for (std::uint64_t i = 0; i < 20000; ++i) {
    t.launch({1, 0x10000 + i * 8});
    t.call(TraceMaker::kEventRecord, {0x900000 + i, 0x10000 + i * 8});
    t.call(TraceMaker::kEventWait, {kA, 0x900000 + i, 0});
    if (i % 2 == 1) t.launch({1, 0});
  }
  const Graph graph = build(t, GraphDetail::kShape);
  EXPECT_EQ(graph.nodes.size(), 30000u);
  EXPECT_LE(graph.after.size(), 100000u);
}

TEST(GraphBuilder, StartsAnewAfterFinish) {
  static const ApiTable apis(TraceMaker::apis());
  GraphBuilder builder(apis, name_of, nullptr, nullptr);
  TraceMaker t;
  t.launch({1, kA});
  const trace::EventView view{reinterpret_cast<const trace::EventHeader*>(t.events()[0].second.data())};
  builder.add(view, 1, 0);
  const Graph first = builder.finish();
  builder.add(view, 1, 0);
  const Graph second = builder.finish();
  EXPECT_EQ(first.shape_hash, second.shape_hash);
  EXPECT_EQ(second.nodes.size(), 1u);
  EXPECT_TRUE(edges(second)[0].empty());
}

}  // namespace
}  // namespace grape::tools
