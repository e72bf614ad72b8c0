// What looks may cost: Rhythm, LookCosts, and LookBudget, whose one account this process has.
#include "python_hooks/replay/look_budget.h"

#include <gtest/gtest.h>

#include <vector>

#include "python_hooks/replay/budget.h"

namespace grape::python::replay {
namespace {

std::uint32_t steady_after(const std::vector<std::uint64_t>& numbers) {
  Rhythm rhythm;
  for (const std::uint64_t number : numbers) rhythm.note(number, 0);
  return rhythm.steady();
}

TEST(Rhythm, OfALoopIsKnownByItsThirdTurn) {
  EXPECT_EQ(steady_after({1}), 0u);
  EXPECT_EQ(steady_after({1, 2}), 0u);
  EXPECT_EQ(steady_after({1, 2, 3}), 1u);
  EXPECT_EQ(steady_after({5, 6, 7, 8, 9}), 3u);
  EXPECT_EQ(steady_after({1, 3, 5, 7}), 2u);  // two kinds of calls in turn
}

TEST(Rhythm, OfCallsAtRandomIsNone) {
  EXPECT_EQ(steady_after({1, 2, 4}), 0u);
  EXPECT_EQ(steady_after({1, 2, 3, 5}), 0u);
  EXPECT_EQ(steady_after({3, 20, 37, 54}), 0u);  // too seldom to tell
}

TEST(Rhythm, LendsAsLongAsTheLoopHasRun) {
  Rhythm rhythm;
  rhythm.note(1, 10.0);
  rhythm.note(2, 10.5);
  EXPECT_EQ(rhythm.lends(0.1), 0);
  rhythm.note(3, 11.0);
  EXPECT_EQ(rhythm.lends(CallTimes::kNone), 0);
  EXPECT_NEAR(rhythm.lends(0.1), 1.0, 1e-9);
  EXPECT_NEAR(rhythm.lends(0.01), 0.16, 1e-9);  // the rest of a turn may be a pause
  rhythm.note(4, 11.5);
  EXPECT_NEAR(rhythm.lends(0.1), 1.5, 1e-9);
}

TEST(LookCosts, AreTheWorstOfTheLatest) {
  double worst = 0;
  LookCosts::note(worst, 0.04);
  LookCosts::note(worst, 0.001);
  EXPECT_NEAR(worst, 0.036, 1e-9);
  for (int i = 0; i < 50; ++i) LookCosts::note(worst, 0.001);
  EXPECT_NEAR(worst, 0.001, 1e-9);
}

// All seconds from 100 on are the program's own, but for what is spent.
class LookBudgetTest : public testing::Test {
 protected:
  static CallTimes times(double eager) {
    CallTimes times;
    times.eager = eager;
    return times;
  }
};

TEST_F(LookBudgetTest, IsAShareOfTheTimeWithoutGrape) {
  LookBudget::note_time(90.0, 1);
  LookBudget::note_time(100.0, 2);  // ten seconds in which code was loaded: 0.1 of them count
  EXPECT_TRUE(LookBudget::affords(100.0));
  EXPECT_TRUE(LookBudget::affords(100.0, 0.025));
  EXPECT_FALSE(LookBudget::affords(100.0, 0.026));
  EXPECT_TRUE(LookBudget::affords(100.0, 0.026, 0.002));   // lent to a loop
  EXPECT_FALSE(LookBudget::affords(100.0, 0.02, 0, 0.5));  // of half of it
  LookBudget::spend(0.05);
  EXPECT_FALSE(LookBudget::affords(100.05));
  EXPECT_FALSE(LookBudget::affords(101.0));
  EXPECT_TRUE(LookBudget::affords(101.1));  // 1.15 s without what was spent
  EXPECT_FALSE(LookBudget::affords(101.1, 0.01));
  LookBudget::note_time(100.8, 3);  // 0.75 s, of which 0.1 count
  EXPECT_FALSE(LookBudget::affords(101.3));
  LookBudget::note_time(101.8, 3);
  LookBudget::note_time(101.85, 4);  // 0.05 s with loading, which counts
  EXPECT_TRUE(LookBudget::affords(101.85));
  EXPECT_FALSE(LookBudget::affords(101.85, 0.01));

  // What replays gain may be spent, but for a part. What is no gain may not.
  EXPECT_EQ(LookBudget::earn(CallTimes(), 30e-6), 0);
  EXPECT_EQ(LookBudget::earn(times(20e-6), 30e-6), 0);
  LookBudget::spend(0.5);
  EXPECT_FALSE(LookBudget::affords(102.0));
  for (int i = 0; i < 500; ++i) EXPECT_NEAR(LookBudget::earn(times(1030e-6), 30e-6), 1e-3, 1e-9);
  EXPECT_TRUE(LookBudget::affords(104.4));
  EXPECT_FALSE(LookBudget::affords(104.4, 0.1));

  // Not more than a second is saved up, and nothing where the CPU waits for the device.
  for (int i = 0; i < 100000; ++i) LookBudget::earn(times(1030e-6), 30e-6);
  LookBudget::spend(1);
  EXPECT_TRUE(LookBudget::affords(105.0));
  LookBudget::spend(10);
  EXPECT_FALSE(LookBudget::affords(105.0));
  for (int i = 0; i < 1000; ++i) LookBudget::note_device(false);
  for (int i = 0; i < 10000; ++i) LookBudget::earn(times(1030e-6), 30e-6);
  EXPECT_FALSE(LookBudget::affords(105.0));
  for (int i = 0; i < 1000; ++i) LookBudget::note_device(true);
  for (int i = 0; i < 10000; ++i) LookBudget::earn(times(1030e-6), 30e-6);
  EXPECT_TRUE(LookBudget::affords(105.0));
}

TEST(Alike, DiffersByMoreThanOneCallOfFive) {
  Alike read;
  read.note(false);
  read.note(true);
  read.note(false);
  EXPECT_FALSE(read.differs(0));
  read.note(false);
  EXPECT_TRUE(read.differs(10));
  EXPECT_FALSE(read.differs(11));
}

}  // namespace
}  // namespace grape::python::replay
