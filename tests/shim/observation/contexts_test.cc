// Work of a thread that is observed, in the context that is current and in others.
#include <functional>

#include "tests/shim/observation/region_fixture.h"

namespace grape::replay_test {
namespace {

constexpr char kElsewhere[] = "works on several devices, or on one that neither its arguments nor its module are on";

class ContextsTest : public RegionTest {
 protected:
  void expect_refused(const std::string& reason, const std::function<void()>& work) {
    const auto result = observe(work);
    EXPECT_EQ(result.record, nullptr);
    EXPECT_EQ(result.refusal.text, reason);
    EXPECT_FALSE(result.again) << reason;
  }
};

TEST_F(ContextsTest, WorkInAnotherOne) {
  CUcontext other = nullptr;
  ASSERT_CU(cuCtxCreate(&other, nullptr, 0, 0));
  CUstream foreign = stream();
  ASSERT_CU(cuCtxSetCurrent(context_));
  const CUdeviceptr x = torch_alloc(64);
  const auto in_other = [&](const std::function<void()>& work) {
    return [&, work] {
      ASSERT_CU(cuCtxPushCurrent(other));
      work();
      ASSERT_CU(cuCtxPopCurrent(nullptr));
    };
  };
  const CUevent recorded = event();
  const std::function<void()> works[] = {
      [&] { ASSERT_CU(cuMemsetD8Async(x, 0, 8, nullptr)); },
      [&] { ASSERT_CU(cuMemsetD8Async(x, 0, 8, CU_STREAM_PER_THREAD)); },
      [&] { ASSERT_CU(cuMemcpyDtoDAsync(x, x + 32, 8, nullptr)); },
      [&] { ASSERT_CU(cuStreamWaitEvent(nullptr, recorded, 0)); },
      [&] { ASSERT_CU(cuStreamSynchronize(nullptr)); },
      [&] { ASSERT_CU(cuMemsetD8Async(x, 0, 8, foreign)); },
  };
  for (const std::function<void()>& work : works) expect_refused(kElsewhere, in_other(work));
  expect_refused(kElsewhere, [&] { ASSERT_CU(cuMemsetD8Async(x, 0, 8, foreign)); });
  expect_refused("makes another device the current one", [&] { ASSERT_CU(cuCtxSetCurrent(other)); });
  ASSERT_CU(cuCtxSetCurrent(context_));
  EXPECT_NE(observe(in_other([] {})).record, nullptr) << "nothing is done there";
  EXPECT_NE(observe([&] { ASSERT_CU(cuCtxSetCurrent(context_)); }).record, nullptr) << "no change";
  ASSERT_CU(cuCtxDestroy(other));
  ASSERT_CU(cuCtxSetCurrent(context_));
}

// PyTorch's operators make the device of their tensors the current one for their launches.
TEST_F(ContextsTest, AllWorkInAContextThatIsNotTheCurrentOne) {
  CUcontext other = nullptr;
  const CUdeviceptr x = torch_alloc(64);
  ASSERT_CU(cuCtxCreate(&other, nullptr, 0, 0));
  const CUstream its = stream();
  ASSERT_CU(cuCtxSetCurrent(context_));
  const auto in_other = [&] {
    ASSERT_CU(cuCtxSetCurrent(other));
    ASSERT_CU(cuMemsetD8Async(x, 1, 8, nullptr));
    ASSERT_CU(cuMemsetD8Async(x, 2, 8, its));
    ASSERT_CU(cuCtxSetCurrent(context_));
  };
  const auto result = observe(in_other, other);
  ASSERT_NE(result.record, nullptr) << result.refusal.text;
  EXPECT_EQ(result.record->nodes.size(), 2u);
  const auto mixed = observe(
      [&] {
        in_other();
        ASSERT_CU(cuMemsetD8Async(x, 3, 8, nullptr));
      },
      other);
  EXPECT_EQ(mixed.record, nullptr);
  EXPECT_EQ(mixed.refusal.text, kElsewhere);
  EXPECT_EQ(observe(in_other).record, nullptr) << "the current one is what is meant where nobody says otherwise";
  ASSERT_CU(cuCtxDestroy(other));
  ASSERT_CU(cuCtxSetCurrent(context_));
}

}  // namespace
}  // namespace grape::replay_test
