// The disk: full, broken, slow to take what it is given, limited.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/faults/command.h"

namespace grape::faults {
namespace {

constexpr char kFault[] = FAULT_PROGRAMS "/libfault_preload.so";
const std::vector<std::string> kArguments = {"60", "10"};  // of churn
constexpr char kOutput[] = "600\n";

// In the child of a fork, before it becomes the program.
void put(const char* path, const std::string& text) {
  const int file = open(path, O_WRONLY);
  if (file < 0 || write(file, text.data(), text.size()) < 0 || close(file) != 0) _exit(120);
}

Trace readable_or_empty(const Folder& folder) {
  Trace trace;
  for (const std::string& path : folder.traces()) {
    trace = read_trace(path);
    EXPECT_TRUE(trace.readable || trace.headless) << trace.error;
  }
  return trace;
}

class Row16_Write : public testing::TestWithParam<const char*> {};

TEST_P(Row16_Write, FailingStopsTheRecordingWithOneLine) {
  for_each_of(24, [&](int i) {
    const int n = i < 12 ? i + 1 : 12 + (i - 11) * 4;
    // Both a fault that passes, after which nothing may be written any more, and one that stays.
    for (const char* lasting : {"", "+"}) {
      const std::string fault = "write:" + std::to_string(n) + lasting + ":" + GetParam();
      SCOPED_TRACE(fault);
      Folder folder;
      const Result result =
          Command(folder, "churn", kArguments).with_grape().preload(kFault).set("FAULT_CALL", fault).run();
      EXPECT_TRUE(result.exited(0)) << result;
      EXPECT_EQ(result.out, kOutput);
      const Trace trace = readable_or_empty(folder);
      EXPECT_LE(result.notices().size(), 1u) << result;
      EXPECT_EQ(result.notices().empty(), trace.complete) << "said something if and only if it stopped\n" << result;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Errors, Row16_Write, testing::Values("ENOSPC", "EIO", "EDQUOT"));

TEST(Row16_Write, InPiecesOrInterruptedIsComplete) {
  for (const char* fault : {"write:*1:short", "write:*2:short", "write:*2:EINTR", "write:1:EINTR", "write:*3:EINTR"}) {
    SCOPED_TRACE(fault);
    Folder folder;
    const Result result =
        Command(folder, "churn", kArguments).with_grape().preload(kFault).set("FAULT_CALL", fault).run();
    EXPECT_TRUE(result.exited(0)) << result;
    EXPECT_EQ(result.out, kOutput);
    EXPECT_EQ(result.err, "");
    const Trace trace = only_trace(folder);
    EXPECT_TRUE(trace.complete) << trace.damage;
    EXPECT_EQ(trace.launches.size(), 600u);
  }
}

TEST(Row16_Open, FailingStopsTheRecordingWithOneLine) {
  for (const char* fault : {"open:1:ENOSPC", "open:1+:EMFILE", "open:1:EIO", "close:1:EIO", "close:1+:ENOSPC"}) {
    SCOPED_TRACE(fault);
    Folder folder;
    const Result result =
        Command(folder, "churn", kArguments).with_grape().preload(kFault).set("FAULT_CALL", fault).run();
    EXPECT_TRUE(result.exited(0)) << result;
    EXPECT_EQ(result.out, kOutput);
    EXPECT_EQ(result.notices().size(), 1u) << result;
  }
}

TEST(Row16_FileSizeLimit, StopsTheRecordingWithOneLine) {
  for (const rlim_t bytes : {rlim_t{0}, rlim_t{1}, rlim_t{1000}, rlim_t{8192}, rlim_t{32768}}) {
    SCOPED_TRACE(bytes);
    Folder folder;
    // Hard and soft: without a handler for it, going beyond would end the process with SIGXFSZ. The program's own
    // output is far below the limit, or goes to a descriptor that has none.
    const auto limit = [bytes] {
      const rlimit limits{bytes, bytes};
      setrlimit(RLIMIT_FSIZE, &limits);
    };
    const Result result = Command(folder, "churn", {"60", "10"})
                              .with_grape()
                              .set("GRAPE_LOG", "warning")
                              .prepare([&] {
                                int ends[2];  // a pipe has no size; its content is not needed here
                                if (pipe(ends) == 0) dup2(ends[1], 1);
                                if (bytes < 1000) dup2(ends[1], 2);
                                limit();
                              })
                              .run();
    EXPECT_TRUE(result.exited(0)) << result;
    if (bytes >= 1000) {
      EXPECT_LE(result.notices().size(), 1u) << result;
    }
    const Trace trace = readable_or_empty(folder);
    EXPECT_FALSE(trace.complete && bytes < 8192);
  }
}

TEST(Row16_Descriptors, AllInUseLeaveTheProgramAsItWas) {
  Folder folder;
  const Result plain = Command(folder, "job").run();
  const Result limited = Command(folder, "job").with_grape().preload(kFault).set("FAULT_CALL", "open:1+:EMFILE").run();
  EXPECT_EQ(limited.status, plain.status) << limited;
  EXPECT_EQ(limited.out, plain.out);
  EXPECT_EQ(limited.notices().size(), 1u) << limited;
}

TEST(Row16_SmallDisk, StopsTheRecordingWithOneLine) {
  Folder folder;
  const std::string disk = folder.in("disk");
  fs::create_directory(disk);
  const std::string users = "0 " + std::to_string(getuid()) + " 1", groups = "0 " + std::to_string(getgid()) + " 1";
  // A mount in a user namespace of the program's own; it goes away with it.
  const auto mount_small = [&] {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) _exit(120);
    put("/proc/self/setgroups", "deny");
    put("/proc/self/uid_map", users);
    put("/proc/self/gid_map", groups);
    if (mount("none", disk.c_str(), "tmpfs", 0, "size=16k") != 0) _exit(120);
  };
  const auto run = [&](bool grape) {
    Command command(folder, "churn", {"200", "30"});
    if (grape) command.set("GRAPE_TRACE", disk + "/run.grape").with_grape();
    return command.prepare(mount_small).run();
  };
  const Result plain = run(false);
  if (plain.exited(120)) GTEST_SKIP() << "no user namespaces here";
  const Result result = run(true);
  EXPECT_TRUE(result.exited(0)) << result;
  EXPECT_EQ(result.out, plain.out);
  ASSERT_EQ(result.notices().size(), 1u) << result;
  EXPECT_NE(result.notices()[0].find("No space left"), std::string::npos) << result;
}

}  // namespace
}  // namespace grape::faults
