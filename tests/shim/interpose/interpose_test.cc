// Runs the programs of this folder with libgrape.so preloaded, and reads the traces that they leave.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "compressor/trace/reader.h"

namespace {

using grape::trace::EventKind;
using grape::trace::EventView;
using grape::trace::Reader;

struct Event {
  grape::trace::EventHeader header;
  std::vector<std::uint64_t> words;
};

struct Outcome {
  int status = -1;
  std::string output;  // stdout and stderr
  std::unique_ptr<Reader> trace;
  std::vector<Event> events;

  std::vector<const Event*> of_kind(EventKind kind) const {
    std::vector<const Event*> result;
    for (const Event& event : events) {
      if (event.header.kind == kind) result.push_back(&event);
    }
    return result;
  }
  std::string api(const Event& event) const {
    const std::uint32_t id = event.header.kind == EventKind::kLaunch ? grape::trace::high(event.words[0])
                                                                     : grape::trace::low(event.words[0]);
    return id == 0 || id > trace->meta().apis.size() ? "?" : trace->meta().apis[id - 1].symbol;
  }
  std::vector<const Event*> calls(const std::string& symbol) const {
    std::vector<const Event*> result;
    for (const Event* event : of_kind(EventKind::kCall)) {
      if (api(*event) == symbol) result.push_back(event);
    }
    return result;
  }
  std::string function(std::uint32_t id) const { return trace->tables().functions.at(id).name; }
};

class Folder {
 public:
  Folder() {
    char pattern[] = "/tmp/interpose-test-XXXXXX";
    path_ = mkdtemp(pattern);
  }
  ~Folder() {
    unlink(trace().c_str());
    unlink((path_ + "/output").c_str());
    rmdir(path_.c_str());
  }
  std::string trace() const { return path_ + "/run.grape"; }
  std::string output() const { return path_ + "/output"; }

