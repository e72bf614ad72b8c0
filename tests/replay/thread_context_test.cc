// Threads that did no work on a device yet.
#include "shim/replay/thread_context.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/simcuda/fixture.h"

namespace grape::replay {
namespace {

using ThreadContextTest = simcuda_test::Driver;

CUcontext current() {
  CUcontext context = nullptr;
  EXPECT_CU(cuCtxGetCurrent(&context));
  return context;
}

TEST_F(ThreadContextTest, ANewThreadGetsThePrimaryOne) {
  std::thread([&] {
    ASSERT_EQ(current(), nullptr);
    EXPECT_TRUE(have_context(0));
    EXPECT_EQ(current(), context_);
    EXPECT_TRUE(have_context(0));
  }).join();
}

// What was retained to get it was given back.
TEST_F(ThreadContextTest, ItIsRetainedByNobodyElse) {
  std::thread([] { EXPECT_TRUE(have_context(0)); }).join();
  unsigned flags = 0;
  int active = 0;
  ASSERT_CU(cuDevicePrimaryCtxRelease(0));
  ASSERT_CU(cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT_EQ(active, 0);
  ASSERT_CU(cuDevicePrimaryCtxRetain(&context_, 0));  // for TearDown
}

TEST_F(ThreadContextTest, OneThatIsCurrentStays) {
  CUcontext other = nullptr;
  ASSERT_CU(cuCtxCreate(&other, nullptr, 0, 0));
  EXPECT_TRUE(have_context(0));
  EXPECT_EQ(current(), other);
  ASSERT_CU(cuCtxDestroy(other));
  ASSERT_CU(cuCtxSetCurrent(context_));
}

TEST_F(ThreadContextTest, NoneIsMade) {
  ASSERT_CU(cuDevicePrimaryCtxReset_v2(0));
  std::thread([] {
    EXPECT_FALSE(have_context(0));
    EXPECT_FALSE(have_context(1000));
    EXPECT_EQ(current(), nullptr);
  }).join();
}

}  // namespace
}  // namespace grape::replay
