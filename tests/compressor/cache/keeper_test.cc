// A cache in its folder while processes use it.
#include "compressor/cache/keeper.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "compressor/cache/folder.h"
#include "tests/compressor/cache/caches.h"

namespace grape::cache {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using store::made_program;

std::atomic<int> g_said{0};
void say(const char*) { ++g_said; }
std::string no_place(std::uint32_t) { return {}; }

class KeeperTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "grape-keeper-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    above_ = pattern;
    g_said = 0;
  }
  void TearDown() override { fs::remove_all(above_); }

  Keeper::Options options(const std::string& environment = "e=1\n") const {
    Keeper::Options given;
    given.folder = above_ / "cache";
    given.environment = environment;
    given.say = say;
    given.quiet = milliseconds(20);
    given.patience = milliseconds(5'000);
    return given;
  }
  std::unique_ptr<Keeper> keeper() const {
    auto made = Keeper::open(options());
    EXPECT_NE(made, nullptr);
    return made;
  }
  static bool add(Keeper& keeper, std::uint64_t number) {
    return keeper.add(made_entry(number, 7), made_program(number, 6), no_place);
  }
  std::size_t entries() const { return keeper()->earlier().entries.size(); }

  fs::path above_;
};

TEST_F(KeeperTest, WhatOneAddsTheNextHas) {
  auto first = keeper();
  const Entry entry = made_entry(1, 7);
  EXPECT_FALSE(first->knows(entry.call.region, entry.call.signature));
  ASSERT_TRUE(add(*first, 1));
  EXPECT_FALSE(add(*first, 1)) << "once";
  first->add_padding({{5, 6}, 3, {1}});
  ASSERT_TRUE(first->write());
  EXPECT_EQ(first->find(entry.call), nullptr) << "what was there in the beginning";

  auto second = keeper();
  EXPECT_TRUE(second->knows(entry.call.region, entry.call.signature));
  ASSERT_NE(second->find(entry.call), nullptr);
  EXPECT_EQ(second->find(entry.call)->outcome, entry.outcome);
  ASSERT_EQ(second->earlier().padding.size(), 1u);
  EXPECT_FALSE(add(*second, 1)) << "it is there";
  EXPECT_EQ(second->added(), 0u);
  EXPECT_EQ(g_said.load(), 0);
}

TEST_F(KeeperTest, NothingNewIsNotWritten) {
  auto first = keeper();
  EXPECT_TRUE(first->write());
  EXPECT_FALSE(fs::exists(first->path()));
  add(*first, 1);
  EXPECT_TRUE(first->write());
  const auto when = fs::last_write_time(first->path());
  std::this_thread::sleep_for(milliseconds(10));
  EXPECT_TRUE(first->write());
  // Another one that found out the same.
  fs::path saved = above_ / "saved";
  fs::rename(first->path(), saved);
  auto second = keeper();
  fs::rename(saved, first->path());
  add(*second, 1);
  EXPECT_TRUE(second->write());
  EXPECT_EQ(fs::last_write_time(first->path()), when);
  second->add_padding({{5, 6}, 3, {1}});
  add(*second, 2);
  EXPECT_TRUE(second->write());
  EXPECT_NE(fs::last_write_time(first->path()), when);
  EXPECT_EQ(entries(), 2u);
}

TEST_F(KeeperTest, PaddingIsWrittenWithoutAProgram) {
  auto first = keeper();
  add(*first, 1);
  first->add_padding({{5, 6}, 3, {2, 0, 1}});
  ASSERT_TRUE(first->write());
  const auto when = fs::last_write_time(first->path());
  std::this_thread::sleep_for(milliseconds(10));
  auto second = keeper();
  for (const Padding& known : {Padding{{5, 6}, 3, {2}}, Padding{{5, 6}, 3, {1, 0, 1}}}) second->add_padding(known);
  ASSERT_TRUE(second->write());
  EXPECT_EQ(fs::last_write_time(first->path()), when) << "the file has as much";
  second->add_padding({{5, 6}, 3, {0, 2}, 0x03, 0x01});
  ASSERT_TRUE(second->write());
  auto third = keeper();
  ASSERT_EQ(third->earlier().padding.size(), 1u);
  EXPECT_EQ(third->earlier().padding.front().seen, (std::array<std::uint8_t, 8>{2, 2, 1}));
  EXPECT_EQ(third->earlier().padding.front().own, 0x03);
  EXPECT_EQ(third->earlier().padding.front().varies, 0x01);
}

TEST_F(KeeperTest, WhatIsRefutedGoesUnlessItIsAddedAnew) {
  auto first = keeper();
  for (const std::uint64_t number : {1, 2}) add(*first, number);
  ASSERT_TRUE(first->write());
  auto second = keeper();
  for (const std::uint64_t number : {1, 2}) {
    second->refute(made_entry(number, 7).call);
    EXPECT_EQ(second->find(made_entry(number, 7).call), nullptr);
  }
  EXPECT_TRUE(add(*second, 2));
  ASSERT_TRUE(second->write());
  auto third = keeper();
  EXPECT_EQ(third->find(made_entry(1, 7).call), nullptr);
  EXPECT_NE(third->find(made_entry(2, 7).call), nullptr);
}

