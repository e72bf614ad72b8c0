// Crashes, signals and jumps.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>

#include "tests/faults/command.h"

namespace grape::faults {
namespace {

struct Crash {
  const char* way;
  int signal;
  bool with_core = false;  // tried with core dumps as well, which take their time
};

std::ostream& operator<<(std::ostream& stream, const Crash& crash) { return stream << crash.way; }

class Row17_Crash : public testing::TestWithParam<Crash> {};

TEST_P(Row17_Crash, EndsAsItWouldHave) {
  for (const rlim_t core : {rlim_t{0}, rlim_t{1} << 20}) {
    if (core != 0 && !GetParam().with_core) continue;
    Folder folder;
    const auto allow = [core](Command& command) {
      command.prepare([core] {
        const rlimit limits{core, core};
        setrlimit(RLIMIT_CORE, &limits);
      });
    };
    // The whole status is compared: the signal, and whether there was a core dump.
    const Result result = same_as_without(folder, "crash", {GetParam().way}, allow);
    EXPECT_TRUE(result.signalled(GetParam().signal)) << result;
    EXPECT_TRUE(result.notices().empty()) << result;
    for (const std::string& path : folder.traces()) {
      const Trace trace = read_trace(path);
      EXPECT_TRUE(trace.readable || trace.headless) << trace.error;
      EXPECT_FALSE(trace.complete);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, Row17_Crash,
                         testing::Values(Crash{"segv", SIGSEGV, true}, Crash{"segv-thread", SIGSEGV},
                                         Crash{"abort", SIGABRT, true}, Crash{"throw", SIGABRT},
                                         Crash{"noexcept", SIGABRT}, Crash{"fpe", SIGFPE}, Crash{"ill", SIGILL},
                                         Crash{"term", SIGTERM}, Crash{"int", SIGINT}, Crash{"usr1", SIGUSR1}));

TEST(Row17_Status, OfANormalEndIsTheProgramsOwn) {
  Folder folder;
  const Result result = same_as_without(folder, "crash", {"exit"});
  EXPECT_TRUE(result.exited(77)) << result;
  EXPECT_EQ(only_trace(folder).launches.size(), 100u);
}

TEST(Row18_Jump, OutOfAWrapperLeavesNothingBehind) {
  Folder folder;
  const Result result = same_as_without(folder, "signals", {"jump"});
  EXPECT_TRUE(result.exited(0)) << result;
  EXPECT_NE(result.out.find("jumps 5 launched 100"), std::string::npos) << result;
  const Trace trace = only_trace(folder);
  EXPECT_TRUE(trace.complete) << trace.damage;
  // Recording goes on: from frames as shallow as the one that was left, and from much deeper ones.
  EXPECT_EQ(trace.launches_of("shallow"), 50u);
  EXPECT_EQ(trace.launches_of("deep"), 50u);
}

TEST(Row18_Signals, ThatInterruptSystemCallsChangeNothing) {
  Folder folder;
  const Result result = same_as_without(folder, "signals", {"timer"});
  EXPECT_TRUE(result.exited(0)) << result;
  EXPECT_TRUE(result.notices().empty()) << result;
  const Trace trace = only_trace(folder);
  EXPECT_TRUE(trace.complete) << trace.damage;
  EXPECT_EQ(trace.launches.size(), 40u * 220u);
}

TEST(Row18_Errno, IsKeptThroughEveryCall) {
  Folder folder;
  const Result result = same_as_without(folder, "signals", {"errno"});
  EXPECT_TRUE(result.exited(0)) << result;
  EXPECT_TRUE(only_trace(folder).complete);
}

}  // namespace
}  // namespace grape::faults
