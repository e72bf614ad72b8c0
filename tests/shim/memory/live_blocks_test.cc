// What is alive, under which serial, and when a reference is told that its block is gone.
#include "shim/memory/live_blocks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "shim/memory/block_journal.h"
#include "shim/memory/block_references.h"

namespace grape::memory {
namespace {

class LiveBlocksTest : public testing::Test {
 protected:
  void TearDown() override { blocks_.clear(); }

  std::vector<program::LiveBlock> snapshot() {
    std::vector<program::LiveBlock> out;
    EXPECT_TRUE(blocks_.snapshot(out));
    return out;
  }

  // `expected`: by address, what `of` takes from the block there.
  template <class Value, class Of>
  void expect_snapshot(const std::map<std::uint64_t, Value>& expected, const Of& of) {
    const auto all = snapshot();
    ASSERT_EQ(all.size(), expected.size());
    auto next = expected.begin();
    for (const program::LiveBlock& block : all) {
      EXPECT_EQ(block.address, next->first);
      EXPECT_EQ(of(block), next->second);
      ++next;
    }
  }

  LiveBlocks& blocks_ = LiveBlocks::instance();
};

// What a holder gives back is what it took, not what others have.
TEST_F(LiveBlocksTest, HoldersDoNotReleaseForEachOther) {
  const std::uint64_t a = blocks_.add(BlockSource::kFramework, 0x1000, 512);
  const std::uint64_t b = blocks_.add(BlockSource::kFramework, 0x2000, 512);
  program::Program both, one_is_gone;
  both.statics = {{0x1000, 512, a}, {0x2000, 512, b}};
  one_is_gone.statics = {{0x1000, 512, a}, {0x2000, 512, b + 1}};
  BlockReferences holder;
  ASSERT_TRUE(holder.take(both));
  {
    BlockReferences never, another, failed;
    ASSERT_TRUE(another.take(both));
    ASSERT_TRUE(another.take(both));
    EXPECT_FALSE(failed.take(one_is_gone));
  }
  const std::uint32_t before = blocks_.epoch();
  blocks_.remove(BlockSource::kFramework, 0x1000);
  EXPECT_NE(blocks_.epoch(), before) << "the holder is told";
  holder.release();
  holder.release();
  const std::uint32_t after = blocks_.epoch();
  blocks_.remove(BlockSource::kFramework, 0x2000);
  EXPECT_EQ(blocks_.epoch(), after) << "nobody refers to it any more";
}

TEST_F(LiveBlocksTest, AnAddressThatIsUsedAgainIsAnotherBlock) {
  const std::uint64_t first = blocks_.add(BlockSource::kFramework, 0x1000, 512);
  EXPECT_NE(first, 0u);
  EXPECT_EQ(blocks_.remove(BlockSource::kFramework, 0x1000), first);
  EXPECT_EQ(blocks_.remove(BlockSource::kFramework, 0x1000), 0u);
  const std::uint64_t second = blocks_.add(BlockSource::kFramework, 0x1000, 512);
  EXPECT_NE(second, first);
  EXPECT_FALSE(blocks_.alive(0x1000, first));
  EXPECT_TRUE(blocks_.alive(0x1000, second));
  EXPECT_FALSE(blocks_.refer(0x1000, first));
  EXPECT_TRUE(blocks_.refer(0x1000, second));
}

TEST_F(LiveBlocksTest, RemoveTellsTheSize) {
  blocks_.add(BlockSource::kDriver, 0x1000, 777);
  std::uint64_t bytes = 0;
  EXPECT_NE(blocks_.remove(BlockSource::kDriver, 0x1000, &bytes), 0u);
  EXPECT_EQ(bytes, 777u);
}

TEST_F(LiveBlocksTest, SnapshotHasTheInnerBlocksAndSegmentsWithoutAny) {
  blocks_.add(BlockSource::kDriver, 0x200000, 0x100000);  // holds two blocks of the framework
  blocks_.add(BlockSource::kDriver, 0x100000, 0x100000);  // ends where the first begins: holds none
  blocks_.add(BlockSource::kDriver, 0x600000, 0x100000);  // two mappings that one block spans
  blocks_.add(BlockSource::kDriver, 0x700000, 0x100000);
  blocks_.add(BlockSource::kHost, 0x900000, 0x1000);
  const std::uint64_t low = blocks_.add(BlockSource::kFramework, 0x200000, 0x400);
  blocks_.add(BlockSource::kFramework, 0x280000, 0x400);
  blocks_.add(BlockSource::kFramework, 0x6ff000, 0x2000);
  const auto all = snapshot();
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0].address, 0x100000u);
  EXPECT_EQ(all[1].address, 0x200000u);
  EXPECT_EQ(all[1].serial, low);
  EXPECT_EQ(all[1].bytes, 0x400u);
  EXPECT_EQ(all[2].address, 0x280000u);
  EXPECT_EQ(all[3].address, 0x6ff000u);
  std::vector<program::LiveBlock> host;
  EXPECT_TRUE(blocks_.snapshot_host(host));
  ASSERT_EQ(host.size(), 1u);
  EXPECT_EQ(host[0].address, 0x900000u);
}

