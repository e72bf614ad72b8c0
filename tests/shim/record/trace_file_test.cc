#include "shim/record/trace_file.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace grape::record {
namespace {

namespace fs = std::filesystem;

class TraceFileTest : public testing::Test {
 protected:
  TraceFileTest() {
    std::string pattern = (fs::temp_directory_path() / "grape-test-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~TraceFileTest() override { fs::remove_all(folder_); }
  std::string in(const std::string& name) const { return (folder_ / name).string(); }
  static std::string content(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static bool put(TraceFile& file, const std::string& text) {
    return file.write(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  }
  fs::path folder_;
};

TEST_F(TraceFileTest, ExpandsHostProcessAndRank) {
  char path[kPathRoom];
  setenv("RANK", "3/../x", 1);
  ASSERT_TRUE(expand_path("a-%p-%r-%%-%z.grape", path));
  EXPECT_EQ(std::string(path), "a-" + std::to_string(getpid()) + "-3_.._x-%-%z.grape");
  unsetenv("RANK");
  ASSERT_TRUE(expand_path("%r", path));
  EXPECT_STREQ(path, "0");
  EXPECT_FALSE(expand_path("", path));
  EXPECT_FALSE(expand_path(std::string(kPathRoom, 'x').c_str(), path));
}

TEST_F(TraceFileTest, IsPrivateWhateverTheUmask) {
  for (const mode_t mask : {mode_t{0}, mode_t{0777}}) {
    const mode_t before = umask(mask);
    TraceFile file;
    const std::string path = in("umask" + std::to_string(mask));
    ASSERT_TRUE(file.create(path.c_str(), false));
    umask(before);
    struct stat status {};
    ASSERT_EQ(stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0600u);
  }
}

TEST_F(TraceFileTest, LeavesAnExistingFileAlone) {
  std::ofstream(in("run.grape")) << "mine";
  TraceFile file;
  ASSERT_TRUE(file.create(in("run.grape").c_str(), false));
  EXPECT_EQ(std::string(file.path()), in("run-2.grape"));
  ASSERT_TRUE(put(file, "trace"));
  ASSERT_TRUE(file.commit());
  EXPECT_EQ(content(in("run.grape")), "mine");
  EXPECT_EQ(content(in("run-2.grape")), "trace");
}

TEST_F(TraceFileTest, FollowsNoSymlinkAndOpensNoFifo) {
  fs::create_symlink(in("victim"), in("link.grape"));
  ASSERT_EQ(mkfifo(in("fifo.grape").c_str(), 0600), 0);
  TraceFile through_link, through_fifo;
  ASSERT_TRUE(through_link.create(in("link.grape").c_str(), false));
  ASSERT_TRUE(through_fifo.create(in("fifo.grape").c_str(), false));
  EXPECT_FALSE(fs::exists(in("victim")));
  EXPECT_EQ(std::string(through_link.path()), in("link-2.grape"));
  EXPECT_EQ(std::string(through_fifo.path()), in("fifo-2.grape"));
}

TEST_F(TraceFileTest, SaysWhyAFolderDoesNotTakeIt) {
  TraceFile file;
  EXPECT_FALSE(file.create(in("no/such/folder.grape").c_str(), false));
  EXPECT_EQ(errno, ENOENT);
}

TEST_F(TraceFileTest, ReplacesOnlyWhenItIsWhole) {
  std::ofstream(in("run.grape")) << "old";
  TraceFile file;
  ASSERT_TRUE(file.create(in("run.grape").c_str(), true));
  ASSERT_TRUE(put(file, "new"));
  EXPECT_EQ(content(in("run.grape")), "old");
  ASSERT_TRUE(file.commit());
  EXPECT_EQ(content(in("run.grape")), "new");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

// In a child: the limit cannot be raised again. The recorder's thread has SIGXFSZ blocked, as here.
TEST_F(TraceFileTest, AFileSizeLimitIsAnErrorNotASignal) {
  const pid_t child = fork();
  if (child == 0) {
    sigset_t blocked;
    sigfillset(&blocked);
    sigprocmask(SIG_SETMASK, &blocked, nullptr);
    const rlimit limit{4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
    TraceFile file;
    const bool created = file.create(in("limited.grape").c_str(), false);
    const bool written = put(file, std::string(10000, 'x'));
    _exit(created && !written && file.error() == EFBIG ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(fs::file_size(in("limited.grape")), 4096u);
}

}  // namespace
}  // namespace grape::record