 private:
  std::string path_;
};

void read_trace(const std::string& path, Outcome& run) {
  grape::trace::Error error;
  run.trace = Reader::open(path, error);
  if (run.trace == nullptr) return;
  EventView view;
  std::uint32_t thread = 0;
  while (run.trace->next(view, thread)) {
    Event event{*view.header, {}};
    event.words.assign(view.words(), view.words() + view.word_count());
    run.events.push_back(std::move(event));
  }
}

Outcome run(const std::string& program, const std::vector<std::string>& arguments = {},
            const std::vector<std::string>& environment = {}, const std::string& preload = LIBGRAPE) {
  Folder folder;
  std::string command = "exec env";
  for (const char* name : {"GRAPE_DISABLE", "GRAPE_MODE"}) command += std::string(" -u ") + name;
  command += " LD_LIBRARY_PATH=" DRIVER_FOLDER " GRAPE_TRACE=" + folder.trace() + " 'LD_PRELOAD=" + preload + "'";
  for (const std::string& variable : environment) command += " '" + variable + "'";
  command += " " PROGRAM_FOLDER "/" + program;
  for (const std::string& argument : arguments) command += " '" + argument + "'";
  command += " > " + folder.output() + " 2>&1";
  Outcome result;
  // The command is put together above from fixed words and paths of the build.
  result.status = std::system(command.c_str());  // NOLINT(cert-env33-c)
  if (FILE* file = std::fopen(folder.output().c_str(), "r")) {
    char buffer[4096];
    std::size_t bytes = 0;
    while ((bytes = std::fread(buffer, 1, sizeof(buffer), file)) > 0) result.output.append(buffer, bytes);
    std::fclose(file);
  }
  read_trace(folder.trace(), result);
  return result;
}

// Every call that the program reports must stand in the trace, exactly as often.
void expect_calls_recorded(const Outcome& run) {
  ASSERT_NE(run.trace, nullptr) << run.output;
  EXPECT_TRUE(run.trace->complete()) << run.trace->damage().message;
  std::map<std::string, std::uint64_t> recorded;
  for (const Event& event : run.events) {
    if (event.header.kind == EventKind::kCall || event.header.kind == EventKind::kLaunch) ++recorded[run.api(event)];
  }
  std::istringstream lines(run.output);
  std::string word;
  std::size_t rows = 0;
  while (lines >> word) {
    if (word != "calls") continue;
    std::string symbol;
    std::uint64_t count = 0;
    lines >> symbol >> count;
    EXPECT_EQ(recorded[symbol], count) << symbol;
    ++rows;
  }
  EXPECT_GT(rows, 0u) << run.output;
}

TEST(Routes, EveryRowByEveryDoor) {
  const Outcome result = run("interpose_routes");
  EXPECT_EQ(result.status, 0) << result.output;
  expect_calls_recorded(result);
}

TEST(Routes, EveryRowLinked) {
  const Outcome result = run("interpose_linked");
  EXPECT_EQ(result.status, 0) << result.output;
  expect_calls_recorded(result);
}

TEST(Routes, LinkedAndOffReachesTheDriverAndLeavesNoTrace) {
  for (const char* variable : {"GRAPE_MODE=off", "GRAPE_DISABLE=1"}) {
    const Outcome result = run("interpose_linked", {}, {variable, "INTERPOSE_EXPECT_OFF=1"});
    EXPECT_EQ(result.status, 0) << variable << "\n" << result.output;
    EXPECT_EQ(result.trace, nullptr) << variable;
  }
}

TEST(Routes, OffReplacesNothing) {
  const Outcome result = run("interpose_routes", {}, {"GRAPE_MODE=off"});
  EXPECT_NE(result.status, 0);  // each row says that it got no function of the library
  EXPECT_EQ(result.trace, nullptr);
  EXPECT_NE(result.output.find("cuLaunchKernel by dlsym: not in_grape"), std::string::npos) << result.output;
  EXPECT_EQ(result.output.find("counts"), std::string::npos) << "every call reached the driver once";
}

TEST(Names, PrefixesVersionsAndUnknownFunctions) {
  const Outcome result = run("interpose_names", {TRAP_LIBRARY});
  EXPECT_EQ(result.status, 0) << result.output;
  ASSERT_NE(result.trace, nullptr) << result.output;
  ASSERT_NE(result.trace->end(), nullptr);
  std::map<std::string, std::uint64_t> unhandled;
  for (const auto& entry : result.trace->end()->unhandled) unhandled[entry.name] = entry.count;
  EXPECT_EQ(unhandled["cuQuiteUnknown"], 6u);
  EXPECT_EQ(unhandled["cuCtxSynchronize"], 1u) << "the version that is not known";
  EXPECT_EQ(unhandled.count("cuCtxGetCurrent"), 0u);
  EXPECT_EQ(unhandled.size(), 2u);
}

TEST(Names, AnOlderDriverIsTakenForWhatItIs) {
  const Outcome result = run("interpose_old_driver");
  EXPECT_EQ(result.status, 0) << result.output;
  expect_calls_recorded(result);
}

TEST(Neighbours, AnotherPreloadedLibraryBeforeAndBehind) {
  for (const char* preload : {LIBGRAPE ":" OTHER_LIBRARY, OTHER_LIBRARY ":" LIBGRAPE}) {
    const Outcome result = run("interpose_preload", {DEEP_LIBRARY}, {}, preload);
    EXPECT_EQ(result.status, 0) << preload << "\n" << result.output;
    // The other library stands in the linked route, and only there.
    std::size_t times = 0;
    for (std::size_t at = 0; (at = result.output.find("other cuInit", at)) != std::string::npos; ++at) ++times;
    EXPECT_EQ(times, 1u) << preload;
  }
}

TEST(Neighbours, TheDriverCallsBackAndIsLoadedAgain) {
  const Outcome result = run("interpose_reentry");
  EXPECT_EQ(result.status, 0) << result.output;
  ASSERT_NE(result.trace, nullptr) << result.output;
  EXPECT_EQ(result.calls("cuLaunchHostFunc").size(), 1u);
  EXPECT_EQ(result.calls("cuCtxSynchronize").size(), 1u) << "the one within another call is the driver's affair";
  ASSERT_EQ(result.of_kind(EventKind::kLaunch).size(), 2u);
  EXPECT_EQ(result.function(grape::trace::low(result.of_kind(EventKind::kLaunch)[0]->words[0])), "before_reload");
  // The same handle: what was known of it went with the driver.
  EXPECT_EQ(result.function(grape::trace::low(result.of_kind(EventKind::kLaunch)[1]->words[0])), "after_reload");
}

TEST(Neighbours, DeepBindingAndSearchPaths) {
  const Outcome result = run("interpose_preload", {DEEP_LIBRARY});
  EXPECT_EQ(result.status, 0) << result.output;
}

class Events : public testing::Test {
 protected:
  static void SetUpTestSuite() { run_ = new Outcome(run("interpose_events")); }
  static void TearDownTestSuite() {
    delete run_;
    run_ = nullptr;
  }
  void SetUp() override {
    ASSERT_EQ(run_->status, 0) << run_->output;
    ASSERT_NE(run_->trace, nullptr);
    ASSERT_TRUE(run_->trace->complete());
  }
  static const Event& launch(std::size_t index) { return *run_->of_kind(EventKind::kLaunch).at(index); }
  static const std::uint8_t* parameters(const Event& event) {
    return reinterpret_cast<const std::uint8_t*>(event.words.data() + 8 + grape::trace::low(event.words[7]) * 9);
  }
  static Outcome* run_;
};
Outcome* Events::run_ = nullptr;

TEST_F(Events, ALaunchByLayout) {
  for (std::size_t i : {0u, 1u}) {
    const Event& event = launch(i);
    EXPECT_EQ(run_->api(event), "cuLaunchKernel");
    EXPECT_EQ(run_->function(grape::trace::low(event.words[0])), "_Z3gapPfi5Three");
    EXPECT_EQ(event.words[2], grape::trace::pack(1, 2));
    EXPECT_EQ(event.words[3], grape::trace::pack(3, 4));
    EXPECT_EQ(event.words[4], grape::trace::pack(5, 6));
    EXPECT_EQ(event.words[5], grape::trace::pack(7, 0));
    EXPECT_EQ(event.words[6], 0x50u);
    EXPECT_EQ(event.words[7], grape::trace::pack(0, 19));
    const std::uint8_t expected[24] = {0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0xdd, 0xcc, 0xbb, 0xaa,
                                       0,    0,    0,    0,    1,    2,    3,    0,    0,    0,    0,    0};
    ASSERT_EQ(event.words.size(), 11u);
    EXPECT_EQ(std::memcmp(parameters(event), expected, sizeof(expected)), 0) << "gaps and padding are zeros";
  }
}

TEST_F(Events, ALaunchWithAttributesAndPackedParameters) {
  const Event& event = launch(2);
  EXPECT_EQ(run_->api(event), "cuLaunchKernelEx");
  EXPECT_EQ(event.header.flags, grape::trace::kFlagPackedExtra);
  EXPECT_EQ(run_->function(grape::trace::low(event.words[0])), "kernel_handle");
  EXPECT_EQ(event.words[7], grape::trace::pack(2, 11));
  std::uint32_t first_attribute = 0;
  std::memcpy(&first_attribute, event.words.data() + 8, 4);
  EXPECT_EQ(first_attribute, 4u);  // CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
  EXPECT_EQ(parameters(event)[0], 9);
  EXPECT_EQ(parameters(event)[10], 42);
}

TEST_F(Events, CooperativeLaunches) {
  EXPECT_EQ(launch(3).header.flags, grape::trace::kFlagCooperative);
  EXPECT_EQ(run_->function(grape::trace::low(launch(3).words[0])), "bare");
  for (std::size_t i : {4u, 5u}) {
    EXPECT_EQ(run_->api(launch(i)), "cuLaunchCooperativeKernelMultiDevice");
    EXPECT_EQ(launch(i).words[7], grape::trace::pack(0, 8));
  }
}

TEST_F(Events, RefusedLaunchesCarryTheirResultAndNothingElse) {
  for (std::size_t i : {6u, 7u}) {
    EXPECT_EQ(grape::trace::high(launch(i).words[5]), 1u);
    EXPECT_EQ(launch(i).words[7], 0u);
    EXPECT_EQ(grape::trace::low(launch(i).words[0]), 0u);
  }
}

TEST_F(Events, AReusedHandleIsAnotherFunction) {
  EXPECT_EQ(run_->function(grape::trace::low(launch(8).words[0])), "reused");
}

TEST_F(Events, CapturedWorkIsMarked) {
  const auto flag = [](const Event& event) { return event.header.flags & grape::trace::kFlagCaptured; };
  EXPECT_EQ(launch(9).words[2], grape::trace::pack(2, 1));
  EXPECT_NE(flag(launch(9)), 0);
  EXPECT_EQ(flag(launch(10)), 0) << "the legacy default stream";
  EXPECT_EQ(flag(launch(11)), 0) << "after the capture";
  ASSERT_EQ(run_->calls("cuMemcpyDtoDAsync_v2").size(), 1u);
  EXPECT_NE(flag(*run_->calls("cuMemcpyDtoDAsync_v2")[0]), 0);
}

TEST_F(Events, OutHandles) {
  const auto created = run_->calls("cuStreamCreate");
  ASSERT_EQ(created.size(), 2u);
  EXPECT_EQ(created[0]->words[2], grape::trace::pack(2, 0));
  EXPECT_EQ(created[0]->words[3], 0xbeefu);
  EXPECT_EQ(created[0]->words[4], 1u);
  EXPECT_EQ(grape::trace::high(created[1]->words[0]), 2u) << "the result of the one that failed";
  EXPECT_EQ(created[1]->words[3], 0u) << "its out-parameter is not read";
}

TEST_F(Events, TextStructsAndArrays) {
  const Event& named = *run_->calls("cuModuleGetFunction").at(0);
  ASSERT_EQ(named.words.size(), 3u + 3 + 2);
  EXPECT_EQ(named.words[6], grape::trace::pack(2, 6));
  EXPECT_EQ(std::memcmp(&named.words[7], "a_name\0", 8), 0);

  const Event& copy = *run_->calls("cuMemcpy2D_v2").at(0);
  EXPECT_EQ(copy.words[4], grape::trace::pack(0, 128));
  EXPECT_EQ(copy.words[5 + 14], 123u);

  const Event& map = *run_->calls("cuTensorMapEncodeTiled").at(0);
  const std::size_t blob = 3 + 12;
  EXPECT_EQ(map.words[blob], grape::trace::pack(0, 128));
  EXPECT_EQ(map.words[blob + 1], 99u);
  EXPECT_EQ(map.words[blob + 17], grape::trace::pack(4, 24));  // three dimensions
  EXPECT_EQ(map.words[blob + 20], 13u);
  EXPECT_EQ(map.words[blob + 21], grape::trace::pack(5, 16));  // and one stride less
  EXPECT_EQ(map.words[blob + 24], grape::trace::pack(6, 12));

  const Event& prefetch = *run_->calls("cuMemPrefetchAsync_v2").at(0);
  EXPECT_EQ(prefetch.words[3 + 5], grape::trace::pack(2, 8)) << "a struct by value";

  const Event& set_pool = *run_->calls("cuMemSetMemPool").at(0);
  EXPECT_EQ(set_pool.words[3 + 1], 1u) << "the type";
  EXPECT_EQ(set_pool.words[3 + 3], grape::trace::pack(0, 8)) << "a struct behind a pointer";
}

TEST_F(Events, ANodesParametersFollowItsStruct) {
  const Event& event = *run_->calls("cuGraphExecKernelNodeSetParams_v2").at(0);
  const std::uint64_t* blob = event.words.data() + 6;
  EXPECT_EQ(grape::trace::low(blob[0]), 2u);
  const std::size_t words = (grape::trace::high(blob[0]) + 7) / 8;
  EXPECT_EQ(blob[1 + words], grape::trace::pack(2, 8));
  EXPECT_EQ(blob[2 + words], 0x77u);
}

TEST_F(Events, NoCallIsEarlierThanTheTrace) {
  std::size_t timed = 0;
  for (const Event& event : run_->events) {
    if (event.header.kind != EventKind::kCall && event.header.kind != EventKind::kLaunch) continue;
    EXPECT_GE(event.header.ticks, run_->trace->meta().start_ticks) << run_->api(event);
    ++timed;
  }
  EXPECT_GT(timed, 10u);
}

TEST_F(Events, ContentsOfAnInstantiatedGraph) {
  const auto nodes = run_->of_kind(EventKind::kExecNode);
  ASSERT_EQ(nodes.size(), 6u);
  const std::uint32_t types[6] = {2, 4, 0, 0, 0, 0};  // memset, child graph, kernels
  for (std::uint32_t i = 0; i < 6; ++i) {
    EXPECT_EQ(nodes[i]->words[0], 0xe4ecu);
    EXPECT_EQ(nodes[i]->words[1], grape::trace::pack(i, types[i])) << i;
  }
  EXPECT_EQ(run_->function(grape::trace::low(nodes[2]->words[2])), "kernel_handle");
  EXPECT_EQ(nodes[2]->words[3], grape::trace::pack(6, 0));
  EXPECT_EQ(nodes[2]->words[7], 0x4242u);
  const auto edges = run_->of_kind(EventKind::kExecEdges);
  ASSERT_EQ(edges.size(), 1u);
  std::map<std::pair<std::uint32_t, std::uint32_t>, int> found;
  for (std::size_t i = 2; i < edges[0]->words.size(); ++i) {
    ++found[{grape::trace::low(edges[0]->words[i]), grape::trace::high(edges[0]->words[i])}];
  }
  const std::map<std::pair<std::uint32_t, std::uint32_t>, int> expected = {
      {{0, 1}, 1}, {{1, 2}, 1}, {{2, 3}, 1}, {{3, 4}, 1}};
  EXPECT_EQ(found, expected) << "what follows the child graph follows its last node";
}

TEST(Ranges, WhatLiesOutsideIsNotRecordedButForStreamsAndGraphs) {
  const Outcome outcome = run("interpose_ranges", {}, {"GRAPE_TRACE_RANGE=profiler"});
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(outcome.output, "");
  ASSERT_NE(outcome.trace, nullptr);
  EXPECT_TRUE(outcome.trace->complete());
  EXPECT_TRUE(outcome.trace->meta().ranges);
  std::vector<std::string> seen;
  for (const Event& event : outcome.events) {
    if (event.header.kind == EventKind::kCall) seen.push_back(outcome.api(event));
    if (event.header.kind == EventKind::kLaunch) seen.push_back(std::to_string(grape::trace::low(event.words[2])));
    if (event.header.kind == EventKind::kExecNode) seen.push_back("node");
  }
  const std::vector<std::string> expected = {"cuStreamCreate",
                                             "cuGraphInstantiateWithFlags",
                                             "node",
                                             "cuProfilerStart",
                                             "10",
                                             "cuProfilerStop",
                                             "cuProfilerStart",
                                             "20",
                                             "cuProfilerStop"};
  EXPECT_EQ(seen, expected);
  for (const Event* launch : outcome.of_kind(EventKind::kLaunch)) {
    EXPECT_EQ(outcome.function(grape::trace::low(launch->words[0])), "bare");
  }
}

TEST(Ranges, WithoutThemEverythingIsRecorded) {
  const Outcome outcome = run("interpose_ranges");
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(outcome.of_kind(EventKind::kLaunch).size(), 5u);
  EXPECT_EQ(outcome.calls("cuProfilerStart").size(), 2u);
  EXPECT_EQ(outcome.calls("cuMemAlloc_v2").size(), 1u);
}

TEST(Ranges, WhereNoneBeginsItIsSaid) {
  const Outcome outcome = run("interpose_ranges", {"none"}, {"GRAPE_TRACE_RANGE=profiler"});
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("grape: nothing was recorded"), std::string::npos) << outcome.output;
}

