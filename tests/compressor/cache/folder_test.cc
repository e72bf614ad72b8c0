// The cache's folder: what is trusted, and several writers.
#include "compressor/cache/folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

namespace grape::cache {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::uint8_t>;

class FolderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "grape-folder-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    above_ = pattern;
    path_ = above_ / "cache";
  }
  void TearDown() override { fs::remove_all(above_); }

  std::string refusal(const std::string& name) {
    Bytes bytes;
    std::string error;
    EXPECT_FALSE(folder_.read(name, bytes, error));
    return error;
  }
  std::size_t files() const { return static_cast<std::size_t>(std::distance(fs::directory_iterator(path_), {})); }

  fs::path above_, path_;
  Folder folder_;
  std::string error_;
};

TEST_F(FolderTest, IsMadeForThisUserAlone) {
  ASSERT_TRUE(folder_.open(path_, error_)) << error_;
  EXPECT_EQ(fs::status(path_).permissions(), fs::perms::owner_all);
  Folder again;
  EXPECT_TRUE(again.open(path_, error_)) << error_;
}

TEST_F(FolderTest, IsRefusedWhereItCannotBeOrOthersMayWrite) {
  EXPECT_FALSE(folder_.open(above_ / "no" / "such", error_));
  EXPECT_EQ(error_, "No such file or directory");
  std::ofstream(above_ / "file") << "x";
  EXPECT_FALSE(Folder().open(above_ / "file", error_));
  EXPECT_EQ(error_, "Not a directory");
  for (const mode_t mode : {0720, 0702}) {
    ASSERT_TRUE(mkdir(path_.c_str(), 0700) == 0 || errno == EEXIST);
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
    EXPECT_FALSE(Folder().open(path_, error_));
    EXPECT_EQ(error_, "others may write to it");
  }
}

TEST_F(FolderTest, FilesComeBackWhole) {
  ASSERT_TRUE(folder_.open(path_, error_)) << error_;
  EXPECT_EQ(refusal("a"), "") << "it is not there: nothing to say";
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{3} << 20}) {
    const Bytes given(size, 7);
    ASSERT_TRUE(folder_.write("a", given, error_)) << error_;
    Bytes bytes(5, 1);
    ASSERT_TRUE(folder_.read("a", bytes, error_)) << error_;
    EXPECT_EQ(bytes, given);
    EXPECT_EQ(fs::status(path_ / "a").permissions(), fs::perms::owner_read | fs::perms::owner_write);
  }
  EXPECT_EQ(files(), 1u) << "nothing is left beside it";
}

TEST_F(FolderTest, FilesThatCouldBeOthersAreNotRead) {
  ASSERT_TRUE(folder_.open(path_, error_)) << error_;
  ASSERT_TRUE(folder_.write("a", {1}, error_)) << error_;
  fs::create_symlink("a", path_ / "link");
  EXPECT_EQ(refusal("link"), "Too many levels of symbolic links");
  fs::create_directory(path_ / "folder");
  EXPECT_EQ(refusal("folder"), "it is no file");
  ASSERT_EQ(mkfifo((path_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(refusal("pipe"), "it is no file") << "and nobody waits for a writer";
  fs::permissions(path_ / "a", fs::perms::group_write, fs::perm_options::add);
  EXPECT_EQ(refusal("a"), "others may write to it");
  fs::resize_file(path_ / "a", Folder::kMostBytes + 1);
  fs::permissions(path_ / "a", fs::perms::group_write, fs::perm_options::remove);
  EXPECT_EQ(refusal("a"), "it is larger than 1 GiB");
}

TEST_F(FolderTest, AWriteThatFailsLeavesTheOldFile) {
  ASSERT_TRUE(folder_.open(path_, error_)) << error_;
  fs::create_directory(path_ / "a");  // a folder in the file's place cannot be replaced by a file
  EXPECT_FALSE(folder_.write("a", {2}, error_));
  EXPECT_EQ(error_, "Is a directory");
  EXPECT_EQ(files(), 1u);
}

TEST_F(FolderTest, OneAfterTheOther) {
  ASSERT_TRUE(folder_.open(path_, error_)) << error_;
  ASSERT_TRUE(folder_.write("count", {0, 0}, error_)) << error_;
  constexpr int kThreads = 4, kRounds = 25;
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        Folder own;
        std::string error;
        Bytes bytes;
        const bool locked = own.open(path_, error) && own.lock(60'000);
        if (locked && own.read("count", bytes, error)) {
          ++bytes[0];
          if (own.write("count", bytes, error)) continue;
        }
        ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures.load(), 0);
  Bytes bytes;
  ASSERT_TRUE(folder_.read("count", bytes, error_));
  EXPECT_EQ(bytes[0], kThreads * kRounds);
}

TEST_F(FolderTest, ALockThatIsHeldIsNotWaitedForForEver) {
  ASSERT_TRUE(folder_.open(path_, error_)) << error_;
  ASSERT_TRUE(folder_.lock(0));
  Folder other;
  ASSERT_TRUE(other.open(path_, error_)) << error_;
  EXPECT_FALSE(other.lock(30));
  folder_.unlock();
  EXPECT_TRUE(other.lock(0));
}

}  // namespace
}  // namespace grape::cache
