// Putting a cache together: what is refused, places, padding, and what comes over from an older one.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/compressor/cache/caches.h"

namespace grape::cache {
namespace {

using program::Program;
using store::made_program;

constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};

std::vector<std::string> regions_of(const Cache& cache) {
  std::vector<std::string> regions;
  for (const Entry& entry : cache.entries) regions.push_back(entry.call.region);
  return regions;
}

// The program's places in words, node by node.
std::vector<std::string> places_of(const Cache& cache, std::uint64_t id) {
  Program program;
  std::string error;
  EXPECT_TRUE(cache.programs->get(id, program, error)) << error;
  std::vector<std::string> places;
  for (const program::RecordedNode& node : program.nodes) {
    places.push_back(node.frame != 0 ? cache.places.at(node.frame - 1) : "");
  }
  return places;
}

Program with_frames(const std::vector<std::uint32_t>& frames) {
  Program program = made_program(1, frames.size());
  for (std::size_t i = 0; i < frames.size(); ++i) program.nodes[i].frame = frames[i];
  return program;
}

TEST(CacheBuilder, ACallIsKeptOnceAndABadProgramNotAtAll) {
  Builder builder("");
  Program bad = made_program(1, 3);
  bad.references[0].word = 1u << 30;
  EXPECT_FALSE(builder.add(made_entry(1, 1), bad, place_text));
  EXPECT_TRUE(builder.add(made_entry(1, 2), made_program(1, 3), place_text)) << "the refused one has left its call";
  EXPECT_FALSE(builder.add(made_entry(1, 3), made_program(2, 3), place_text));
  Entry near = made_entry(1, 4);
  near.call.code.low ^= 1;
  EXPECT_TRUE(builder.add(near, made_program(1, 3), place_text));
  const Cache cache = builder.take();
  ASSERT_EQ(cache.entries.size(), 2u);
  EXPECT_EQ(cache.entries[0].last_used, 2u);
  EXPECT_EQ(cache.programs->ids(), (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(cache.programs->statistics().unique, 1u) << "the same program for two calls";
}

TEST(CacheBuilder, APlaceIsKeptOnceAndWhatIsNotKnownIsNone) {
  Builder builder("");
  const auto place = [](std::uint32_t frame) { return frame == 9 ? std::string() : place_text(frame % 2); };
  ASSERT_TRUE(builder.add(made_entry(1, 1), with_frames({4, 0, 3, 9, 2, 5}), place));
  const Cache cache = builder.take();
  const std::string even = place_text(0), odd = place_text(1);
  EXPECT_EQ(cache.places, (std::vector<std::string>{even, odd}));
  EXPECT_EQ(places_of(cache, 1), (std::vector<std::string>{even, "", odd, "", even, odd}));
}

TEST(CacheMerge, PlacesKeepTheirText) {
  Builder old("");
  ASSERT_TRUE(old.add(made_entry(1, 1), with_frames({5, 6, 7}), place_text));
  ASSERT_TRUE(old.add(made_entry(2, 2), with_frames({8, 0, 5}), place_text));
  const Cache older = old.take();
  Builder builder("");
  ASSERT_TRUE(builder.add(made_entry(3, 3), with_frames({7, 30, 6}), place_text));
  builder.merge(older, kNoLimit);
  const Cache cache = builder.take();
  const auto text = place_text;
  EXPECT_EQ(places_of(cache, 1), (std::vector<std::string>{text(7), text(30), text(6)}));
  EXPECT_EQ(places_of(cache, 2), (std::vector<std::string>{text(8), "", text(5)}));
  EXPECT_EQ(places_of(cache, 3), (std::vector<std::string>{text(5), text(6), text(7)}));
  EXPECT_EQ(cache.places.size(), 5u);
}

TEST(CacheMerge, APlaceThatTheOlderOneLacksIsNotKnown) {
  Cache older = made_cache(1, 4);
  older.places.resize(1);
  Builder builder("");
  builder.merge(older, kNoLimit);
  const Cache cache = builder.take();
  const std::vector<std::string> places = places_of(cache, 1);
  EXPECT_EQ(places.size(), 4u);
  EXPECT_EQ(cache.places.size(), 1u);
}

TEST(CacheMerge, WhatIsThereStaysAndTheRestComesTheLatestUsedFirst) {
  Builder old("older");
  for (const std::uint64_t i : {1, 2, 3, 4}) {
    ASSERT_TRUE(old.add(made_entry(i, i == 3 ? 900 : 100 + i), made_program(i, 4), place_text));
  }
  const Cache older = old.take();
  Builder builder("newer");
  Entry own = made_entry(2, 50);
  own.outcome = {11, 12};
  ASSERT_TRUE(builder.add(own, made_program(20, 6), place_text));
  builder.merge(older, kNoLimit);
  const Cache cache = builder.take();
  EXPECT_EQ(cache.environment, "newer");
  const std::string name = "package.module:Class";
  EXPECT_EQ(regions_of(cache), (std::vector<std::string>{name + "2", name + "3", name + "4", name + "1"}));
  EXPECT_EQ(cache.entries[0].outcome, own.outcome);
  EXPECT_EQ(cache.entries[0].last_used, 50u);
  EXPECT_EQ(cache.entries[1].last_used, 900u);
  Program program;
  std::string error;
  ASSERT_TRUE(cache.programs->get(cache.entries[0].id, program, error)) << error;
  EXPECT_EQ(program.nodes.size(), 6u);
  ASSERT_TRUE(cache.programs->get(cache.entries[3].id, program, error)) << error;
  const Program first = made_program(1, 4);
  EXPECT_EQ(program.words, first.words);
  EXPECT_EQ(program.functions.size(), first.functions.size());
}

TEST(CacheMerge, StopsAtTheByteLimit) {
  Builder old("");
  for (std::uint64_t i = 0; i < 12; ++i) {
    ASSERT_TRUE(old.add(made_entry(i, 100 + i), made_program(i, 20 + i), place_text));
  }
  const Cache older = old.take();
  Builder all(""), some(""), none("");
  all.merge(older, kNoLimit);
  const Cache whole = all.take();
  ASSERT_EQ(whole.entries.size(), 12u);
  const std::uint64_t limit = whole.programs->statistics().compressed / 2;
  some.merge(older, limit);
  const Cache half = some.take();
  ASSERT_GT(half.entries.size(), 2u);
  ASSERT_LT(half.entries.size(), 10u);
  for (std::size_t i = 0; i < half.entries.size(); ++i) EXPECT_EQ(half.entries[i].last_used, 111 - i);
  // The last one was the one that reached it.
  EXPECT_GE(half.programs->statistics().compressed, limit);
  ASSERT_TRUE(half.programs->erase(half.entries.back().id));
  EXPECT_LT(half.programs->statistics().compressed, limit);
  ASSERT_TRUE(none.add(made_entry(99, 1), made_program(1, 20), place_text));
  none.merge(older, 1);
  EXPECT_EQ(none.take().entries.size(), 1u);
}

TEST(CacheMerge, PaddingIsWhatEitherSawMost) {
  const Digest first{1, 9}, second{2, 0};
  Builder old("");
  old.add_padding({second, 4, {1, 5, 0, 0, 0, 0, 0, 200}, 0x03, 0x10});
  old.add_padding({first, 7, {3}});
  const Cache older = old.take();
  Builder builder("");
  builder.add_padding({second, 4, {2, 1, 0, 0, 0, 0, 7, 0}, 0x06, 0});
  builder.add_padding({second, 3, {0, 6}});
  builder.add_padding({second, 3, {1, 2}});
  builder.merge(older, 0);
  const Cache cache = builder.take();
  const Padding expected[] = {
      {first, 7, {3}}, {second, 3, {1, 6}}, {second, 4, {2, 5, 0, 0, 0, 0, 7, 200}, 0x07, 0x10}};
  ASSERT_EQ(cache.padding.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(equal(cache.padding[i], expected[i])) << i;
  EXPECT_TRUE(cache.entries.empty());
}

TEST(CacheMerge, AnOlderOneThatWasReadFromItsFileGivesTheSame) {
  const Cache older = made_cache(6, 5);
  Cache read;
  std::string error;
  ASSERT_TRUE(open(file_of(older), read, error)) << error;
  Builder one(""), other("");
  one.merge(older, kNoLimit);
  other.merge(read, kNoLimit);
  EXPECT_TRUE(equal(one.take(), other.take()));
}

}  // namespace
}  // namespace grape::cache
