#include "shim/record/block_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <thread>
#include <vector>

namespace grape::record {
namespace {

TEST(BlockPool, GivesEachBlockOnceAndThenNone) {
  BlockPool pool;
  ASSERT_TRUE(pool.open());
  std::set<Block*> blocks;
  while (Block* block = pool.take()) ASSERT_TRUE(blocks.insert(block).second);
  EXPECT_EQ(blocks.size(), kBlockCount);
  EXPECT_EQ(pool.in_use(), kBlockCount);
  for (Block* block : blocks) pool.give_back(block);
  EXPECT_EQ(pool.in_use(), 0u);
  EXPECT_NE(pool.take(), nullptr);
}

TEST(BlockPool, UnopenedGivesNothing) {
  BlockPool pool;
  EXPECT_EQ(pool.take(), nullptr);
}

TEST(BlockPool, LastGivenBackIsFirstTaken) {
  BlockPool pool;
  ASSERT_TRUE(pool.open());
  Block* first = pool.take();
  Block* second = pool.take();
  pool.give_back(second);
  pool.give_back(first);
  EXPECT_EQ(pool.take(), first);
  EXPECT_EQ(pool.take(), second);
}

TEST(BlockPool, NoBlockIsHeldTwiceUnderContention) {
  BlockPool pool;
  ASSERT_TRUE(pool.open());
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (std::uint32_t t = 1; t <= 8; ++t) {
    threads.emplace_back([&pool, &failures, t] {
      for (int round = 0; round < 3000; ++round) {
        Block* mine[3] = {pool.take(), pool.take(), pool.take()};
        for (Block* block : mine) {
          if (block != nullptr) std::memcpy(block->data, &t, sizeof t);
        }
        for (Block* block : mine) {
          if (block == nullptr) continue;
          std::uint32_t seen = 0;
          std::memcpy(&seen, block->data, sizeof seen);
          if (seen != t) ++failures;
          pool.give_back(block);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(pool.in_use(), 0u);
}

}  // namespace
}  // namespace grape::record