TEST(Stacks, NativeFramesFromTheLaunchOutToMain) {
  const Outcome result = run("interpose_events", {}, {"GRAPE_STACKS=native"});
  EXPECT_EQ(result.status, 0) << result.output;
  const auto launches = result.of_kind(EventKind::kLaunch);
  ASSERT_FALSE(launches.empty());
  const auto& frames = result.trace->tables().native_frames;
  for (const Event* launch : launches) {
    std::vector<std::string> objects;
    for (std::uint32_t id = grape::trace::high(launch->words[1]); id != 0; id = frames.at(id).parent) {
      const std::string& object = frames.at(id).object;
      objects.push_back(object.substr(object.rfind('/') + 1));
    }
    ASSERT_GE(objects.size(), 3u);
    EXPECT_EQ(objects.front(), "interpose_events") << "none of the library's own frames";
    EXPECT_EQ(std::count(objects.begin(), objects.end(), ""), 0) << "every frame lies in some file";
    EXPECT_NE(std::count(objects.begin(), objects.end(), "libc.so.6"), 0) << "what called main";
  }
}

TEST(Stacks, NoNativeFramesUnlessAskedFor) {
  const Outcome result = run("interpose_events");
  EXPECT_TRUE(result.of_kind(EventKind::kDefNativeFrame).empty());
  for (const Event* launch : result.of_kind(EventKind::kLaunch)) EXPECT_EQ(grape::trace::high(launch->words[1]), 0u);
}

