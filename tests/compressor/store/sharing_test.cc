// What relatives share is kept once, memory stays in its budget, threads do not disturb each other.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "compressor/store/store.h"
#include "tests/compressor/store/programs.h"

namespace grape::store {
namespace {

using program::Program;

void put(Store& store, std::uint64_t id, const Program& program) {
  std::string error;
  ASSERT_TRUE(store.put(id, program, error)) << id << ": " << error;
}

bool comes_back(const Store& store, std::uint64_t id, const Program& expected) {
  Program program;
  std::string error;
  return store.get(id, program, error) && equal(program, expected);
}

TEST(StoreSharing, EqualProgramsAreKeptOnce) {
  Store store;
  const Program program = made_program(1);
  put(store, 1, program);
  const Statistics one = store.statistics();
  put(store, 2, program);
  put(store, 2, program);
  put(store, 3, program);
  const Statistics three = store.statistics();
  EXPECT_EQ(three.programs, 3u);
  EXPECT_EQ(three.unique, 1u);
  EXPECT_EQ(three.raw, 3 * one.raw);
  EXPECT_EQ(three.deduplicated, one.deduplicated);
  EXPECT_EQ(three.compressed, one.compressed);
  EXPECT_TRUE(store.erase(1));
  EXPECT_TRUE(comes_back(store, 2, program));
}

TEST(StoreSharing, RelativesAreDifferencesToTheNearestBase) {
  const Program first = made_program(1, 300), other = made_program(2, 300);
  Store store;
  for (std::uint64_t i = 0; i < 100; ++i) {
    put(store, 2 * i, relative_of(first, i));
    put(store, 2 * i + 1, relative_of(other, i));
  }
  store.compress();
  const Statistics statistics = store.statistics();
  EXPECT_EQ(statistics.unique, 200u);
  EXPECT_EQ(statistics.families, 2u);
  EXPECT_EQ(statistics.whole, 2u);
  EXPECT_LT(statistics.deduplicated, statistics.raw / 4);
  EXPECT_LT(statistics.compressed, statistics.deduplicated);
}

TEST(StoreSharing, AnInsertedOperationIsASmallDifference) {
  const Program program = made_program(1, 300);
  Store store;
  put(store, 1, program);
  const Statistics one = store.statistics();
  put(store, 2, with_node_inserted(program));
  const Statistics two = store.statistics();
  EXPECT_EQ(two.families, 2u);
  EXPECT_EQ(two.whole, 1u);
  EXPECT_LT(two.compressed - one.compressed, one.compressed / 4);
  EXPECT_TRUE(comes_back(store, 2, with_node_inserted(program)));
  // And what is a difference to that one is two differences from what is whole.
  put(store, 3, relative_of(with_node_inserted(program), 9));
  EXPECT_EQ(store.statistics().whole, 1u);
  EXPECT_TRUE(comes_back(store, 3, relative_of(with_node_inserted(program), 9)));
}

TEST(StoreSharing, FamiliesAreListed) {
  const Program first = made_program(1, 100), other = made_program(2, 50);
  Store store;
  for (std::uint64_t i = 10; i < 30; ++i) put(store, i, relative_of(first, i / 2));
  for (std::uint64_t i = 0; i < 5; ++i) put(store, i, relative_of(other, i));
  const std::vector<FamilyStatistics> families = store.families();
  ASSERT_EQ(families.size(), 2u);
  EXPECT_NE(families[0].shape, families[1].shape);
  EXPECT_EQ(families[0].example, 0u);
  EXPECT_EQ(families[0].programs, 5u);
  EXPECT_EQ(families[1].example, 10u);
  EXPECT_EQ(families[1].programs, 20u);
  EXPECT_EQ(families[1].unique, 10u);
  EXPECT_EQ(families[1].bases, 1u);
  const Statistics all = store.statistics();
  EXPECT_EQ(families[0].raw + families[1].raw, all.raw);
  EXPECT_LT(families[0].deduplicated + families[1].deduplicated, all.deduplicated) << "names are not a family's";
  EXPECT_GT(families[1].compressed, 0u);
  std::uint64_t raw = 0;
  ProgramStatistics program;
  for (const std::uint64_t id : store.ids()) {
    ASSERT_TRUE(store.statistics(id, program));
    EXPECT_EQ(program.shape, families[id < 10 ? 0 : 1].shape) << id;
    raw += program.raw;
  }
  EXPECT_EQ(raw, all.raw);
  EXPECT_FALSE(store.statistics(77, program));
}

TEST(StoreSharing, NamesAndLayoutsAreKeptOnce) {
  Program program;
  program.functions.resize(1);
  program.functions[0].name = std::string(100'000, 'n');
  program.functions[0].parameters.resize(1000);
  Store store;
  put(store, 1, program);
  const std::uint64_t one = store.statistics().deduplicated;
  for (std::uint64_t i = 2; i < 50; ++i) {
    program.functions[0].handle = i;  // loaded anew
    put(store, i, program);
  }
  EXPECT_LT(store.statistics().deduplicated, one + 50 * 200);
}

TEST(StoreSharing, AFarMemberOfAFamilyBecomesABase) {
  Program near = made_program(1, 100), far = near;
  for (std::uint64_t& word : far.words) word = word * 0x9E3779B97F4A7C15u + 1;
  const auto member = [&](std::uint64_t i) {
    Program program = i % 2 == 0 ? near : far;
    for (std::size_t word = 0; word < program.words.size(); word += 50) program.words[word] += i;
    return program;
  };
  Store store;
  for (std::uint64_t i = 0; i < 40; ++i) put(store, i, member(i));
  const Statistics statistics = store.statistics();
  EXPECT_EQ(statistics.families, 1u);
  EXPECT_EQ(statistics.bases, 2u);
  EXPECT_LT(statistics.deduplicated, statistics.raw / 8);
  for (std::uint64_t i = 0; i < 40; ++i) EXPECT_TRUE(comes_back(store, i, member(i)));
}

TEST(StoreBudget, BasesBeyondItAreGivenUpAndDecodedAgain) {
  constexpr std::uint64_t kFamilies = 12;
  Options options;
  options.hot_bytes = 60'000;  // of about 3 bases
  Store store(options);
  const auto member = [](std::uint64_t i) { return relative_of(made_program(i % kFamilies, 50), i); };
  for (std::uint64_t i = 0; i < 10 * kFamilies; ++i) {
    put(store, i, member(i));
    ASSERT_LE(store.statistics().hot, options.hot_bytes);
  }
  for (std::uint64_t i = 0; i < 10 * kFamilies; ++i) {
    EXPECT_TRUE(comes_back(store, i, member(i)));
    ASSERT_LE(store.statistics().hot, options.hot_bytes);
  }
  EXPECT_GT(store.statistics().hot, 0u);
  EXPECT_GT(store.statistics().base_misses, kFamilies);
}

TEST(StoreBudget, WhatIsUsedStaysHot) {
  Options options;
  options.hot_bytes = 60'000;
  Store store(options);
  const Program first = made_program(0, 50);
  for (std::uint64_t i = 0; i < 10; ++i) put(store, i, relative_of(first, i));
  EXPECT_TRUE(comes_back(store, 5, relative_of(first, 5)));
  const Statistics before = store.statistics();
  for (std::uint64_t i = 0; i < 10; ++i) EXPECT_TRUE(comes_back(store, i, relative_of(first, i)));
  const Statistics after = store.statistics();
  EXPECT_EQ(after.base_misses, before.base_misses);
  EXPECT_EQ(after.base_hits, before.base_hits + 10);
}

TEST(StoreBudget, NoneWorksToo) {
  Options options;
  options.hot_bytes = 0;
  Store store(options);
  for (std::uint64_t i = 0; i < 100; ++i) put(store, i, relative_of(made_program(3), i));
  EXPECT_EQ(store.statistics().hot, 0u);
  for (std::uint64_t i = 0; i < 100; ++i) EXPECT_TRUE(comes_back(store, i, relative_of(made_program(3), i)));
}

TEST(StoreBudget, WhatIsErasedIsNotHot) {
  Store store;
  for (std::uint64_t i = 0; i < 40; ++i) put(store, i, relative_of(made_program(i % 4, 50), i));
  put(store, 100, with_node_inserted(made_program(0, 50)));
  const std::uint64_t all = store.statistics().hot;
  for (std::uint64_t i = 0; i < 40; ++i) {
    if (i % 4 != 0) store.erase(i);
  }
  const std::uint64_t some = store.statistics().hot;
  EXPECT_LT(some, all);
  EXPECT_GT(some, 0u);
  for (std::uint64_t i = 0; i < 40; i += 4) store.erase(i);
  EXPECT_TRUE(comes_back(store, 100, with_node_inserted(made_program(0, 50)))) << "its base went";
  store.erase(100);
  EXPECT_EQ(store.statistics().hot, 0u);
}

TEST(StoreThreads, AllFunctionsAtOnce) {
  constexpr std::uint64_t kEach = 120;
  Options options;
  options.hot_bytes = 50'000;
  options.dictionary_after = 20;
  Store store(options);
  const auto member = [](std::uint64_t id) { return relative_of(made_program(id % 5, 20), id); };
  put(store, 1'000'000, member(1'000'000));
  std::atomic<int> wrong{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> writers, readers;
  for (std::uint64_t t = 0; t < 3; ++t) {
    writers.emplace_back([&, t] {
      std::string error;
      for (std::uint64_t i = 0; i < kEach; ++i) {
        const std::uint64_t id = t * kEach + i;
        if (!store.put(id, member(id), error) || !comes_back(store, id, member(id))) ++wrong;
        if (i % 3 == 0 && !store.erase(id)) ++wrong;
      }
    });
  }
  readers.emplace_back([&] {
    while (!stop) wrong += comes_back(store, 1'000'000, member(1'000'000)) ? 0 : 1;
  });
  readers.emplace_back([&] {
    while (!stop) {
      for (const std::uint64_t id : store.ids()) {
        Program program;
        std::string error;
        if (store.get(id, program, error) ? !equal(program, member(id)) : error != "no program has this id") ++wrong;
      }
    }
  });
  readers.emplace_back([&] {
    std::vector<std::uint8_t> file;
    std::string error;
    while (!stop) {
      store.save(file);
      if (Store::open(file, error) == nullptr || !error.empty()) ++wrong;
      if (store.statistics().hot > options.hot_bytes) ++wrong;
    }
  });
  for (std::thread& thread : writers) thread.join();
  stop = true;
  for (std::thread& thread : readers) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(store.ids().size(), 3 * kEach * 2 / 3 + 1);
}

}  // namespace
}  // namespace grape::store
