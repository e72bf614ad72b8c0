// Threads that did no work on a device yet.
#include "shim/device/thread_context.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/simcuda/fixture.h"

namespace grape::device {
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

// A second context, as that of another device.
class ContextScopeTest : public simcuda_test::Driver {
 protected:
  void SetUp() override {
    Driver::SetUp();
    ASSERT_CU(cuCtxCreate(&other_, nullptr, 0, 0));
    ASSERT_CU(cuCtxSetCurrent(context_));
  }
  void TearDown() override {
    EXPECT_CU(cuCtxDestroy(other_));
    Driver::TearDown();
  }

  CUcontext other_ = nullptr;
};

TEST_F(ContextScopeTest, AnotherOneIsCurrentWithin) {
  {
    ContextScope scope(other_);
    EXPECT_TRUE(scope.entered());
    EXPECT_EQ(current(), other_);
    const ContextScope inner(other_);
    EXPECT_TRUE(inner.entered());
  }
  EXPECT_EQ(current(), context_);
  EXPECT_EQ(simcuda_calls("cuCtxPushCurrent_v2"), simcuda_calls("cuCtxPopCurrent_v2"));
}

TEST_F(ContextScopeTest, NoneAskedForIsNoneMade) {
  simcuda_reset();
  const ContextScope none(nullptr);
  EXPECT_TRUE(none.entered());
  EXPECT_EQ(simcuda_calls("cuCtxGetCurrent") + simcuda_calls("cuCtxPushCurrent_v2"), 0u);
}

TEST_F(ContextScopeTest, AThreadWithoutOneHasNoneAfterwards) {
  std::thread([&] {
    {
      const ContextScope scope(other_);
      EXPECT_TRUE(scope.entered());
      EXPECT_EQ(current(), other_);
    }
    EXPECT_EQ(current(), nullptr);
  }).join();
}

TEST_F(ContextScopeTest, ItIsLeftForAWhile) {
  ContextScope scope(other_);
  scope.leave();
  EXPECT_EQ(current(), context_);
  scope.leave();
  EXPECT_EQ(current(), context_);
  scope.again();
  EXPECT_TRUE(scope.entered());
  EXPECT_EQ(current(), other_);
  scope.leave();
  ASSERT_EQ(simcuda_set_fault("cuCtxPushCurrent_v2", 1, CUDA_ERROR_UNKNOWN), 0);
  scope.again();
  EXPECT_FALSE(scope.entered());
  EXPECT_EQ(current(), context_);
}

TEST_F(ContextScopeTest, OneThatIsRefusedChangesNothing) {
  for (const char* symbol : {"cuCtxPushCurrent_v2", "cuCtxGetCurrent"}) {
    ASSERT_EQ(simcuda_set_fault(symbol, 1, CUDA_ERROR_UNKNOWN), 0);
    {
      const ContextScope scope(other_);
      EXPECT_FALSE(scope.entered()) << symbol;
    }
    simcuda_reset();
    EXPECT_EQ(current(), context_) << symbol;
  }
}

TEST_F(ContextScopeTest, OneThatCannotBeLeftIsReplaced) {
  {
    const ContextScope scope(other_);
    ASSERT_EQ(simcuda_set_fault("cuCtxPopCurrent_v2", 1, CUDA_ERROR_UNKNOWN), 0);
  }
  EXPECT_EQ(current(), context_);
}

TEST_F(ContextScopeTest, ThePrimaryOneIsFound) {
  EXPECT_EQ(primary_context(0), context_);
  EXPECT_EQ(primary_context(1000), nullptr);
  for (const char* symbol : {"cuDeviceGet", "cuDevicePrimaryCtxGetState", "cuDevicePrimaryCtxRetain"}) {
    ASSERT_EQ(simcuda_set_fault(symbol, 0, CUDA_ERROR_UNKNOWN), 0);
    EXPECT_EQ(primary_context(0), nullptr) << symbol;
    simcuda_reset();
  }
}

}  // namespace
}  // namespace grape::device
