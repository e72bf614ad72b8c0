// Driver calls: failing ones, dead handles, the application's own captures, functions that Grape does not know.
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "compressor/trace/event.h"
#include "tests/faults/command.h"

namespace grape::faults {
namespace {

// "calls SYMBOL N" lines, which programs print about the driver's counters.
std::map<std::string, long> counters(const std::string& out) {
  std::map<std::string, long> found;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word, symbol;
    long number = 0;
    if (words >> word >> symbol >> number && word == "calls") found[symbol] = number;
  }
  return found;
}

std::string without_counters(const std::string& out) {
  std::string rest;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("calls ", 0) != 0) rest += line + "\n";
  }
  return rest;
}

// The driver functions that Grape calls on its own account: questions that change nothing and wait for nothing.
bool is_question(const std::string& symbol) {
  static const std::set<std::string> kQuestions = {"cuDriverGetVersion",
                                                   "cuFuncGetName",
                                                   "cuFuncGetParamInfo",
                                                   "cuFuncGetModule",
                                                   "cuKernelGetName",
                                                   "cuKernelGetParamInfo",
                                                   "cuKernelGetLibrary",
                                                   "cuStreamIsCapturing",
                                                   "cuStreamIsCapturing_ptsz",
                                                   "cuGraphGetNodes",
                                                   "cuGraphGetEdges",
                                                   "cuGraphGetEdges_v2",
                                                   "cuGraphNodeGetType",
                                                   "cuGraphKernelNodeGetParams",
                                                   "cuGraphKernelNodeGetParams_v2",
                                                   "cuGraphMemcpyNodeGetParams",
                                                   "cuGraphMemsetNodeGetParams",
                                                   "cuGetProcAddress",
                                                   "cuGetProcAddress_v2"};
  return kQuestions.count(symbol) != 0;
}

struct Failure {
  const char* symbol;
  int nth;
  int result;
};

std::ostream& operator<<(std::ostream& stream, const Failure& failure) {
  return stream << failure.symbol << " " << failure.nth << " " << failure.result;
}

class Row01_FailedCall : public testing::TestWithParam<Failure> {};

TEST_P(Row01_FailedCall, ReachesTheCallerAndIsMadeOnce) {
  const Failure& failure = GetParam();
  const std::string fault =
      std::string(failure.symbol) + ":" + std::to_string(failure.nth) + ":" + std::to_string(failure.result);
  Folder folder;
  const auto run = [&](bool grape) {
    Command command(folder, "job", {"calls"});
    if (grape) command.with_grape();
    return command.set("SIMCUDA_FAULTS", fault).run();
  };
  const Result without = run(false), with = run(true);
  EXPECT_EQ(with.status, without.status) << with;
  EXPECT_EQ(without_counters(with.out), without_counters(without.out));
  EXPECT_NE(without.out.find(" " + std::to_string(failure.result) + "\n"), std::string::npos) << without;
  EXPECT_TRUE(with.notices().empty()) << with;
  const auto expected = counters(without.out), seen = counters(with.out);
  for (const auto& [symbol, count] : seen) {
    if (is_question(symbol)) continue;
    EXPECT_EQ(count, expected.count(symbol) ? expected.at(symbol) : 0) << symbol;
  }
  // The trace has the failure as it was.
  const Trace trace = only_trace(folder);
  EXPECT_TRUE(trace.complete) << trace.damage;
  std::size_t failed = 0;
  for (const Called& call : trace.calls) failed += call.symbol == failure.symbol && call.result == failure.result;
  for (const Launched& launch : trace.launches) {
    if (launch.result != failure.result) continue;
    EXPECT_TRUE(launch.parameters.empty()) << "the parameters of a failed launch were read";
    ++failed;
  }
  EXPECT_GE(failed, 1u);
}

