// Work of other threads beside a shadow run.
#include <gtest/gtest.h>

#include <vector>

#include "shim/device/copy_memory.h"
#include "shim/device/own_kernels.h"
#include "shim/replay/shadow.h"
#include "tests/simcuda/fixture.h"

namespace grape::replay {
namespace {

class ShadowOthersTest : public simcuda_test::Driver {
 protected:
  void TearDown() override {
    device::CopyMemory::instance().release();
    device::forget_own_kernels(context_);
    Driver::TearDown();
  }
};

// Another thread's copy may have been put on its stream after the wait for the device, and run beside the eager call.
TEST_F(ShadowOthersTest, WorkThatWasUnderWayAtFirstMayBeAnotherThreads) {
  const std::vector<Shadow::Watched> watched = {{floats(64, 7), 256}};
  CUstream side = nullptr;
  ASSERT_CU(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
  refusal::Refusal error;
  ASSERT_NE(device::own_kernels(error), nullptr) << error.text;
  Shadow shadow;
  ASSERT_TRUE(shadow.before(side, watched, error)) << error.text;
  EXPECT_FALSE(shadow.others_worked());
  ASSERT_CU(launch("_Z5delayj", nullptr, 100'000u));
  ASSERT_TRUE(shadow.before(side, watched, error)) << error.text;
  EXPECT_TRUE(shadow.others_worked());
  ASSERT_CU(cuStreamSynchronize(nullptr));
  ASSERT_TRUE(shadow.before(side, watched, error)) << error.text;
  EXPECT_FALSE(shadow.others_worked());
  ASSERT_CU(cuStreamDestroy(side));
}

}  // namespace
}  // namespace grape::replay
