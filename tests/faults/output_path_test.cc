// Where the trace goes: never over or through something that is there already, never readable by others.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "tests/faults/command.h"

namespace grape::faults {
namespace {

class Row26_OutputPath : public testing::Test {
 protected:
  Result run(const std::string& path) {
    const Result result = Command(folder_, "job").set("GRAPE_TRACE", path).with_grape().run();
    EXPECT_TRUE(result.exited(0)) << result;
    EXPECT_EQ(result.out, Command(folder_, "job").run().out);
    return result;
  }
  Result replace(const std::string& path) {
    return Command(folder_, "job").set("GRAPE_TRACE", path).set("GRAPE_TRACE_REPLACE", "1").with_grape().run();
  }
  void expect_beside(const Result& result) {
    EXPECT_EQ(result.notices().size(), 1u) << result;
    EXPECT_TRUE(read_trace(folder_.in("run-2.grape")).complete) << result;
  }
  static mode_t mode_of(const std::string& path) {
    struct stat status {};
    return lstat(path.c_str(), &status) == 0 ? status.st_mode : 0;
  }
  Folder folder_;
  const std::string path_ = folder_.in("run.grape");
};

TEST_F(Row26_OutputPath, ExistingFileIsLeftAlone) {
  std::ofstream(path_) << "mine";
  expect_beside(run(path_));
  EXPECT_EQ(content(path_), "mine");
}

TEST_F(Row26_OutputPath, SymbolicLinkIsNotFollowed) {
  const std::string target = folder_.in("target");
  for (const bool there : {false, true}) {
    if (there) std::ofstream(target) << "mine";
    fs::remove(path_);
    fs::remove(folder_.in("run-2.grape"));
    fs::create_symlink(target, path_);
    expect_beside(run(path_));
    EXPECT_TRUE(S_ISLNK(mode_of(path_)));
    EXPECT_EQ(content(target), there ? "mine" : "");
    EXPECT_EQ(fs::exists(target), there);
  }
}

TEST_F(Row26_OutputPath, FifoIsNotWaitedFor) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  const Result result = run(path_);
  EXPECT_EQ(result.notices().size(), 1u) << result;
  EXPECT_TRUE(read_trace(folder_.in("run-2.grape")).complete);
  EXPECT_TRUE(S_ISFIFO(mode_of(path_)));
}

TEST_F(Row26_OutputPath, FolderOrMissingFolderOrDeviceGivesOneLine) {
  fs::create_directory(folder_.in("folder"));
  for (const std::string& path :
       {folder_.in("missing/run.grape"), std::string("/proc/run.grape"), folder_.in("folder"),
        folder_.in("folder") + "/", std::string("/dev/null/run.grape"), folder_.in(std::string(300, 'n'))}) {
    SCOPED_TRACE(path);
    for (const bool beside : {false, true}) {
      const Result result = beside ? replace(path) : run(path);
      EXPECT_EQ(result.notices().size(), 1u) << result;
      EXPECT_NE(result.err.find("not recording"), std::string::npos) << result;
    }
  }
  EXPECT_TRUE(fs::is_empty(folder_.in("folder")));
  EXPECT_TRUE(folder_.traces().empty());
}

TEST_F(Row26_OutputPath, FolderWithoutRightsGivesOneLine) {
  const std::string closed = folder_.in("closed");
  fs::create_directory(closed);
  ASSERT_EQ(chmod(closed.c_str(), 0500), 0);
  Command command(folder_, "job");
  command.set("GRAPE_TRACE", closed + "/run.grape").with_grape();
  if (geteuid() == 0) {
    // Rights do not bind the superuser: become somebody else.
    ASSERT_EQ(chmod(folder_.path().c_str(), 0755), 0);
    command.prepare([] {
      if (setgid(65534) != 0 || setuid(65534) != 0) _exit(120);
    });
  }
  const Result result = command.run();
  EXPECT_EQ(chmod(closed.c_str(), 0700), 0);
  if (result.exited(127) || result.exited(120)) GTEST_SKIP() << "the build folder is closed to other users";
  EXPECT_TRUE(result.exited(0)) << result;
  EXPECT_EQ(result.notices().size(), 1u) << result;
  EXPECT_TRUE(fs::is_empty(closed));
}

TEST_F(Row26_OutputPath, IsPrivateWhateverTheUmask) {
  for (const mode_t mask : {mode_t{0}, mode_t{0777}}) {
    const std::string path = folder_.in("umask" + std::to_string(mask) + ".grape");
    const Result result =
        Command(folder_, "job").set("GRAPE_TRACE", path).with_grape().prepare([mask] { umask(mask); }).run();
    EXPECT_TRUE(result.exited(0)) << result;
    EXPECT_EQ(mode_of(path) & 07777u, 0600u);
  }
}

TEST_F(Row26_OutputPath, ReplacingWritesBesideAndRenames) {
  std::ofstream(path_) << "old";
  const Result result = replace(path_);
  EXPECT_TRUE(result.exited(0)) << result;
  EXPECT_EQ(result.err, "");
  EXPECT_TRUE(read_trace(path_).complete);
  EXPECT_EQ(mode_of(path_), S_IFREG | 0600u);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()), 1);
}

TEST_F(Row26_OutputPath, ReplacingALinkReplacesTheLink) {
  const std::string target = folder_.in("target");
  std::ofstream(target) << "mine";
  fs::create_symlink(target, path_);
  EXPECT_TRUE(replace(path_).exited(0));
  EXPECT_EQ(content(target), "mine");
  EXPECT_EQ(mode_of(path_), S_IFREG | 0600u);
  EXPECT_TRUE(read_trace(path_).complete);
}

// In a container each run has the same process id: what an earlier one left must not stop the next.
TEST_F(Row26_OutputPath, WhatAKilledRunLeftBesideDoesNotStopTheNext) {
  Command command(folder_, "job");
  command.set("GRAPE_TRACE", path_).set("GRAPE_TRACE_REPLACE", "1").with_grape();
  command.prepare([this] {
    char name[4200];
    std::snprintf(name, sizeof name, "%s.partial-%d", path_.c_str(), static_cast<int>(getpid()));
    std::fclose(std::fopen(name, "w"));
  });
  const Result result = command.run();
  EXPECT_TRUE(result.exited(0)) << result;
  EXPECT_TRUE(read_trace(path_).complete) << result;
}

}  // namespace
}  // namespace grape::faults
