#include <gtest/gtest.h>

#include "python_hooks/replay/budget.h"

namespace grape::python::replay {
namespace {

// A region of one signature, whose calls take these seconds.
class PayoffTest : public ::testing::Test {
 protected:
  void SetUp() override { Payoff::observed(times_, observed_); }

  // What becomes of so many calls.
  struct Calls {
    int replayed = 0, measured = 0, rested = 0;
  };
  Calls call(int count) {
    Calls calls;
    for (int i = 0; i < count; ++i) {
      if (payoff_.rests()) {
        ++calls.rested;
      } else if (payoff_.measures()) {
        ++calls.measured;
        rests_ = payoff_.measured(times_, eager_, said_eager_, said_replay_);
      } else {
        ++calls.replayed;
        payoff_.replayed(times_, replay_);
      }
    }
    return calls;
  }

  Payoff payoff_;
  CallTimes times_;
  double observed_ = 130e-6, eager_ = 100e-6, replay_ = 30e-6;
  bool rests_ = false;  // said by the last measured call
  double said_eager_ = 0, said_replay_ = 0;
};

TEST_F(PayoffTest, WhatIsClearlyFasterIsNeverMeasured) {
  const Calls calls = call(100000);
  EXPECT_EQ(calls.replayed, 100000);
}

TEST_F(PayoffTest, WhatIsNoFasterRests) {
  replay_ = 110e-6;
  Calls calls = call(16 + 4);
  EXPECT_EQ(calls.replayed, 16);
  EXPECT_EQ(calls.measured, 4);
  EXPECT_TRUE(rests_);
  EXPECT_NEAR(said_eager_, eager_, 1e-9);
  EXPECT_NEAR(said_replay_, replay_, 1e-9);
  calls = call(512);
  EXPECT_EQ(calls.rested, 512);
  EXPECT_EQ(payoff_.rested(), 512u);
  // It is looked at again, and rests for longer.
  EXPECT_FALSE(payoff_.never_pays());
  calls = call(20 + 2048);
  EXPECT_EQ(calls.replayed, 16);
  EXPECT_EQ(calls.rested, 2048);
  EXPECT_TRUE(payoff_.never_pays());
}

TEST_F(PayoffTest, WhatBecomesFasterIsReplayedAgain) {
  replay_ = 110e-6;
  call(20 + 512);
  times_.replay = CallTimes::kNone;
  replay_ = 20e-6;
  EXPECT_EQ(call(1000).replayed, 1000);
}

TEST_F(PayoffTest, WhatIsSomewhatFasterIsMeasuredNowAndThen) {
  replay_ = 90e-6;
  const Calls calls = call(10000);
  EXPECT_EQ(calls.rested, 0);
  EXPECT_GT(calls.measured, 0);
  EXPECT_LT(calls.measured, 60) << "ever more seldom";
}

// One that a building of graphs made longer says nothing: the shortest counts.
TEST_F(PayoffTest, OneLongReplayDoesNotDecide) {
  payoff_.replayed(times_, 5e-3);
  const Calls calls = call(1000);
  EXPECT_EQ(calls.rested, 0);
  EXPECT_LE(calls.measured, 4);
}

// A busy machine: some are longer, which is not even looked into.
TEST_F(PayoffTest, WhatIsDisturbedNowAndThenIsNotMeasured) {
  call(1);
  for (int i = 0; i < 100; ++i) {
    payoff_.replayed(times_, 5e-3);
    EXPECT_EQ(call(10).measured, 0);
  }
}

}  // namespace
}  // namespace grape::python::replay
