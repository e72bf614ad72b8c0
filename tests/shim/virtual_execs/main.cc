// Runs the tests in an environment of their own: --kind=plain, virtual, traced or alone.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

// Starts this program again with the library preloaded. Returns if that fails.
void start_again(const std::string& kind, char** arguments) {
  setenv("LD_PRELOAD", GRAPE_LIBRARY, 1);
  setenv("GRAPE_GRAPHS", "virtual", 1);
  setenv("GRAPE_MEMORY_BUDGET", "180K", 1);  // of two graphs as most tests make them
  if (kind == "alone") setenv("GRAPE_MODE", "off", 1);
  if (kind == "traced") {
    setenv("GRAPE_TRACE", TRACE_FOLDER "/virtual-%p.grape", 1);
    setenv("GRAPE_TRACE_REPLACE", "1", 1);
  }
  execv("/proc/self/exe", arguments);
}

}  // namespace

int main(int count, char** arguments) {
  testing::InitGoogleTest(&count, arguments);
  const std::string kind = count > 1 && std::strncmp(arguments[1], "--kind=", 7) == 0 ? arguments[1] + 7 : "plain";
  if (kind != "plain") {
    // What InitGoogleTest has taken away is in its flags.
    const std::string filter = "--gtest_filter=" + testing::GTEST_FLAG(filter);
    std::string program = arguments[0];
    char* again[] = {program.data(), const_cast<char*>(filter.c_str()), nullptr};
    start_again(kind, again);
    std::perror("execv");
    return 1;
  }
  return RUN_ALL_TESTS();
}