TEST(Allocator, BlocksOfTheDevice) {
  const Outcome result = run("interpose_allocator", {C10_LIBRARY});
  EXPECT_EQ(result.status, 0) << result.output;
  ASSERT_NE(result.trace, nullptr) << result.output;
  const auto taken = result.of_kind(EventKind::kBlockAlloc);
  const auto given = result.of_kind(EventKind::kBlockFree);
  ASSERT_EQ(taken.size(), 1u);
  ASSERT_EQ(given.size(), 1u);
  EXPECT_EQ(taken[0]->words[0], 0x1000u);
  EXPECT_EQ(taken[0]->words[1], 512u);
  EXPECT_EQ(grape::trace::high(taken[0]->words[2]), 3u);
  EXPECT_EQ(given[0]->words[1], 512u);
  EXPECT_LT(taken[0]->header.sequence, given[0]->header.sequence);
  EXPECT_EQ(result.output, "");
}

TEST(Allocator, AnOlderPyTorchIsSaidSo) {
  const Outcome result = run("interpose_allocator", {C10_OLDER_LIBRARY});
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_NE(result.output.find("allocator"), std::string::npos) << result.output;
  ASSERT_NE(result.trace, nullptr);
  ASSERT_NE(result.trace->end(), nullptr);
  EXPECT_EQ(result.trace->end()->notices.size(), 1u);
}

}  // namespace
