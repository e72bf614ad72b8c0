// What is put in comes back bit for bit, whatever it was stored as.
#include <gtest/gtest.h>

#include "compressor/store/store.h"
#include "tests/compressor/store/programs.h"

namespace grape::store {
namespace {

using program::Program;

void expect_back(const Store& store, std::uint64_t id, const Program& expected, const std::string& what) {
  Program program = made_program(999, 3);  // memory that is used again must not shine through
  std::string error;
  ASSERT_TRUE(store.get(id, program, error)) << what << ": " << error;
  EXPECT_TRUE(equal(program, expected)) << what;
}

void put(Store& store, std::uint64_t id, const Program& program) {
  std::string error;
  ASSERT_TRUE(store.put(id, program, error)) << id << ": " << error;
}

std::unique_ptr<Store> reopened(Store& store) {
  std::vector<std::uint8_t> file;
  std::string error;
  store.save(file);
  auto again = Store::open(file, error);
  EXPECT_NE(again, nullptr);
  EXPECT_EQ(error, "");
  return again;
}

TEST(StoreRoundTrip, EveryFieldOfAProgramComesBack) {
  const Program program = made_program(1);
  Store store;
  put(store, 0, program);
  const std::vector<Change> changes = every_change();
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Program changed = program;
    changes[i].apply(changed);
    ASSERT_FALSE(equal(changed, program)) << changes[i].field << ": the change changes nothing";
    std::string error;
    EXPECT_FALSE(store.put(0, changed, error)) << changes[i].field << ": taken for the same program";
    ASSERT_NO_FATAL_FAILURE(put(store, i + 1, changed)) << changes[i].field;
    expect_back(store, i + 1, changed, changes[i].field);
  }
  const auto again = reopened(store);
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Program changed = program;
    changes[i].apply(changed);
    expect_back(store, i + 1, changed, changes[i].field);
    expect_back(*again, i + 1, changed, changes[i].field + ", from the file");
  }
}

