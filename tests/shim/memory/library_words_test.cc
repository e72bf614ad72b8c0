// A few bytes of the host's memory that a library keeps for itself: are they alive, and as they were?
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "shim/memory/live_blocks.h"

namespace grape::memory {
namespace {

using program::HostWord;

class LibraryWordsTest : public testing::Test {
 protected:
  void TearDown() override { blocks_.clear(); }

  std::uint64_t add(const void* word, std::uint64_t bytes, std::uint64_t context = 0) {
    return blocks_.add(BlockSource::kLibrary, address(word), bytes, context);
  }
  void remove(const void* word) { blocks_.remove(BlockSource::kLibrary, address(word)); }
  static std::uint64_t address(const void* word) { return reinterpret_cast<std::uint64_t>(word); }

  // Ascending by serial.
  std::vector<HostWord> words() {
    std::vector<HostWord> all;
    EXPECT_TRUE(blocks_.snapshot_library(all));
    std::sort(all.begin(), all.end(), [](const HostWord& a, const HostWord& b) { return a.serial < b.serial; });
    return all;
  }

  LiveBlocks& blocks_ = LiveBlocks::instance();
  std::uint64_t flag_ = 0x1122334455667788, other_ = 7;
};

TEST_F(LibraryWordsTest, ASnapshotHasTheirValues) {
  EXPECT_TRUE(words().empty());
  const std::uint64_t first = add(&flag_, 4), second = add(&other_, 8);
  const std::vector<HostWord> all = words();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0], (HostWord{address(&flag_), 4, first, 0x55667788})) << "four of its bytes";
  EXPECT_EQ(all[1], (HostWord{address(&other_), 8, second, 7}));
  flag_ = 1;
  EXPECT_EQ(words()[0].value, 1u);
}

TEST_F(LibraryWordsTest, TheyAreNeitherTheHostsNorTheDevices) {
  add(&flag_, 8);
  std::vector<program::LiveBlock> blocks;
  EXPECT_TRUE(blocks_.snapshot_host(blocks));
  EXPECT_TRUE(blocks.empty());
  EXPECT_TRUE(blocks_.snapshot(blocks));
  EXPECT_TRUE(blocks.empty());
  blocks_.add(BlockSource::kHost, address(&other_), 8);
  EXPECT_EQ(words().size(), 1u) << "the host's are no library's";
}

TEST_F(LibraryWordsTest, NoneHold) {
  EXPECT_TRUE(blocks_.hold({}));
  add(&flag_, 8);
  EXPECT_TRUE(blocks_.hold({}));
}

TEST_F(LibraryWordsTest, OneThatIsChangedHoldsOnceItIsAsBefore) {
  add(&flag_, 4);
  add(&other_, 8);
  const std::vector<HostWord> all = words();
  EXPECT_TRUE(blocks_.hold(all));
  other_ = 8;
  EXPECT_FALSE(blocks_.hold(all));
  EXPECT_TRUE(blocks_.hold({all[0]})) << "the other one is as it was";
  other_ = 7;
  EXPECT_TRUE(blocks_.hold(all));
  flag_ ^= std::uint64_t{1} << 63;
  EXPECT_TRUE(blocks_.hold(all)) << "behind its end";
}

TEST_F(LibraryWordsTest, OneThatIsFreedHoldsNoMore) {
  add(&flag_, 8);
  add(&other_, 8);
  const std::vector<HostWord> all = words();
  remove(&flag_);
  EXPECT_FALSE(blocks_.hold(all));
  EXPECT_FALSE(blocks_.hold({all[0]}));
  EXPECT_TRUE(blocks_.hold({all[1]}));
  add(&flag_, 8);
  EXPECT_FALSE(blocks_.hold(all)) << "another one at the same place";
  EXPECT_TRUE(blocks_.hold(words()));
}

TEST_F(LibraryWordsTest, AContextThatGoesTakesItsOwn) {
  add(&flag_, 8, 1);
  add(&other_, 8, 2);
  const std::vector<HostWord> all = words();
  blocks_.remove_context(1);
  EXPECT_FALSE(blocks_.hold({all[0]}));
  EXPECT_TRUE(blocks_.hold({all[1]}));
  EXPECT_EQ(words(), std::vector<HostWord>{all[1]});
}

}  // namespace
}  // namespace grape::memory
