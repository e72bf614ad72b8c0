// The end of the process, and driver calls on the way there.
#include <gtest/gtest.h>

#include "tests/faults/command.h"

namespace grape::faults {
namespace {

struct Exit {
  const char* way;
  int status;
  int phases;  // that the program computes in, ten launches each
};

std::ostream& operator<<(std::ostream& stream, const Exit& one) { return stream << one.way; }

class Row20_Exit : public testing::TestWithParam<Exit> {};

TEST_P(Row20_Exit, WrappersWorkToTheEndAndTheTraceIsWhole) {
  const Exit& one = GetParam();
  Folder folder;
  const Result result = same_as_without(folder, "exits", {one.way});
  EXPECT_TRUE(result.exited(one.status)) << result;
  EXPECT_TRUE(result.notices().empty()) << result;
  const Trace trace = only_trace(folder);
  EXPECT_TRUE(trace.complete) << trace.damage;
  // The program's own destructors run before the library's, and are recorded too.
  EXPECT_EQ(trace.launches.size(), static_cast<std::size_t>(one.phases) * 10) << result;
}

INSTANTIATE_TEST_SUITE_P(Ways, Row20_Exit,
                         testing::Values(Exit{"return", 12, 4}, Exit{"exit", 7, 4}, Exit{"exit-thread", 8, 4},
                                         Exit{"_exit", 9, 1}, Exit{"_Exit", 10, 1}, Exit{"quick_exit", 11, 2}));

TEST(Row20_BusyThreads, WhileTheProcessEndsHarmNothing) {
  for_each_of(20, [](int) {
    Folder folder;
    const Result result = Command(folder, "exits", {"busy"}).with_grape().run();
    EXPECT_TRUE(result.exited(6)) << result;
    EXPECT_TRUE(result.notices().empty()) << result;
    const Trace trace = only_trace(folder);
    EXPECT_TRUE(trace.complete) << trace.damage;
    EXPECT_GT(trace.launches.size(), 10u);
  });
}

class Row20_Python : public testing::TestWithParam<Exit> {};

TEST_P(Row20_Python, EndsAsItWouldHave) {
  if (std::string(PYTHON_PROGRAM).empty()) GTEST_SKIP() << "no Python here";
  Folder folder;
  const Result result = same_as_without(folder, PYTHON_PROGRAM, {PROGRAM_SOURCES "/exits.py", GetParam().way});
  EXPECT_TRUE(result.exited(GetParam().status)) << result;
  EXPECT_TRUE(result.notices().empty()) << result;
  const Trace trace = only_trace(folder);
  EXPECT_TRUE(trace.complete) << trace.damage;
  EXPECT_GE(trace.count("cuMemsetD8Async"), 50u);
  EXPECT_GE(trace.count("cuCtxSynchronize"), static_cast<std::size_t>(GetParam().phases)) << result;
}

INSTANTIATE_TEST_SUITE_P(Ways, Row20_Python,
                         testing::Values(Exit{"return", 0, 2}, Exit{"sys_exit", 4, 2}, Exit{"os_exit", 5, 1},
                                         Exit{"atexit", 0, 3}, Exit{"raise", 1, 2}, Exit{"kill_thread", 0, 1}));

}  // namespace
}  // namespace grape::faults
