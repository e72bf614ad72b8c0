// Many threads at once.
#include <gtest/gtest.h>

#include <sstream>

#include "tests/faults/command.h"

namespace grape::faults {
namespace {

constexpr std::size_t kThreads = 64;
constexpr std::size_t kLaunches = 200;

std::size_t thread_of(const std::string& kernel) { return std::stoul(kernel.substr(1)); }

class Row13_ManyThreads : public testing::TestWithParam<const char*> {};

TEST_P(Row13_ManyThreads, EveryLaunchIsThereInItsOrder) {
  const std::string mode = GetParam();
  Folder folder;
  const std::string log = folder.in("driver.log");
  const auto change = [&](Command& command) {
    fs::remove(log);
    command.set("SIMCUDA_LOG", log);
  };
  const Result result =
      same_as_without(folder, "threads", {mode, std::to_string(kThreads), std::to_string(kLaunches)}, change);
  EXPECT_TRUE(result.exited(0)) << result;
  const Trace trace = only_trace(folder);
  EXPECT_TRUE(trace.complete) << trace.damage;
  EXPECT_EQ(trace.end.lost, 0u);
  ASSERT_EQ(trace.launches.size(), kThreads * kLaunches);

  // By thread: the place in its order, its parameters, its stream, and one recorded thread for each.
  std::vector<std::vector<std::string>> order(kThreads);
  std::vector<std::uint32_t> numbers(kThreads, 0);
  std::vector<std::uint64_t> streams(kThreads, 0);
  for (const Launched& launch : trace.launches) {
    const std::size_t thread = thread_of(launch.kernel);
    ASSERT_LT(thread, kThreads);
    const std::uint64_t tag = (static_cast<std::uint64_t>(thread) << 32) | order[thread].size();
    EXPECT_EQ(launch.word(mode == "shared" ? 8 : 16), tag);
    if (order[thread].empty()) {
      numbers[thread] = launch.thread;
      streams[thread] = launch.stream;
    }
    EXPECT_EQ(launch.thread, numbers[thread]);
    EXPECT_EQ(launch.stream, streams[thread]);
    order[thread].push_back(launch.kernel);
  }
  // What the driver executed, in its order: the same for each thread.
  std::vector<std::vector<std::string>> executed(kThreads);
  std::istringstream lines(content(log));
  std::string number, stream, kernel;
  while (lines >> number >> stream >> kernel) executed.at(thread_of(kernel)).push_back(kernel);
  EXPECT_EQ(order, executed);
}

INSTANTIATE_TEST_SUITE_P(Streams, Row13_ManyThreads, testing::Values("shared", "own", "default"));

class Row13_HeldCall : public testing::TestWithParam<const char*> {};

TEST_P(Row13_HeldCall, HoldsNoLockAgainstTheOthers) {
  Folder folder;
  const Result result = same_as_without(folder, "held_call", {GetParam()});
  EXPECT_TRUE(result.exited(0)) << result;
  const Trace trace = only_trace(folder);
  EXPECT_TRUE(trace.complete) << trace.damage;
  EXPECT_EQ(trace.launches.size(), 1000u);
}

INSTANTIATE_TEST_SUITE_P(Calls, Row13_HeldCall, testing::Values("stream", "event", "copy"));

TEST(Row10_OtherThread, DuringARegionIsNotPartOfIt) {
  if (std::string(PYTHON_PROGRAM).empty()) GTEST_SKIP() << "no Python here";
  Folder folder;
  const Result result = same_as_without(folder, PYTHON_PROGRAM, {PROGRAM_SOURCES "/regions.py"}, [](Command& command) {
    command.set("PYTHONPATH", FAKE_TORCH);
    command.set("PROBE_LIBRARY", FAULT_PROGRAMS "/libengine.so");
  });
  ASSERT_TRUE(result.exited(0)) << result;
  EXPECT_EQ(result.out, "60 200\n");
  const Trace trace = only_trace(folder);
  EXPECT_TRUE(trace.complete) << trace.damage;
  std::size_t inside = 0;
  for (const Called& call : trace.calls) {
    if (call.symbol == "cuMemsetD8Async") {
      EXPECT_NE(call.region.find("Inside"), std::string::npos) << "in \"" << call.region << "\"";
      ++inside;
    } else {
      EXPECT_EQ(call.region, "") << call.symbol;
    }
  }
  EXPECT_EQ(inside, 60u);
  EXPECT_EQ(trace.count("cuMemsetD32Async"), 200u);
}

}  // namespace
}  // namespace grape::faults