TEST_F(LiveBlocksTest, WhatTheFrameworkKeepsForLaterIsNobodys) {
  const auto segments = [&] {
    std::vector<program::Extent> out;
    EXPECT_TRUE(blocks_.snapshot_segments(out));
    return out;
  };
  blocks_.add(BlockSource::kDriver, 0x700000, 0x100000);
  blocks_.add(BlockSource::kDriver, 0x600000, 0x100000);
  blocks_.add(BlockSource::kDriver, 0x100000, 0x1000);
  blocks_.add(BlockSource::kFramework, 0x6ff000, 0x2000);  // lies in two
  blocks_.remove(BlockSource::kFramework, 0x6ff000);
  auto all = snapshot();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].address, 0x100000u);
  ASSERT_EQ(segments().size(), 3u);
  EXPECT_EQ(segments()[1].address, 0x600000u);
  EXPECT_EQ(segments()[1].bytes, 0x100000u);
  // Given anew by the driver it is somebody's again.
  blocks_.remove(BlockSource::kDriver, 0x600000);
  EXPECT_EQ(segments().size(), 2u);
  blocks_.add(BlockSource::kDriver, 0x600000, 0x1000);
  all = snapshot();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].address, 0x600000u);
  blocks_.clear();
  EXPECT_TRUE(segments().empty());
}

TEST_F(LiveBlocksTest, OfOverlappingBlocksTheLaterHolds) {
  blocks_.add(BlockSource::kFramework, 0x1000, 0x1000);
  const std::uint64_t later = blocks_.add(BlockSource::kFramework, 0x1800, 0x100);
  auto all = snapshot();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].serial, later);
  const std::uint64_t last = blocks_.add(BlockSource::kFramework, 0x1700, 0x200);
  all = snapshot();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].serial, last);
}

TEST_F(LiveBlocksTest, TheEpochMovesWhenAReferredBlockGoes) {
  const std::uint64_t a = blocks_.add(BlockSource::kFramework, 0x1000, 512);
  const std::uint64_t b = blocks_.add(BlockSource::kDriver, 0x2000, 512);
  const std::uint32_t before = blocks_.epoch();
  blocks_.remove(BlockSource::kFramework, 0x1000);
  EXPECT_EQ(blocks_.epoch(), before) << "nobody referred to it";
  EXPECT_FALSE(blocks_.refer(0x1000, a));
  ASSERT_TRUE(blocks_.refer(0x2000, b));
  ASSERT_TRUE(blocks_.refer(0x2000, b));
  blocks_.release(0x2000, b);
  blocks_.add(BlockSource::kFramework, 0x2000, 16);  // inside: frees nothing
  blocks_.remove(BlockSource::kFramework, 0x2000);
  EXPECT_EQ(blocks_.epoch(), before);
  blocks_.remove(BlockSource::kDriver, 0x2000);
  EXPECT_NE(blocks_.epoch(), before);
}

