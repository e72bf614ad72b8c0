// The process, or its trace, ends at any moment.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <time.h>

#include <csignal>
#include <cstdlib>
#include <random>

#include "tests/faults/command.h"

namespace grape::faults {
namespace {

constexpr int kPoints = 1000;  // KILL_POINTS sets another number

int points() {
  const char* text = std::getenv("KILL_POINTS");
  const int number = text == nullptr ? 0 : std::atoi(text);
  return number > 0 ? number : kPoints;
}

std::uint64_t microseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000 + static_cast<std::uint64_t>(now.tv_nsec) / 1000;
}

void sleep_microseconds(std::uint64_t time) {
  const timespec pause{static_cast<time_t>(time / 1'000'000), static_cast<long>(time % 1'000'000) * 1000};
  nanosleep(&pause, nullptr);
}

std::vector<std::uint8_t> bytes_of(const std::string& path) {
  const std::string text = content(path);
  return {text.begin(), text.end()};
}

// A trace with many chunks, from a whole run.
std::string whole_trace(const Folder& folder) {
  const Result result = Command(folder, "churn", {"200", "10"}).with_grape().run();
  EXPECT_TRUE(result.exited(0)) << result;
  const auto traces = folder.traces();
  EXPECT_EQ(traces.size(), 1u);
  return traces.empty() ? "" : traces[0];
}

TEST(Row15_Kill, AtAnyMomentLeavesAReadablePrefix) {
  const std::vector<std::string> arguments = {"400", "10"};
  Folder measured;
  const std::uint64_t begin = microseconds();
  ASSERT_TRUE(Command(measured, "churn", arguments).with_grape().run().exited(0));
  const std::uint64_t whole = microseconds() - begin;
  const std::size_t all = only_trace(measured).launches.size();

  const int count = points();
  std::mt19937 random(15);
  std::uniform_int_distribution<std::uint64_t> moment(0, whole);
  std::vector<std::uint64_t> moments;
  for (int i = 0; i < count; ++i) moments.push_back(moment(random));
  std::atomic<int> none{0}, headless{0}, partial{0}, finished{0};
  for_each_of(count, [&](int i) {
    Folder folder;
    const pid_t pid = Command(folder, "churn", arguments).with_grape().start();
    sleep_microseconds(moments[static_cast<std::size_t>(i)]);
    kill(pid, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    const auto traces = folder.traces();
    ASSERT_LE(traces.size(), 1u);
    if (traces.empty()) {
      ++none;
      return;
    }
    const std::uint64_t size = fs::file_size(traces[0]);
    const Trace trace = read_trace(traces[0]);
    if (trace.headless) {
      EXPECT_LT(size, 16u) << trace.error;
      ++headless;
      return;
    }
    ASSERT_TRUE(trace.readable) << trace.error << " in " << size << " bytes";
    EXPECT_LE(trace.launches.size(), all);
    EXPECT_EQ(trace.complete, trace.launches.size() == all && trace.damage.empty() && trace.end.events > 0);
    ++(trace.complete ? finished : partial);
  });
  RecordProperty("no file", none);
  RecordProperty("no whole file header", headless);
  RecordProperty("prefix", partial);
  RecordProperty("complete", finished);
  EXPECT_GE(partial, count / 10) << "too few of the kills fell into the writing to say anything";
}

TEST(Row15_Truncation, AtAnyOffsetReadsUpToTheLastWholeChunk) {
  Folder folder;
  const std::string path = whole_trace(folder);
  const std::vector<std::uint8_t> bytes = bytes_of(path);
  const Trace whole = read_trace(bytes);
  ASSERT_TRUE(whole.complete);
  std::mt19937 random(27);
  std::uniform_int_distribution<std::size_t> offset(0, bytes.size() - 1);
  std::map<std::size_t, std::uint64_t> events;  // by length of what was left
  for (int i = 0; i < 1000; ++i) {
    const std::size_t left = offset(random);
    const Trace trace = read_trace(std::vector<std::uint8_t>(bytes.begin(), bytes.begin() + static_cast<long>(left)));
    EXPECT_FALSE(trace.complete) << left << " of " << bytes.size();
    EXPECT_EQ(trace.readable, left >= 16) << left << " bytes, more than the file's header: " << trace.error;
    events[left] = trace.events;
  }
  std::uint64_t before = 0;
  for (const auto& [left, count] : events) {
    EXPECT_GE(count, before) << "a longer file gave less, at " << left;
    before = count;
  }
  EXPECT_GT(before, whole.events / 2);
}

TEST(Row15_Dump, SaysThatItIsIncompleteAndHasAStatusOfItsOwn) {
  if (std::string(GRAPE_TOOL).empty()) GTEST_SKIP() << "built without the tool";
  Folder folder;
  const std::string path = whole_trace(folder);
  const std::vector<std::uint8_t> bytes = bytes_of(path);
  const Result good = Command(folder, GRAPE_TOOL, {"dump", path}).run();
  EXPECT_TRUE(good.exited(0)) << good;
  for (const std::size_t part : {2u, 3u, 10u, 100u}) {
    const std::size_t left = bytes.size() - bytes.size() / part;
    const std::string cut = folder.in("cut.grape");
    fs::copy_file(path, cut, fs::copy_options::overwrite_existing);
    fs::resize_file(cut, left);
    const Trace trace = read_trace(cut);
    const Result result = Command(folder, GRAPE_TOOL, {"dump", cut}).run();
    EXPECT_TRUE(result.exited(3)) << result;
    const std::string said = result.out + result.err;
    EXPECT_NE(said.find("incomplete"), std::string::npos) << result;
    EXPECT_NE(said.find(std::to_string(trace.events)), std::string::npos) << trace.events << " events\n" << result;
  }
}

}  // namespace
}  // namespace grape::faults
