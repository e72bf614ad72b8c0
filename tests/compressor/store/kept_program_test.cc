// A program that is put away is the same when it comes back, and takes memory only while somebody has it.
#include "compressor/store/kept_program.h"

#include <gtest/gtest.h>

#include <utility>

#include "compressor/store/store.h"
#include "tests/compressor/store/programs.h"

namespace grape::store {
namespace {

using program::Program;

// The rest comes from the store.
void expect_thin(const Program& head) {
  EXPECT_TRUE(head.nodes.empty());
  EXPECT_TRUE(head.functions.empty());
  EXPECT_TRUE(head.words.empty());
  EXPECT_TRUE(head.references.empty());
  EXPECT_TRUE(head.attributes.empty());
  EXPECT_TRUE(head.host_data.empty());
}

TEST(KeptProgram, IsTheSameWhetherItIsAwayOrNot) {
  const Program program = made_program(1);
  Store store;
  KeptProgram kept(program);
  ASSERT_NE(kept.whole(), nullptr);
  EXPECT_TRUE(equal(*kept.whole(), program));
  ASSERT_TRUE(kept.put_away(store));
  EXPECT_EQ(store.statistics().programs, 1u);
  ASSERT_NE(kept.whole(), nullptr);
  EXPECT_TRUE(equal(*kept.whole(), program));
  EXPECT_TRUE(kept.put_away(store)) << "it is already";
  EXPECT_EQ(store.statistics().programs, 1u);
}

TEST(KeptProgram, HasWhatEachReplayAsksForAtHand) {
  const Program program = made_program(2);
  Store store;
  KeptProgram kept(program);
  const Program* head = &kept.head();
  ASSERT_TRUE(kept.put_away(store));
  EXPECT_EQ(head, &kept.head());
  expect_thin(*head);
  // With its other fields the head is the program.
  Program filled = program;
  filled.statics = head->statics;
  filled.input_bytes = head->input_bytes;
  filled.outputs = head->outputs;
  filled.waited_events = head->waited_events;
  filled.recorded_events = head->recorded_events;
  filled.waited_streams = head->waited_streams;
  filled.streams = head->streams;
  filled.stream_count = head->stream_count;
  filled.random_increment = head->random_increment;
  EXPECT_TRUE(equal(filled, program));
}

TEST(KeptProgram, TakesMemoryOnlyWhileSomebodyHasIt) {
  Store store;
  KeptProgram kept(made_program(3));
  const std::weak_ptr<const Program> first = kept.whole();
  EXPECT_FALSE(first.expired());
  ASSERT_TRUE(kept.put_away(store));
  EXPECT_TRUE(first.expired());
  const auto held = kept.whole();
  EXPECT_EQ(kept.whole(), held) << "two that need it share it";
  const std::weak_ptr<const Program> second = held;
  KeptProgram other(made_program(4));
  EXPECT_NE(other.whole(), held);
  EXPECT_FALSE(second.expired());
}

TEST(KeptProgram, LeavesTheStoreWhenItGoes) {
  Store store;
  const Program program = made_program(5);
  {
    KeptProgram kept(program), same(program);
    ASSERT_TRUE(kept.put_away(store));
    ASSERT_TRUE(same.put_away(store));
    EXPECT_EQ(store.statistics().programs, 2u);
    EXPECT_EQ(store.statistics().unique, 1u);
    KeptProgram moved(std::move(kept));
    EXPECT_EQ(store.statistics().programs, 2u);
    EXPECT_TRUE(equal(*moved.whole(), program));
    same = std::move(moved);
    EXPECT_TRUE(equal(*same.whole(), program));
  }
  EXPECT_EQ(store.statistics().programs, 0u);
}

TEST(KeptProgram, NothingIsAProgramToo) {
  Store store;
  KeptProgram none;
  EXPECT_EQ(none.whole(), nullptr);
  EXPECT_FALSE(none.put_away(store));
  expect_thin(none.head());
  KeptProgram empty{Program{}};
  ASSERT_TRUE(empty.put_away(store));
  ASSERT_NE(empty.whole(), nullptr);
  EXPECT_TRUE(equal(*empty.whole(), Program{}));
}

// What the store does not take stays where it is.
TEST(KeptProgram, StaysWhereTheStoreRefusesIt) {
  Store store;
  Program wrong = made_program(6);
  wrong.nodes.back().words_at = 1u << 30;
  KeptProgram kept(wrong);
  EXPECT_FALSE(kept.put_away(store));
  ASSERT_NE(kept.whole(), nullptr);
  EXPECT_TRUE(equal(*kept.whole(), wrong));
  EXPECT_EQ(store.statistics().programs, 0u);
}

}  // namespace
}  // namespace grape::store