TEST_F(LiveBlocksTest, AReleasedBlockMovesNothing) {
  const std::uint64_t serial = blocks_.add(BlockSource::kDriver, 0x2000, 512);
  const std::uint32_t before = blocks_.epoch();
  ASSERT_TRUE(blocks_.refer(0x2000, serial));
  blocks_.release(0x2000, serial);
  blocks_.release(0x2000, serial);  // once too often
  blocks_.remove(BlockSource::kDriver, 0x2000);
  EXPECT_EQ(blocks_.epoch(), before);
}

TEST_F(LiveBlocksTest, AnAllocationWhereABlockWasNeverFreedFreesIt) {
  const std::uint64_t first = blocks_.add(BlockSource::kFramework, 0x1000, 512);
  ASSERT_TRUE(blocks_.refer(0x1000, first));
  const std::uint32_t before = blocks_.epoch();
  blocks_.add(BlockSource::kFramework, 0x1000, 1024);
  EXPECT_NE(blocks_.epoch(), before);
  EXPECT_FALSE(blocks_.alive(0x1000, first));
}

TEST_F(LiveBlocksTest, AContextTakesItsMemoryWithIt) {
  const std::uint64_t kept = blocks_.add(BlockSource::kDriver, 0x100000, 0x1000, 1);
  blocks_.add(BlockSource::kDriver, 0x200000, 0x1000, 2);
  const std::uint64_t inner = blocks_.add(BlockSource::kFramework, 0x200200, 0x200);
  blocks_.add(BlockSource::kHost, 0x300000, 0x1000, 2);
  ASSERT_TRUE(blocks_.refer(0x200200, inner));
  const std::uint32_t before = blocks_.epoch();
  blocks_.remove_context(2);
  EXPECT_NE(blocks_.epoch(), before);
  const auto all = snapshot();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].serial, kept);
  std::vector<program::LiveBlock> host;
  EXPECT_TRUE(blocks_.snapshot_host(host));
  EXPECT_TRUE(host.empty());
}

TEST_F(LiveBlocksTest, UnmappingARangeTakesAllThatBeginsInIt) {
  for (std::uint64_t at = 0x100000; at < 0x500000; at += 0x100000) blocks_.add(BlockSource::kDriver, at, 0x100000);
  blocks_.remove_range(BlockSource::kDriver, 0x200000, 0x200000);
  const auto all = snapshot();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].address, 0x100000u);
  EXPECT_EQ(all[1].address, 0x400000u);
}

TEST_F(LiveBlocksTest, ManyBlocksComeAndGoAsInAMap) {
  std::map<std::uint64_t, std::uint64_t> expected;  // address → serial
  std::mt19937_64 random(7);
  for (int i = 0; i < 200'000; ++i) {
    const std::uint64_t address = (1 + random() % 5000) * 512;
    const auto found = expected.find(address);
    if (found == expected.end()) {
      expected[address] = blocks_.add(BlockSource::kFramework, address, 512);
    } else {
      ASSERT_EQ(blocks_.remove(BlockSource::kFramework, address), found->second);
      expected.erase(found);
    }
  }
  expect_snapshot(expected, [](const program::LiveBlock& block) { return block.serial; });
}

TEST_F(LiveBlocksTest, ANotedBlockIsAsAnAddedOne) {
  note_framework_block(0x1000, 512);
  EXPECT_TRUE(blocks_.has_framework());
  program::LiveBlock found;
  ASSERT_TRUE(blocks_.find(BlockSource::kFramework, 0x1000, found));
  EXPECT_EQ(found.bytes, 512u);
  const std::uint64_t second = blocks_.add(BlockSource::kFramework, 0x2000, 512);
  EXPECT_EQ(second, found.serial + 1);
  ASSERT_TRUE(blocks_.refer(0x1000, found.serial));
  const std::uint32_t before = blocks_.epoch();
  note_framework_block(0x1000, -512);
  EXPECT_NE(blocks_.epoch(), before) << "whoever refers to it is told";
  EXPECT_FALSE(blocks_.alive(0x1000, found.serial));
  note_framework_block(0x2000, 1024);  // where one was never freed
  EXPECT_FALSE(blocks_.alive(0x2000, second));
  note_framework_block(0x3000, -512);  // one that nobody knows
  note_framework_block(0, 512);        // no memory
  ASSERT_EQ(snapshot().size(), 1u);
  EXPECT_EQ(snapshot()[0].bytes, 1024u);
}