INSTANTIATE_TEST_SUITE_P(Calls, Row01_FailedCall,
                         testing::Values(Failure{"cuLaunchKernel", 1, 719}, Failure{"cuLaunchKernel", 6, 700},
                                         Failure{"cuMemAlloc_v2", 2, 2}, Failure{"cuMemcpyHtoDAsync_v2", 1, 1},
                                         Failure{"cuMemcpyDtoH_v2", 1, 700}, Failure{"cuStreamCreate", 2, 2},
                                         Failure{"cuEventRecord", 1, 400}, Failure{"cuStreamSynchronize", 1, 700},
                                         Failure{"cuModuleLoadData", 1, 200}, Failure{"cuGraphLaunch", 2, 719},
                                         Failure{"cuStreamEndCapture", 1, 901}, Failure{"cuMemFree_v2", 1, 1}));

TEST(Row06_Destroyed, HandlesAreNeverTouchedAgain) {
  Folder folder;
  const Result without = Command(folder, "destroyed").run(), with = Command(folder, "destroyed").with_grape().run();
  ASSERT_TRUE(without.exited(0)) << without;
  EXPECT_TRUE(with.exited(0)) << with;
  EXPECT_EQ(without_counters(with.out), without_counters(without.out));
  const auto expected = counters(without.out), seen = counters(with.out);
  for (const auto& [symbol, count] : seen) {
    if (is_question(symbol)) continue;
    EXPECT_EQ(count, expected.count(symbol) ? expected.at(symbol) : 0) << symbol;
  }
  for (const char* symbol : {"cuStreamIsCapturing", "cuStreamQuery", "cuStreamGetId", "cuEventQuery"}) {
    EXPECT_EQ(seen.count(symbol), 0u) << "a stream or event was asked about";
  }
  const Trace trace = only_trace(folder);
  EXPECT_TRUE(trace.complete) << trace.damage;
  EXPECT_EQ(trace.launches.size(), 150u);
  EXPECT_EQ(trace.count("cuStreamDestroy_v2"), 100u);
  EXPECT_EQ(trace.count("cuEventDestroy_v2"), 50u);
}

class Row09_OwnCapture : public testing::TestWithParam<const char*> {};

TEST_P(Row09_OwnCapture, IsNotDisturbedAndMarked) {
  Folder folder;
  const Result result = same_as_without(folder, "capture", {GetParam()});
  EXPECT_TRUE(result.exited(0)) << result;
  const Trace trace = only_trace(folder);
  EXPECT_TRUE(trace.complete) << trace.damage;
  std::map<std::string, std::pair<int, int>> seen;  // kernel: launches under capture, and others
  for (const Launched& launch : trace.launches) {
    const bool captured = (launch.flags & trace::kFlagCaptured) != 0;
    ++(captured ? seen[launch.kernel].first : seen[launch.kernel].second);
  }
  const std::map<std::string, std::pair<int, int>> expected = {
      {"captured", {2, 1}}, {"forked", {1, 0}}, {"late", {1, 0}}, {"outside", {0, 6}}};
  EXPECT_EQ(seen, expected);
  EXPECT_EQ(trace.count("cuGraphLaunch"), 3u);
}

INSTANTIATE_TEST_SUITE_P(Modes, Row09_OwnCapture, testing::Values("global", "thread", "relaxed"));

TEST(Row24_UnknownFunction, PassesThroughAndIsCounted) {
  Folder folder;
  const Result result = same_as_without(folder, "unknown", {});
  EXPECT_TRUE(result.exited(0)) << result;
  const Trace trace = only_trace(folder);
  ASSERT_TRUE(trace.complete) << trace.damage;
  std::map<std::string, std::uint64_t> unhandled;
  for (const trace::NamedCount& one : trace.end.unhandled) unhandled[one.name] += one.count;
  // Three calls each through dlsym (twice) and cuGetProcAddress. What a program links has no door to watch.
  EXPECT_EQ(unhandled["cuSimUnknown"], 9u);
  EXPECT_EQ(unhandled["cuSimVersioned"], 4u);
  EXPECT_EQ(unhandled["cuSimUnknownCount"], 1u);
}

}  // namespace
}  // namespace grape::faults
