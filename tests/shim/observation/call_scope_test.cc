// Several threads that work for one call, and those that do not.
#include "shim/observation/call_scope.h"

#include <functional>
#include <thread>
#include <vector>

#include "shim/observation/device_exclusion.h"
#include "tests/shim/observation/region_fixture.h"

namespace grape::replay_test {
namespace {

class CallScopeTest : public RegionTest {
 protected:
  void SetUp() override {
    RegionTest::SetUp();
    nothing_ = function("_Z7nothingv");
    axpy_ = function("_Z4axpyPfPKffi");
  }
  void in_a_thread(const std::function<void()>& work) {
    std::thread([&] {
      ASSERT_CU(cuCtxSetCurrent(context_));
      work();
    }).join();
  }
  // Another thread works for the call.
  void attached(observation::CallScope& call, const std::function<void()>& work) {
    in_a_thread([&] {
      ASSERT_CU(run(axpy_, nullptr, CUdeviceptr{0}, CUdeviceptr{0}, 0.F,
                    0));  // which this thread knows by the number that the other one has for `copy_`
      ASSERT_TRUE(call.attach());
      EXPECT_EQ(observation::CallScope::current(), &call);
      work();
      call.detach();
      EXPECT_EQ(observation::CallScope::current(), nullptr);
    });
  }
  static std::vector<std::string> kernels(const program::RegionRecord& record) {
    std::vector<std::string> names;
    for (const program::RecordedNode& node : record.nodes) names.push_back(record.functions[node.function].name);
    return names;
  }
  CUfunction nothing_ = nullptr, axpy_ = nullptr;
};

TEST_F(CallScopeTest, WhatAnAttachedThreadLaunchesIsTheCallsInOrder) {
  const CUfunction mix = function("_Z3mixPmmm");
  const CUdeviceptr x = torch_alloc(512);
  std::uint64_t a = 1, b = 2;
  for (int i = 0; i < 2; ++i) {
    observation::CallScope call;
    const observation::Onlooker onlooker;
    const auto result = observe([&] {
      ASSERT_CU(run(nothing_, nullptr));
      attached(call, [&] {
        ASSERT_CU(run(mix, nullptr, x, a, b));
        torch_free(torch_alloc(1024), 1024);
        ASSERT_CU(run(nothing_, nullptr));
      });
      ASSERT_CU(run(nothing_, nullptr));
      attached(call, [&] { ASSERT_CU(run(mix, nullptr, x, a, b)); });
    });
    ASSERT_NE(result.record, nullptr) << result.refusal.text;
    const std::vector<std::string> expected = {"_Z7nothingv", "_Z3mixPmmm", "_Z7nothingv", "_Z7nothingv", "_Z3mixPmmm"};
    EXPECT_EQ(kernels(*result.record), expected);
    ASSERT_EQ(result.record->block_events.size(), 2u);
    EXPECT_EQ(result.record->block_events[0].before_node, 2u);
    EXPECT_NE(result.record->block_events[0].serial, 0u);
  }
}

TEST_F(CallScopeTest, WorkOfAttachedThreadsIsNotThatOfOthers) {
  observation::CallScope call;
  const observation::Onlooker onlooker;
  in_a_thread([&] {
    ASSERT_TRUE(call.attach());
    ASSERT_CU(run(nothing_, nullptr));
    call.detach();
  });
  EXPECT_FALSE(onlooker.others_worked());
  const observation::DeviceExclusion alone;
  in_a_thread([&] {
    ASSERT_TRUE(call.attach());
    ASSERT_CU(run(nothing_, nullptr));  // does not wait
    EXPECT_TRUE(alone.reached(1));
    call.detach();
  });
  EXPECT_TRUE(alone.reached(1));
}

TEST_F(CallScopeTest, AStrangersLaunchesAreNotTheCallsAndDisturbIt) {
  observation::CallScope call;
  const observation::Onlooker onlooker;
  const auto result = observe([&] {
    ASSERT_CU(run(nothing_, nullptr));
    in_a_thread([&] { ASSERT_CU(run(axpy_, nullptr, CUdeviceptr{0}, CUdeviceptr{0}, 0.F, 0)); });
  });
  ASSERT_NE(result.record, nullptr) << result.refusal.text;
  EXPECT_EQ(kernels(*result.record), std::vector<std::string>{"_Z7nothingv"});
  EXPECT_TRUE(onlooker.others_worked());
}

// Its own default stream is none of the caller's; what it reads, the caller does not wait for.
TEST_F(CallScopeTest, WhatCannotBeToldOfAnAttachedThreadIsRefused) {
  const CUdeviceptr x = torch_alloc(512);
  std::uint32_t value = 0;
  const struct {
    const char* reason;
    std::function<void()> work;
  } kCases[] = {
      {"puts work on the default stream of another thread that works for the call (a per-thread stream)",
       [&] { ASSERT_CU(run(nothing_, CU_STREAM_PER_THREAD)); }},
      {"reads device memory to the host without waiting for it, or more than Grape keeps",
       [&] {
         ASSERT_CU(cuMemcpyDtoHAsync(&value, x, sizeof value, nullptr));
         ASSERT_CU(cuStreamSynchronize(nullptr));
       }},
  };
  for (const auto& each : kCases) {
    observation::CallScope call;
    const auto result = observe([&] { attached(call, each.work); });
    EXPECT_EQ(result.record, nullptr);
    EXPECT_EQ(result.refusal.text, each.reason);
  }
}

// A thread of autograd's runs passes of several calling threads.
TEST_F(CallScopeTest, WhatAnAttachedThreadDoesForOthersInterrupts) {
  bool works = true;
  const auto is_true = [](const void* of) noexcept { return *static_cast<const bool*>(of); };
  for (const bool for_others : {false, true}) {
    observation::CallScope call;
    const auto result = observe([&] {
      in_a_thread([&] {
        EXPECT_FALSE(observation::CallScope::is_attached());
        ASSERT_TRUE(call.attach(is_true, &works));
        EXPECT_TRUE(observation::CallScope::is_attached());
        const CUdeviceptr x = torch_alloc(1024);
        ASSERT_CU(run(nothing_, nullptr));
        works = false;
        EXPECT_FALSE(observation::CallScope::works_now());
        torch_free(x, 1024);  // as the engine does between two nodes
        if (for_others) ASSERT_CU(run(nothing_, nullptr));
        works = true;
        call.detach();
        EXPECT_TRUE(observation::CallScope::works_now());
      });
    });
    EXPECT_EQ(result.record == nullptr, for_others) << result.refusal.text;
    EXPECT_EQ(result.again, for_others);
    EXPECT_EQ(result.refusal.id == refusal::RefusalId::pass_interrupted, for_others);
  }
}

TEST_F(CallScopeTest, TwoThreadsOfACallDoNotWorkAtATime) {
  observation::CallScope call;
  const auto result = observe([&] {
    call.set_waits(true);
    ASSERT_CU(run(nothing_, nullptr));
    call.set_waits(false);
  });
  EXPECT_EQ(result.record, nullptr);
  EXPECT_EQ(result.refusal.id, refusal::RefusalId::pass_interrupted);
}

TEST_F(CallScopeTest, AThreadThatHasLeftWorksForOtherCalls) {
  observation::CallScope call;
  const auto result = observe([&] {
    ASSERT_CU(run(nothing_, nullptr));
    call.leave();
    EXPECT_EQ(observation::CallScope::current(), nullptr);
    observation::CallScope other;
    EXPECT_EQ(observation::CallScope::current(), &other);
    call.leave();  // of no effect: the thread works for the other one
    EXPECT_EQ(observation::CallScope::current(), &other);
    observation::RegionSink own;
    ASSERT_TRUE(own.begin());
    ASSERT_CU(run(axpy_, nullptr, CUdeviceptr{0}, CUdeviceptr{0}, 0.F, 0));
    const auto recorded = own.end();
    ASSERT_NE(recorded.record, nullptr) << recorded.refusal.text;
    EXPECT_EQ(kernels(*recorded.record), std::vector<std::string>{"_Z4axpyPfPKffi"});
  });
  EXPECT_EQ(result.record, nullptr);
  EXPECT_EQ(result.refusal.id, refusal::RefusalId::not_recorded);
  in_a_thread([&] {
    ASSERT_TRUE(call.attach());
    call.leave();
    EXPECT_FALSE(observation::CallScope::is_attached());
    call.detach();  // it has gone already
    ASSERT_TRUE(call.attach());
    call.detach();
  });
}

TEST_F(CallScopeTest, AThreadWorksForOneCall) {
  observation::CallScope call;
  EXPECT_EQ(observation::CallScope::current(), &call);
  EXPECT_FALSE(call.attach());
  {
    const observation::CallScope inner;
    EXPECT_EQ(observation::CallScope::current(), &call);
  }
  in_a_thread([&] {
    observation::CallScope own;
    EXPECT_FALSE(call.attach());
    EXPECT_EQ(observation::CallScope::current(), &own);
  });
  // One whose events somebody else collects cannot be followed.
  EXPECT_TRUE(sink_.begin());
  in_a_thread([&] {
    observation::RegionSink own;
    ASSERT_TRUE(own.begin());
    EXPECT_FALSE(call.attach());
    EXPECT_EQ(observation::CallScope::current(), nullptr);
  });
  // Who begins to follow while others work for the call would know nothing of these.
  in_a_thread([&] {
    ASSERT_TRUE(call.attach());
    observation::Onlooker late;
    EXPECT_TRUE(late.others_worked());
    call.detach();
  });
  sink_.cancel();
  EXPECT_EQ(observation::CallScope::current(), &call);
}

}  // namespace
}  // namespace grape::replay_test