TEST_F(LiveBlocksTest, NotesCountInTheirOrderHoweverManyThereAre) {
  std::map<std::uint64_t, std::int64_t> expected;  // address → bytes
  std::mt19937_64 random(8);
  for (int i = 0; i < 100'000; ++i) {
    const std::uint64_t address = (1 + random() % 300) * 4096;
    const auto found = expected.find(address);
    const auto bytes = static_cast<std::int64_t>((1 + random() % 8) * 512);
    const bool noted = random() % 16 != 0;
    if (found != expected.end()) {
      if (noted) {
        note_framework_block(address, -found->second);
      } else {
        ASSERT_NE(blocks_.remove(BlockSource::kFramework, address), 0u);
      }
      expected.erase(found);
      continue;
    }
    expected[address] = bytes;
    if (noted) {
      note_framework_block(address, bytes);
    } else {
      const std::uint64_t serial = blocks_.add(BlockSource::kFramework, address, static_cast<std::uint64_t>(bytes));
      ASSERT_EQ(serial, blocks_.last_serial());
    }
  }
  expect_snapshot(expected, [](const program::LiveBlock& block) { return static_cast<std::int64_t>(block.bytes); });
}

// What one thread was given another one frees, as backward passes do. Run under the thread sanitizer as well.
TEST_F(LiveBlocksTest, BlocksGoFromThreadToThread) {
  constexpr std::uint64_t kPairs = 2, kBlocks = 20'000;
  std::atomic<std::uint64_t> given[kPairs] = {};
  std::vector<std::thread> workers;
  for (std::uint64_t pair = 0; pair < kPairs; ++pair) {
    const std::uint64_t base = (pair + 1) << 32;
    workers.emplace_back([&, pair, base] {
      for (std::uint64_t i = 1; i <= kBlocks; ++i) {
        note_framework_block(base + i * 512, 512);
        given[pair].store(i, std::memory_order_release);
        if (i % 1000 == 0) (void)blocks_.epoch();
      }
    });
    workers.emplace_back([&, pair, base] {
      for (std::uint64_t i = 1; i <= kBlocks; ++i) {
        while (given[pair].load(std::memory_order_acquire) < i) std::this_thread::yield();
        note_framework_block(base + i * 512, -512);
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  EXPECT_TRUE(snapshot().empty());
}

// Run under the thread sanitizer as well.
TEST_F(LiveBlocksTest, ThreadsSeeEachOthersBlocks) {
  constexpr int kThreads = 4, kRounds = 5000;
  std::atomic<int> wrong{0};
  std::atomic<bool> stop{false};
  std::thread looker([&] {
    while (!stop.load()) {
      std::vector<program::LiveBlock> out;
      if (!blocks_.snapshot(out)) ++wrong;
      for (std::size_t i = 1; i < out.size(); ++i) {
        if (out[i - 1].address + out[i - 1].bytes > out[i].address) ++wrong;
      }
      (void)blocks_.epoch();
    }
  });
  std::vector<std::thread> workers;
  for (int t = 0; t < kThreads; ++t) {
    workers.emplace_back([&, t] {
      const auto base = static_cast<std::uint64_t>(t + 1) << 32;
      for (int i = 0; i < kRounds; ++i) {
        const std::uint64_t address = base + static_cast<std::uint64_t>(i % 100) * 4096;
        const std::uint64_t serial = blocks_.add(BlockSource::kFramework, address, 4096);
        if (!blocks_.refer(address, serial) || !blocks_.alive(address, serial)) ++wrong;
        if (blocks_.remove(BlockSource::kFramework, address) != serial) ++wrong;
      }
    });
  }
  const std::uint32_t before = blocks_.epoch();
  for (std::thread& worker : workers) worker.join();
  stop.store(true);
  looker.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_NE(blocks_.epoch(), before);
  EXPECT_TRUE(snapshot().empty());
}

}  // namespace
}  // namespace grape::memory
