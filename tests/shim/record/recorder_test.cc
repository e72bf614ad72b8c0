// The recorder end to end, without a driver: record_program writes events, and the trace is read back.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compressor/trace/reader.h"

namespace grape::record {
namespace {

namespace fs = std::filesystem;

class RecorderTest : public testing::Test {
 protected:
  RecorderTest() {
    std::string pattern = (fs::temp_directory_path() / "grape-test-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~RecorderTest() override { fs::remove_all(folder_); }
  std::string trace() const { return (folder_ / "t.grape").string(); }

  // The status as waitpid gives it; stdout and stderr are kept. Nested entries know each other by their addresses on
  // the stack: where there is an address sanitizer, it must leave locals there.
  int run(const std::string& arguments, const std::string& settings = "") {
    const std::string command = "cd '" + folder_.string() + "' && env -u GRAPE_DISABLE GRAPE_TRACE=t.grape " +
                                "ASAN_OPTIONS=\"$ASAN_OPTIONS:detect_stack_use_after_return=0\" " + settings +
                                " " RECORD_PROGRAM " " + arguments + " >out 2>err";
    const int status = std::system(("sh -c '" + quoted(command) + "'").c_str());
    out_ = content("out");
    err_ = content("err");
    return status;
  }
  static std::string quoted(const std::string& text) {
    std::string result;
    for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return result;
  }
  std::string content(const std::string& name) const {
    std::ifstream file(folder_ / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::unique_ptr<trace::Reader> open() {
    trace::Error error;
    auto reader = trace::Reader::open(trace(), error);
    EXPECT_NE(reader, nullptr) << error.message;
    return reader;
  }
  // Per thread number of the payload: how many events came, each in its order.
  static std::map<std::uint32_t, std::uint32_t> counts_in_order(trace::Reader& reader) {
    std::map<std::uint32_t, std::uint32_t> counts;
    trace::EventView event;
    std::uint32_t thread = 0;
    std::uint64_t last = 0;
    while (reader.next(event, thread)) {
      EXPECT_GT(event.header->sequence, last);
      last = event.header->sequence;
      if (event.header->kind != trace::EventKind::kBlockFree) continue;
      const std::uint64_t word = event.words()[0];
      EXPECT_EQ(trace::high(word), counts[trace::low(word)]);
      ++counts[trace::low(word)];
    }
    return counts;
  }
  fs::path folder_;
  std::string out_, err_;
};

TEST_F(RecorderTest, TheCommandIsThatWhichTheProcessWasStartedWith) {
  ASSERT_EQ(run("exit with more"), 5 << 8);
  const std::string command = open()->meta().command;
  EXPECT_NE(command.find(" exit with more"), std::string::npos) << command;
}

TEST_F(RecorderTest, AProcessThatRecordsNothingLeavesNoFile) {
  const int status = run("nothing");
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_FALSE(fs::exists(trace()));
  EXPECT_EQ(err_, "");
}

TEST_F(RecorderTest, KeepsEveryEventOfManyThreadsInTheirOrder) {
  ASSERT_EQ(run("threads 64 2000"), 0) << err_;
  auto reader = open();
  ASSERT_NE(reader, nullptr);
  const auto counts = counts_in_order(*reader);
  ASSERT_EQ(counts.size(), 64u);
  for (const auto& [thread, count] : counts) EXPECT_EQ(count, 2000u) << thread;
  EXPECT_TRUE(reader->complete());
  EXPECT_EQ(reader->end()->lost, 0u);
  EXPECT_EQ(reader->end()->events, 64u * 2000u);
  EXPECT_EQ(err_, "");
}

TEST_F(RecorderTest, WhatHappensLaterHasTheHigherNumberWhicheverThreadDoesIt) {
  ASSERT_EQ(run("token 8 3000"), 0) << err_;
  auto reader = open();
  ASSERT_NE(reader, nullptr);
  const auto counts = counts_in_order(*reader);  // all threads write as one
  EXPECT_EQ(counts, (std::map<std::uint32_t, std::uint32_t>{{1, 8 * 6000}}));
}

TEST_F(RecorderTest, WhatIsLostIsCounted) {
  constexpr long kEvents = 60'000;  // 480 MB, through buffers of 128
  ASSERT_EQ(run("flood " + std::to_string(kEvents)), 0) << err_;
  auto reader = open();
  ASSERT_NE(reader, nullptr);
  long read = 0, said = 0;
  trace::EventView event;
  std::uint32_t thread = 0;
  while (reader->next(event, thread)) {
    if (event.header->kind == trace::EventKind::kDefNativeFrame) ++read;
    if (event.header->kind == trace::EventKind::kLost) said += static_cast<long>(event.words()[0]);
  }
  ASSERT_TRUE(reader->complete()) << reader->damage().message;
  EXPECT_EQ(read, std::atol(out_.c_str()));
  EXPECT_EQ(read + static_cast<long>(reader->end()->lost), kEvents);
  EXPECT_LE(said, static_cast<long>(reader->end()->lost));
}

TEST_F(RecorderTest, OnlyRangesAreRecordedWhereTheyAreAskedFor) {
  ASSERT_EQ(run("ranges", "GRAPE_TRACE_RANGE=profiler"), 0) << err_;
  auto reader = open();
  ASSERT_NE(reader, nullptr);
  EXPECT_TRUE(reader->meta().ranges);
  const auto counts = counts_in_order(*reader);
  EXPECT_EQ(counts, (std::map<std::uint32_t, std::uint32_t>{{1, 4}, {2, 1}}));
  EXPECT_TRUE(reader->complete());
  EXPECT_EQ(err_, "");
}

TEST_F(RecorderTest, RangesMeanNothingWhereTheyAreNotAskedFor) {
  ASSERT_EQ(run("ranges"), 0) << err_;
  auto reader = open();
  ASSERT_NE(reader, nullptr);
  EXPECT_FALSE(reader->meta().ranges);
  trace::EventView event;
  std::uint32_t thread = 0, read = 0;
  while (reader->next(event, thread)) ++read;
  EXPECT_EQ(read, 7u);
}

TEST_F(RecorderTest, AProgramThatNeverBeginsARangeIsToldSo) {
  ASSERT_EQ(run("exit", "GRAPE_TRACE_RANGE=profiler"), 5 << 8);
  EXPECT_FALSE(fs::exists(trace()));
  EXPECT_NE(err_.find("the program never called cuProfilerStart"), std::string::npos) << err_;
  run("nothing", "GRAPE_TRACE_RANGE=profiler");
  EXPECT_EQ(err_, "");
}

TEST_F(RecorderTest, ExitAndUnderscoreExitKeepStatusAndTrace) {
  for (const auto& [way, expected] : {std::pair{"exit", 5}, std::pair{"_exit", 6}}) {
    const int status = run(way);
    EXPECT_EQ(WEXITSTATUS(status), expected);
    auto reader = open();
    ASSERT_NE(reader, nullptr);
    EXPECT_TRUE(reader->complete()) << way;
    EXPECT_EQ(counts_in_order(*reader)[1], 1000u);
    fs::remove(trace());
  }
}

TEST_F(RecorderTest, AKilledProcessLeavesAReadablePrefix) {
  const int status = run("sleep");
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 128 + 9) << status;
  auto reader = open();
  ASSERT_NE(reader, nullptr);
  trace::EventView event;
  std::uint32_t thread = 0, read = 0;
  while (reader->next(event, thread)) ++read;
  EXPECT_GE(read, 1000u);
  EXPECT_FALSE(reader->complete());
}

TEST_F(RecorderTest, ALongjmpOutOfAWrapperDoesNotStopRecording) {
  ASSERT_EQ(run("jump"), 0) << err_;
  auto reader = open();
  ASSERT_NE(reader, nullptr);
  EXPECT_EQ(counts_in_order(*reader)[1], 10u);
}

TEST_F(RecorderTest, NestedWrappersRecordOnce) { EXPECT_EQ(run("nested"), 0) << err_; }

TEST_F(RecorderTest, AForkedChildIsInert) {
  ASSERT_EQ(run("fork"), 0) << err_;
  auto reader = open();
  ASSERT_NE(reader, nullptr);
  EXPECT_TRUE(reader->complete());
  EXPECT_EQ(counts_in_order(*reader)[1], 2u);
}

TEST_F(RecorderTest, ADiskThatTakesNothingStopsRecordingWithOneLine) {
  EXPECT_EQ(run("threads 4 20000", "prlimit --fsize=100:100"), 0);
  EXPECT_EQ(std::count(err_.begin(), err_.end(), '\n'), 1) << err_;
  EXPECT_NE(err_.find("ends early"), std::string::npos) << err_;
}

TEST_F(RecorderTest, AFolderThatIsNotThereIsOneLine) {
  ASSERT_EQ(run("exit", "GRAPE_TRACE=no/such/folder/t.grape") >> 8, 5);
  EXPECT_EQ(std::count(err_.begin(), err_.end(), '\n'), 1) << err_;
  EXPECT_NE(err_.find("cannot create the trace"), std::string::npos) << err_;
}

TEST_F(RecorderTest, OffAndDisabledRecordNothing) {
  for (const char* setting : {"GRAPE_MODE=off", "GRAPE_DISABLE=1"}) {
    EXPECT_EQ(run("exit", setting) >> 8, 5);
    EXPECT_FALSE(fs::exists(trace())) << setting;
    EXPECT_EQ(err_, "");
  }
}

}  // namespace
}  // namespace grape::record