TEST_F(KeeperTest, ARegionThatIsRefutedIsGoneAltogether) {
  auto first = keeper();
  for (const std::uint64_t number : {1, 2, 3}) add(*first, number);
  ASSERT_TRUE(first->write());
  first->refute_region(made_entry(2, 7).call.region);
  EXPECT_EQ(first->added(), 2u);
  EXPECT_FALSE(add(*first, 2));
  ASSERT_TRUE(first->write());
  auto second = keeper();
  EXPECT_EQ(second->earlier().entries.size(), 2u);
  EXPECT_EQ(second->earlier().programs->ids().size(), 2u);
  const Call one = made_entry(1, 7).call;
  ASSERT_NE(second->find(one), nullptr);
  second->refute_region(one.region);
  EXPECT_EQ(second->find(one), nullptr);
  EXPECT_FALSE(second->knows(one.region, one.signature));
  ASSERT_TRUE(second->write());
  EXPECT_EQ(entries(), 1u);
}

TEST_F(KeeperTest, WhatWasAddedHereAndIsRefutedIsNotWritten) {
  auto first = keeper();
  for (const std::uint64_t number : {1, 2}) add(*first, number);
  first->refute(made_entry(1, 7).call);
  ASSERT_TRUE(first->write());
  EXPECT_EQ(entries(), 1u);
  EXPECT_TRUE(add(*first, 1)) << "anew";
  ASSERT_TRUE(first->write());
  EXPECT_EQ(entries(), 2u);
}

TEST_F(KeeperTest, OtherEnvironmentsAreOtherFiles) {
  auto first = keeper();
  add(*first, 1);
  ASSERT_TRUE(first->write());
  auto other = Keeper::open(options("e=2\n"));
  ASSERT_NE(other, nullptr);
  EXPECT_NE(other->path(), first->path());
  EXPECT_TRUE(other->earlier().entries.empty());
  // A file that was given another one's name.
  fs::copy_file(first->path(), other->path());
  EXPECT_TRUE(Keeper::open(options("e=2\n"))->earlier().entries.empty());
  EXPECT_EQ(g_said.load(), 1);
}

TEST_F(KeeperTest, ADamagedFileIsReplaced) {
  auto first = keeper();
  for (const std::uint64_t number : {1, 2}) add(*first, number);
  ASSERT_TRUE(first->write());
  fs::resize_file(first->path(), fs::file_size(first->path()) - 3);
  auto second = keeper();
  EXPECT_EQ(g_said.load(), 1);
  EXPECT_TRUE(second->earlier().entries.empty());
  add(*second, 2);
  ASSERT_TRUE(second->write());
  EXPECT_EQ(entries(), 1u);
  EXPECT_EQ(g_said.load(), 1);
}

TEST_F(KeeperTest, AFolderThatIsNotToBeUsed) {
  fs::create_directory(above_ / "cache");
  ASSERT_EQ(chmod((above_ / "cache").c_str(), 0777), 0);
  EXPECT_EQ(Keeper::open(options()), nullptr);
  EXPECT_EQ(g_said.load(), 1);
}

TEST_F(KeeperTest, AFolderThatAnotherProcessHoldsIsLeft) {
  Keeper::Options impatient = options();
  impatient.patience = milliseconds(1);
  auto first = Keeper::open(impatient);
  add(*first, 1);
  {
    Folder other;
    std::string error;
    ASSERT_TRUE(other.open(impatient.folder, error) && other.lock(0)) << error;
    EXPECT_FALSE(first->write());
    EXPECT_EQ(g_said.load(), 1);
  }
  EXPECT_TRUE(first->write()) << "nothing is lost";
  EXPECT_EQ(entries(), 1u);
}

TEST_F(KeeperTest, AThreadWritesOnceItIsQuiet) {
  auto first = keeper();
  first->write_in_background();
  for (std::uint64_t number = 1; number <= 40; ++number) {
    add(*first, number);
    std::this_thread::sleep_for(milliseconds(1));
  }
  for (int i = 0; i < 10'000 && entries() < 40; ++i) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(entries(), 40u);
  EXPECT_EQ(g_said.load(), 0);
}

TEST_F(KeeperTest, AThreadWritesThoughItIsNeverQuiet) {
  Keeper::Options restless = options();
  restless.quiet = milliseconds(3'600'000);
  restless.latest = milliseconds(50);
  auto first = Keeper::open(restless);
  first->write_in_background();
  std::uint64_t number = 0;
  for (int i = 0; i < 10'000 && entries() == 0; ++i) {
    add(*first, ++number);
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_GT(entries(), 0u);
}

TEST_F(KeeperTest, ManyAtATime) {
  constexpr std::uint64_t kKeepers = 4, kEach = 50;
  std::vector<std::unique_ptr<Keeper>> keepers;
  for (std::uint64_t i = 0; i < kKeepers; ++i) {
    keepers.push_back(keeper());
    keepers.back()->write_in_background();
  }
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < kKeepers; ++i) {
    threads.emplace_back([&keepers, i] {
      for (std::uint64_t k = 0; k < kEach; ++k) {
        // Some that all of them find, and some of its own.
        const std::uint64_t number = k % 2 == 0 ? 1000 + k : i * kEach + k;
        add(*keepers[i], number);
        keepers[i]->add_padding({{number, 1}, 1, {1}});
        if (k % 10 == 0) keepers[i]->note_use(made_entry(number, 7).call);
        if (k % 16 != 0) continue;
        EXPECT_TRUE(keepers[i]->write());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& each : keepers) EXPECT_TRUE(each->write());
  keepers.clear();
  EXPECT_EQ(entries(), kKeepers * kEach / 2 + kEach / 2);
  EXPECT_EQ(g_said.load(), 0);
}

}  // namespace
}  // namespace grape::cache
