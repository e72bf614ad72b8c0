// Work between a call's own, which is somebody else's: autograd's sums between the nodes of a backward pass.
#include <vector>

#include "tests/shim/observation/region_fixture.h"

namespace grape::replay_test {
namespace {

using program::RegionRecord;

class OutsideTest : public RegionTest {
 protected:
  void launch_with(std::uint64_t number) { ASSERT_CU(run(mix_, nullptr, place_, std::uint64_t{0}, number)); }
  void SetUp() override {
    RegionTest::SetUp();
    mix_ = function("_Z3mixPmmm");
    place_ = torch_alloc(8);
  }
  // What launch_with() was called with, of the kernels in the record.
  static std::vector<std::uint64_t> numbers(const RegionRecord& record) {
    std::vector<std::uint64_t> found;
    for (const auto& node : record.nodes) found.push_back(record.words[node.words_at + 2]);
    return found;
  }
  static bool still(const void* of) noexcept { return *static_cast<const bool*>(of); }

  CUfunction mix_ = nullptr;
  CUdeviceptr place_ = 0;
};

TEST_F(OutsideTest, LaunchesAndBirthsInBetweenAreNotTheCalls) {
  CUdeviceptr mine = 0, other = 0, last = 0;
  const auto result = observe([&] {
    mine = torch_alloc(512);
    launch_with(1);
    sink_.set_outside(true);
    other = torch_alloc(512);
    launch_with(2);
    ASSERT_CU(cuMemsetD32Async(other, 7, 64, nullptr));
    sink_.set_outside(true);  // as it is
    launch_with(3);
    sink_.set_outside(false);
    last = torch_alloc(512);
    launch_with(4);
  });
  ASSERT_NE(result.record, nullptr) << result.refusal.text;
  const RegionRecord& record = *result.record;
  EXPECT_EQ(numbers(record), (std::vector<std::uint64_t>{1, 4}));
  ASSERT_EQ(record.block_events.size(), 2u);
  EXPECT_EQ(record.block_events[0].address, mine);
  EXPECT_EQ(record.block_events[1].address, last);
  EXPECT_TRUE(memory::LiveBlocks::instance().alive(last, record.block_events[1].serial));
  EXPECT_EQ(record.block_events[1].before_node, 1u);
}

// Else memory that is used again would be taken for the block that was there.
TEST_F(OutsideTest, EndsInBetweenAreKept) {
  const CUdeviceptr before = torch_alloc(512);
  CUdeviceptr mine = 0;
  const auto result = observe([&] {
    mine = torch_alloc(512);
    launch_with(1);
    sink_.set_outside(true);
    torch_free(mine, 512);
    torch_free(before, 512);
    sink_.set_outside(false);
    launch_with(2);
  });
  ASSERT_NE(result.record, nullptr) << result.refusal.text;
  const auto& events = result.record->block_events;
  ASSERT_EQ(events.size(), 3u);
  EXPECT_FALSE(events[1].alloc);
  EXPECT_EQ(events[1].address, mine);
  EXPECT_EQ(events[1].before_node, 1u);
  EXPECT_FALSE(events[2].alloc);
  EXPECT_EQ(events[2].address, before);
}

// What no program can hold is no matter there.
TEST_F(OutsideTest, WhatIsRefusedElsewhereIsNotTheCalls) {
  const auto reads = [&](bool outside) {
    return observe([&] {
      launch_with(1);
      sink_.set_outside(outside);
      std::vector<char> all(1 << 16);
      CUdeviceptr large = segment_;
      ASSERT_CU(cuMemcpyDtoH(all.data(), large, all.size()));
      sink_.set_outside(false);
    });
  };
  EXPECT_EQ(reads(false).record, nullptr);
  EXPECT_NE(reads(true).record, nullptr);
}

TEST_F(OutsideTest, InsideForAsLongAsTheCallbackSays) {
  bool at_node = true;
  const auto result = observe([&] {
    sink_.set_outside(true);
    launch_with(1);
    sink_.set_inside_while(still, &at_node);
    launch_with(2);
    torch_alloc(512);
    at_node = false;
    launch_with(3);
    at_node = true;  // it is not asked again
    torch_alloc(512);
    launch_with(4);
    sink_.set_outside(false);
    at_node = false;  // nor here
    launch_with(5);
  });
  ASSERT_NE(result.record, nullptr) << result.refusal.text;
  EXPECT_EQ(numbers(*result.record), (std::vector<std::uint64_t>{2, 5}));
  EXPECT_EQ(result.record->block_events.size(), 1u);
}

TEST_F(OutsideTest, EachObservationBeginsInside) {
  bool at_node = true;
  observe([&] { sink_.set_inside_while(still, &at_node); });
  at_node = false;
  auto result = observe([&] { launch_with(1); });
  ASSERT_NE(result.record, nullptr) << result.refusal.text;
  EXPECT_EQ(numbers(*result.record), (std::vector<std::uint64_t>{1})) << "nobody is asked any more";
  observe([&] { sink_.set_outside(true); });
  result = observe([&] {
    launch_with(1);
    sink_.set_outside(true);
    launch_with(2);
  });
  ASSERT_NE(result.record, nullptr) << result.refusal.text;
  EXPECT_EQ(numbers(*result.record), (std::vector<std::uint64_t>{1}));
}

}  // namespace
}  // namespace grape::replay_test