TEST(StoreRoundTrip, SmallAndOddPrograms) {
  Store store;
  for (std::size_t nodes = 0; nodes < 12; ++nodes) {
    put(store, nodes, made_program(nodes, nodes));
    expect_back(store, nodes, made_program(nodes, nodes), std::to_string(nodes) + " nodes");
  }
  Program only_words;
  only_words.words.assign(100'000, 7);
  put(store, 100, only_words);
  put(store, 101, Program());
  const auto again = reopened(store);
  expect_back(*again, 100, only_words, "only words");
  expect_back(*again, 101, Program(), "nothing");
}

TEST(StoreRoundTrip, RelativesWithAndWithoutADictionary) {
  const Program first = made_program(5, 200);
  Store store;
  constexpr std::uint64_t kCount = 150;
  for (std::uint64_t i = 0; i < kCount; ++i) put(store, i, relative_of(first, i));
  EXPECT_EQ(store.statistics().dictionaries, 1u);
  const auto again = reopened(store);
  for (std::uint64_t i = 0; i < kCount; ++i) {
    expect_back(store, i, relative_of(first, i), std::to_string(i));
    expect_back(*again, i, relative_of(first, i), std::to_string(i) + ", from the file");
  }
}

TEST(StoreRoundTrip, AReopenedStoreTakesMoreAndIsSavedAgain) {
  const Program first = made_program(5, 100);
  Store store;
  for (std::uint64_t i = 0; i < 80; ++i) put(store, i, relative_of(first, i));
  const auto again = reopened(store);
  const Statistics before = again->statistics();
  for (std::uint64_t i = 80; i < 160; ++i) put(*again, i, relative_of(first, i));
  put(*again, 1000, made_program(77, 50));
  const Statistics after = again->statistics();
  EXPECT_EQ(after.whole, before.whole + 1) << "new programs did not find the bases of the file";
  EXPECT_EQ(after.dictionaries, 1u);
  const auto third = reopened(*again);
  for (std::uint64_t i = 0; i < 160; ++i) expect_back(*third, i, relative_of(first, i), std::to_string(i));
  expect_back(*third, 1000, made_program(77, 50), "a stranger");
}

TEST(StoreRoundTrip, SavingTwiceGivesTheSameBytes) {
  Store store;
  for (std::uint64_t i = 0; i < 30; ++i) put(store, i, relative_of(made_program(5), i / 2));
  std::vector<std::uint8_t> one, two;
  store.save(one);
  store.save(two);
  EXPECT_EQ(one, two);
}

TEST(StoreRoundTrip, ContradictionsAreRefused) {
  const std::vector<Change> wrong = {
      {"function", [](Program& p) { p.nodes[0].function = 99; }},
      {"words' place", [](Program& p) { p.nodes[5].words_at = ~0u; }},
      {"words' count", [](Program& p) { p.nodes[5].word_count = ~0u; }},
      {"attributes", [](Program& p) { p.nodes[5].attribute_count = 1000; }},
      {"edges' count", [](Program& p) { p.nodes[5].after_count = 1000; }},
      {"parameter bytes", [](Program& p) { p.nodes[0].parameter_bytes = p.nodes[0].word_count * 8 + 1; }},
      {"edge", [](Program& p) { p.after[3] = 4000; }},
      {"reference's word", [](Program& p) { p.references[0].word = ~0u; }},
      {"reference's block",
       [](Program& p) {
         p.references[0] = {0, program::Role::kStatic, 2};
       }},
      {"reference's role", [](Program& p) { p.references[0].role = static_cast<program::Role>(9); }},
      {"kind", [](Program& p) { p.nodes[0].kind = static_cast<program::NodeKind>(7); }},
      {"stray", [](Program& p) { p.strays[0] = ~0u; }},
      {"size", [](Program& p) { p.words.resize((1u << 24) + 1); }},
  };
  Store store;
  for (const Change& change : wrong) {
    Program program = made_program(1);
    change.apply(program);
    std::string error;
    EXPECT_FALSE(store.put(1, program, error)) << change.field;
    EXPECT_NE(error, "") << change.field;
  }
  EXPECT_EQ(store.statistics().programs, 0u);
  EXPECT_FALSE(store.contains(1));
}

TEST(StoreRoundTrip, IdsAreForgottenAndUsedAgain) {
  const Program first = made_program(5);
  Store store;
  for (std::uint64_t i = 0; i < 20; ++i) put(store, i, relative_of(first, i));
  EXPECT_TRUE(store.erase(0)) << "the base of the others";
  EXPECT_FALSE(store.erase(0));
  Program program;
  std::string error;
  EXPECT_FALSE(store.get(0, program, error));
  EXPECT_EQ(error, "no program has this id");
  for (std::uint64_t i = 1; i < 20; ++i) expect_back(store, i, relative_of(first, i), std::to_string(i));
  put(store, 0, made_program(8));
  expect_back(*reopened(store), 0, made_program(8), "another program under the id");
  for (std::uint64_t i = 0; i < 20; ++i) EXPECT_TRUE(store.erase(i));
  const Statistics empty = store.statistics();
  EXPECT_EQ(empty.programs + empty.unique + empty.whole + empty.raw, 0u);
  put(store, 3, relative_of(first, 3));
  expect_back(store, 3, relative_of(first, 3), "after all were gone");
}

TEST(StoreRoundTrip, ThousandsComeAndGo) {
  Store store;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    put(store, i, relative_of(made_program(i % 7 + i / 500 * 100, 10), i));
    if (i >= 100) {
      ASSERT_TRUE(store.erase(i - 100));
    }
  }
  EXPECT_EQ(store.statistics().programs, 100u);
  for (const std::uint64_t i : store.ids()) {
    expect_back(store, i, relative_of(made_program(i % 7 + i / 500 * 100, 10), i), std::to_string(i));
  }
}

}  // namespace
}  // namespace grape::store
