// Replays beside an eager run, on the simulated driver: every difference is seen, and whatever the program did, memory
// is afterwards byte by byte what eager left.
#include "shim/replay/shadow.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "shim/device/own_kernels.h"
#include "tests/shim/graphs/program_builder.h"
#include "tests/simcuda/fixture.h"

namespace grape::replay {
namespace {

using replay_test::ProgramBuilder;

constexpr std::size_t kCount = 64;
constexpr std::uint64_t kBytes = kCount * sizeof(float);

// The region that all are about: input += weight; output = input. So a replay is equal only if it starts from the
// input as it was before the eager run.
class ShadowTest : public simcuda_test::Driver {
 protected:
  void SetUp() override {
    Driver::SetUp();
    refusal::Refusal error;
    ASSERT_NE(device::own_kernels(error), nullptr) << error.text;  // what they allocate is not a shadow's
    input_ = floats(kCount, 7);
    weight_ = floats(kCount, 5);
    eager_output_ = floats(kCount);
    output_ = floats(kCount);
    free_at_first_ = free_bytes();
  }
  void TearDown() override {
    device::CopyMemory::instance().release();
    device::forget_own_kernels(context_);  // as the wrappers do it
    Driver::TearDown();
  }

  std::vector<Shadow::Watched> watched() const { return {{input_, kBytes}, {weight_, kBytes}}; }

  void run_eagerly() {
    ASSERT_CU(launch("_Z4axpyPfPKffi", nullptr, input_, weight_, 1.0f, static_cast<int>(kCount)));
    ASSERT_CU(launch("_Z4copyPfPKfi", nullptr, eager_output_, input_, static_cast<int>(kCount)));
  }

  struct Region {
    ProgramBuilder builder;
    ProgramBuilder::Block weight, input, output;
  };
  Region same_as_eager(std::uint32_t scale = 0x3f800000) {
    Region region;
    ProgramBuilder& builder = region.builder;
    region.weight = builder.add_static(weight_, kBytes);
    region.input = builder.add_input(kBytes);
    region.output = builder.add_output(kBytes);
    const auto handle = [&](const char* name) { return reinterpret_cast<std::uint64_t>(function(name)); };
    const auto axpy = builder.add_function(handle("_Z4axpyPfPKffi"), "_Z4axpyPfPKffi", {8, 8, 4, 4});
    builder.kernel(
        axpy, {region.input.at(0), region.weight.at(0), ProgramBuilder::plain(scale), ProgramBuilder::plain(kCount)});
    builder.copy(region.output.at(0), region.input.at(0), kBytes);
    return region;
  }

  struct Result {
    bool compared = false;
    Shadow::Found found = Shadow::Found::kDifferent;
    refusal::Refusal difference{refusal::RefusalId::no_memory, "none was asked for", {}}, error;
  };
  // Launches the program on `stream` behind before() and after().
  Result compare(Shadow& shadow, const ProgramBuilder& builder, CUstream stream = nullptr) {
    Result result;
    const program::ArenaPlan plan = builder.plan();
    program::Bindings bindings;
    bindings.inputs = {input_};
    bindings.outputs = {output_};
    graphs::ExecPool pool;
    ProgramRun steps;
    EXPECT_TRUE(steps.prepare(pool, builder.kept(), plan, bindings, result.error)) << result.error.text;
    result.compared =
        shadow.compare(stream, {}, steps, {{output_, kBytes}}, false, result.found, result.difference, result.error);
    EXPECT_CU(cuCtxSynchronize());
    return result;
  }
  // The whole way. Expects all memory but the program's own output as eager left it.
  Result shadowed(const ProgramBuilder& builder) {
    Shadow shadow;
    Result result;
    EXPECT_TRUE(shadow.before(nullptr, watched(), result.error)) << result.error.text;
    run_eagerly();
    EXPECT_TRUE(shadow.after(nullptr, {{eager_output_, kBytes}}, result.error)) << result.error.text;
    const std::vector<std::uint8_t> left = all_of_eager();
    result = compare(shadow, builder);
    EXPECT_EQ(all_of_eager(), left);
    EXPECT_EQ(read(input_), 12.0f);
    EXPECT_EQ(read(weight_), 5.0f);
    return result;
  }

  std::vector<std::uint8_t> content(CUdeviceptr address, std::size_t size) {
    std::vector<std::uint8_t> bytes(size);
    EXPECT_CU(cuMemcpyDtoH(bytes.data(), address, size));
    return bytes;
  }
  std::vector<std::uint8_t> all_of_eager() {
    std::vector<std::uint8_t> all;
    for (const CUdeviceptr address : {input_, weight_, eager_output_}) {
      const std::vector<std::uint8_t> bytes = content(address, kBytes);
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
  }
  static std::size_t free_or_kept() { return free_bytes() + device::CopyMemory::instance().kept_bytes(); }
  static std::size_t free_bytes() {
    std::size_t free = 0, total = 0;
    EXPECT_CU(cuMemGetInfo(&free, &total));
    return free;
  }

  CUdeviceptr input_ = 0, weight_ = 0, eager_output_ = 0, output_ = 0;
  std::size_t free_at_first_ = 0;
};

TEST_F(ShadowTest, AnEqualReplayGivesNoDifference) {
  const Result result = shadowed(same_as_eager().builder);
  EXPECT_TRUE(result.compared) << result.error.text;
  EXPECT_EQ(result.difference.text, "");
  EXPECT_EQ(simcuda_calls("cuGraphLaunch"), 1u);
  EXPECT_EQ(content(output_, kBytes), content(eager_output_, kBytes)) << "it started from what eager started from";
}

TEST_F(ShadowTest, KnowsWhatEagerChanged) {
  Shadow shadow;
  refusal::Refusal error;
  ASSERT_TRUE(shadow.before(nullptr, watched(), error)) << error.text;
  run_eagerly();
  ASSERT_TRUE(shadow.after(nullptr, {}, error)) << error.text;
  ASSERT_EQ(shadow.watched().size(), 2u);
  EXPECT_TRUE(shadow.changed(0));
  EXPECT_FALSE(shadow.changed(1));
}

TEST_F(ShadowTest, AnotherOutputIsReported) {
  for (const std::uint64_t at : {std::uint64_t{0}, kBytes - 1}) {  // one byte is enough
    ASSERT_CU(cuMemsetD32(input_, 0x40e00000, kCount));            // 7
    Region region = same_as_eager();
    region.builder.fill(region.output.at(at), 0x55, 1, 1);
    const Result result = shadowed(region.builder);
    EXPECT_TRUE(result.compared) << result.error.text;
    EXPECT_EQ(result.difference.text, "output 0 differs from eager's") << at;
  }
}

TEST_F(ShadowTest, MemoryThatEagerLeftAloneIsPutBack) {
  Region region = same_as_eager();
  region.builder.fill(region.weight.at(kBytes - 1), 0x55, 1, 1);
  const Result result = shadowed(region.builder);
  EXPECT_TRUE(result.compared) << result.error.text;
  EXPECT_EQ(result.difference.text,
            "memory of its arguments, its module or a global (256 bytes) differs from what eager left");
}

TEST_F(ShadowTest, AnInputChangedDifferentlyIsPutBack) {
  Region region = same_as_eager();
  region.builder.fill(region.input.at(3), 0x55, 1, 1);  // after the output was made
  const Result result = shadowed(region.builder);
  EXPECT_TRUE(result.compared) << result.error.text;
  EXPECT_EQ(result.difference.text,
            "memory of its arguments, its module or a global (256 bytes) differs from what eager left");
}

TEST_F(ShadowTest, AnInputNotChangedIsPutBack) {
  Region region;
  region.weight = region.builder.add_static(weight_, kBytes);
  region.input = region.builder.add_input(kBytes);
  region.output = region.builder.add_output(kBytes);
  region.builder.fill(region.output.at(0), 0x41400000, 4, kCount);  // 12: only the input is another
  const Result result = shadowed(region.builder);
  EXPECT_TRUE(result.compared) << result.error.text;
  EXPECT_EQ(result.difference.text,
            "memory of its arguments, its module or a global (256 bytes) differs from what eager left");
}

TEST_F(ShadowTest, AllDifferentAndAllPutBack) {
  Region region = same_as_eager(0x40000000);
  region.builder.fill(region.weight.at(0), 0, 1, kBytes);
  const Result result = shadowed(region.builder);
  EXPECT_TRUE(result.compared) << result.error.text;
  EXPECT_EQ(result.difference.text, "output 0 differs from eager's");
}

TEST_F(ShadowTest, AValueThatTheHostReadsIsCompared) {
  // The weight's first word, as the bits of 5.
  for (const std::uint64_t expected : {std::uint64_t{0x40a00000}, std::uint64_t{0x40a00001}}) {
    ASSERT_CU(cuMemsetD32(input_, 0x40e00000, kCount));  // 7
    Region region = same_as_eager();
    region.builder.read(region.weight.at(0), 4, {expected});
    region.builder.fill(region.output.at(0), 0x41400000, 4, kCount);  // 12, as it is
    const Result result = shadowed(region.builder);
    EXPECT_TRUE(result.compared) << result.error.text;
    EXPECT_EQ(result.difference.text, expected == 0x40a00000 ? "" : "a value that the host reads differs");
    EXPECT_EQ(result.found, expected == 0x40a00000 ? Shadow::Found::kSame : Shadow::Found::kOtherValue);
  }
  EXPECT_EQ(simcuda_calls("cuGraphLaunch"), 3u) << "what comes behind the other value was not launched";
}

// Ranges of sizes and at places that are no multiples of anything, every second one changed by eager.
TEST_F(ShadowTest, RangesOfAnySizeAnywhere) {
  constexpr std::uint64_t kRanges = 300;
  std::uint64_t size = 0;
  for (std::uint64_t i = 0; i < kRanges; ++i) size += i + 3;
  const CUdeviceptr memory = floats(size / 4 + 1);
  std::vector<std::uint8_t> first(size);
  std::iota(first.begin(), first.end(), std::uint8_t{1});
  ASSERT_CU(cuMemcpyHtoD(memory, first.data(), size));
  std::vector<Shadow::Watched> ranges;
  for (std::uint64_t i = 0, at = 1; i < kRanges; at += i + 3, ++i) ranges.push_back({{memory + at, i + 1}, false});

  Shadow shadow;
  refusal::Refusal error;
  ASSERT_TRUE(shadow.before(nullptr, ranges, error)) << error.text;
  for (std::size_t i = 0; i < kRanges; i += 2) ASSERT_CU(cuMemsetD8(ranges[i].address + i / 2, 0xEE, 1));
  ASSERT_TRUE(shadow.after(nullptr, {{eager_output_, kBytes}}, error)) << error.text;
  const std::vector<std::uint8_t> left = content(memory, size);

  // Writes from the first to the last byte, but not between the ranges. The first time what eager wrote.
  ProgramBuilder same, other;
  for (std::size_t i = 0; i < kRanges; ++i) {
    const CUdeviceptr last = ranges[i].address + ranges[i].bytes - 1;
    if (i % 2 == 0) same.fill(ProgramBuilder::plain(ranges[i].address + i / 2), 0xEE, 1, 1);
    if (i % 3 == 0) other.fill(ProgramBuilder::plain(ranges[i].address), 0x77, 1, ranges[i].bytes);
    if (i % 3 == 1) other.fill(ProgramBuilder::plain(last), 0x78, 1, 1);
  }
  for (ProgramBuilder* builder : {&same, &other}) builder->fill(builder->add_output(kBytes).at(0), 0, 1, kBytes);
  Result result = compare(shadow, same);
  EXPECT_TRUE(result.compared) << result.error.text;
  EXPECT_EQ(result.difference.text, "");
  EXPECT_EQ(content(memory, size), left);
  result = compare(shadow, other);
  EXPECT_TRUE(result.compared) << result.error.text;
  EXPECT_EQ(result.difference.text,
            "memory of its arguments, its module or a global (1 bytes) differs from what eager left");
  EXPECT_EQ(content(memory, size), left);
}

TEST_F(ShadowTest, OutputsOfAnySize) {
  for (std::uint64_t bytes = 1; bytes < 20; ++bytes) {
    ASSERT_CU(cuMemsetD8(eager_output_, 0x11, kBytes));
    ASSERT_CU(cuMemsetD8(output_, 0x22, kBytes));
    Shadow shadow;
    refusal::Refusal error, difference;
    ASSERT_TRUE(shadow.before(nullptr, {}, error)) << error.text;
    ASSERT_TRUE(shadow.after(nullptr, {{eager_output_ + 1, bytes}, {eager_output_ + 40, bytes}}, error)) << error.text;
    for (const std::uint64_t written : {bytes, bytes - 1}) {
      ProgramBuilder builder;
      const auto output = builder.add_output(kBytes);
      builder.fill(output.at(3), 0x11, 1, bytes);
      builder.fill(output.at(50), 0x22, 1, bytes);
      builder.fill(output.at(50), 0x11, 1, written);
      const program::ArenaPlan plan = builder.plan();
      program::Bindings bindings;
      bindings.outputs = {output_};
      graphs::ExecPool pool;
      ProgramRun steps;
      auto found = Shadow::Found::kDifferent;
      ASSERT_TRUE(steps.prepare(pool, builder.kept(), plan, bindings, error)) << error.text;
      ASSERT_TRUE(shadow.compare(nullptr, {}, steps, {{output_ + 3, bytes}, {output_ + 50, bytes}}, false, found,
                                 difference, error))
          << error.text;
      EXPECT_EQ(difference.text, written == bytes ? "" : "output 1 differs from eager's") << bytes;
    }
  }
}

TEST_F(ShadowTest, FollowsTheWorkOfItsStream) {
  const CUstream slow = stream();
  Shadow shadow;
  refusal::Refusal error;
  ASSERT_CU(launch("_Z5delayj", slow, 20000u));
  ASSERT_CU(launch("_Z4fillPffi", slow, input_, 1.0f, static_cast<int>(kCount)));
  ASSERT_TRUE(shadow.before(slow, watched(), error)) << error.text;
  ASSERT_CU(launch("_Z5delayj", slow, 20000u));
  ASSERT_CU(launch("_Z4axpyPfPKffi", slow, input_, weight_, 1.0f, static_cast<int>(kCount)));
  ASSERT_CU(launch("_Z4copyPfPKfi", slow, eager_output_, input_, static_cast<int>(kCount)));
  ASSERT_TRUE(shadow.after(slow, {{eager_output_, kBytes}}, error)) << error.text;
  ASSERT_CU(launch("_Z5delayj", slow, 20000u));
  const Result result = compare(shadow, same_as_eager().builder, slow);
  EXPECT_TRUE(result.compared) << result.error.text;
  EXPECT_EQ(result.difference.text, "");
  EXPECT_EQ(read(input_), 6.0f);
  EXPECT_EQ(read(output_), 6.0f);
}

TEST_F(ShadowTest, OnlyWhatEagerChangedIsCopiedTwice) {
  constexpr std::size_t kBig = std::size_t{8} << 20;
  const CUdeviceptr big = floats(kBig / sizeof(float), 1);
  const std::size_t free = free_bytes();
  Shadow shadow;
  refusal::Refusal error;
  ASSERT_TRUE(shadow.before(nullptr, {{big, kBig}, {input_, kBytes}}, error)) << error.text;
  const std::size_t free_with_one = free_bytes();
  EXPECT_GE(free - free_with_one, kBig);
  EXPECT_LT(free - free_with_one, 2 * kBig);
  run_eagerly();
  ASSERT_TRUE(shadow.after(nullptr, {{eager_output_, kBytes}}, error)) << error.text;
  EXPECT_LT(free_with_one - free_bytes(), kBig / 2);

  // The one copy of what eager left alone serves both.
  ProgramBuilder builder;
  builder.fill(builder.add_static(big, kBig).at(0), 0x55, 1, kBig);
  builder.fill(builder.add_output(kBytes).at(0), 0x41400000, 4, kCount);  // 12
  const Result result = compare(shadow, builder);
  EXPECT_TRUE(result.compared) << result.error.text;
  EXPECT_EQ(result.difference.text,
            "memory of its arguments, its module or a global (8388608 bytes) differs from what eager left");
  const std::vector<std::uint8_t> now = content(big, kBig);
  for (std::size_t i = 0; i < kBig; i += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, now.data() + i, sizeof value);
    ASSERT_EQ(value, 1.0f) << i;
  }
  EXPECT_EQ(read(input_), 12.0f);
}

TEST_F(ShadowTest, SeveralAtOnceHaveMemoryOfTheirOwn) {
  refusal::Refusal error;
  {
    Shadow outer;
    ASSERT_TRUE(outer.before(nullptr, {{input_, kBytes}}, error)) << error.text;
    {
      Shadow inner;
      ASSERT_TRUE(inner.before(nullptr, {{weight_, kBytes}}, error)) << error.text;
      ASSERT_TRUE(inner.after(nullptr, {}, error)) << error.text;
    }
    Shadow third;
    ASSERT_TRUE(third.before(nullptr, {{weight_, kBytes}}, error)) << error.text;
    run_eagerly();
    ASSERT_TRUE(third.after(nullptr, {}, error)) << error.text;
    ASSERT_TRUE(outer.after(nullptr, {{eager_output_, kBytes}}, error)) << error.text;
    const Result result = compare(outer, same_as_eager().builder);
    EXPECT_TRUE(result.compared) << result.error.text;
    EXPECT_EQ(result.difference.text, "");
    EXPECT_EQ(read(input_), 12.0f);
  }
  EXPECT_EQ(free_or_kept(), free_at_first_);
}

TEST_F(ShadowTest, WithoutMemoryForTheCopiesThereIsNoShadow) {
  const std::vector<std::uint8_t> at_first = all_of_eager();
  for (const char* symbol : {"cuMemGetInfo_v2", "cuMemAlloc_v2", "cuMemcpyHtoDAsync_v2", "cuLaunchKernel"}) {
    {
      Shadow shadow;
      refusal::Refusal error;
      ASSERT_EQ(simcuda_set_fault(symbol, 1, CUDA_ERROR_OUT_OF_MEMORY), 0) << symbol;
      EXPECT_FALSE(shadow.before(nullptr, watched(), error)) << symbol;
      EXPECT_TRUE(error) << symbol;
      EXPECT_EQ(error.text.find('\n'), std::string::npos);
    }
    simcuda_reset();
    EXPECT_EQ(free_or_kept(), free_at_first_) << symbol;
    device::CopyMemory::instance().release();
    EXPECT_EQ(all_of_eager(), at_first) << symbol;
  }
  for (const char* symbol : {"cuMemGetInfo_v2", "cuMemAlloc_v2", "cuMemcpyDtoDAsync_v2", "cuLaunchKernel"}) {
    std::vector<std::uint8_t> left;
    {
      Shadow shadow;
      refusal::Refusal error;
      ASSERT_TRUE(shadow.before(nullptr, watched(), error)) << error.text;
      run_eagerly();
      left = all_of_eager();
      ASSERT_EQ(simcuda_set_fault(symbol, 1, CUDA_ERROR_OUT_OF_MEMORY), 0) << symbol;
      EXPECT_FALSE(shadow.after(nullptr, {{eager_output_, kBytes}}, error)) << symbol;
      EXPECT_TRUE(error) << symbol;
    }
    simcuda_reset();
    EXPECT_EQ(free_or_kept(), free_at_first_) << symbol;
    device::CopyMemory::instance().release();
    EXPECT_EQ(all_of_eager(), left) << symbol;
  }
  ASSERT_CU(cuMemsetD32(input_, 0x40e00000, kCount));  // 7
  EXPECT_EQ(shadowed(same_as_eager().builder).difference.text, "") << "no fault lasts";
}

TEST_F(ShadowTest, HalfOfTheFreeMemoryStaysFree) {
  constexpr std::size_t kBig = std::size_t{16} << 20, kWanted = std::size_t{18} << 20;
  const CUdeviceptr big = floats(kBig / sizeof(float));
  const std::size_t used = (std::size_t{16} << 30) - free_bytes();
  refusal::Refusal error;
  {
    Shadow shadow;
    simcuda_set_memory(used + 2 * kWanted - 1);  // the copies want a little more than the range
    EXPECT_FALSE(shadow.before(nullptr, {{big, kBig}}, error));
    EXPECT_EQ(error.text, "not enough free device memory for copies of 16 MiB");
    EXPECT_EQ(free_bytes(), 2 * kWanted - 1);
    EXPECT_EQ(simcuda_calls("cuLaunchKernel"), 0u);
    simcuda_set_memory(used + 2 * kWanted);
    EXPECT_TRUE(shadow.before(nullptr, {{big, kBig}}, error)) << error.text;
  }
  EXPECT_EQ(free_bytes(), 2 * kWanted) << "more than a quarter of what is free is not kept";
  EXPECT_EQ(device::CopyMemory::instance().kept_bytes(), 0u);
}

TEST_F(ShadowTest, TheNextProofFindsTheMemoryOfTheLast) {
  shadowed(same_as_eager().builder);
  const std::uint64_t allocated = simcuda_calls("cuMemAlloc_v2");
  EXPECT_GT(device::CopyMemory::instance().kept_bytes(), 0u);
  for (int i = 0; i < 3; ++i) {
    ASSERT_CU(cuMemsetD32(input_, 0x40e00000, kCount));  // 7
    EXPECT_EQ(shadowed(same_as_eager().builder).difference.text, "");
  }
  EXPECT_EQ(simcuda_calls("cuMemAlloc_v2"), allocated);
  EXPECT_EQ(simcuda_calls("cuMemFree_v2"), 0u);
}

// The copies are still on their way to memory that another proof may get.
TEST_F(ShadowTest, GivenUpBehindTheEagerRunItsCopiesAreWaitedFor) {
  const CUstream slow = stream();
  {
    Shadow shadow;
    refusal::Refusal error;
    ASSERT_TRUE(shadow.before(slow, watched(), error)) << error.text;
    ASSERT_CU(launch("_Z4axpyPfPKffi", slow, input_, weight_, 1.0f, static_cast<int>(kCount)));
    ASSERT_TRUE(shadow.after(slow, {}, error)) << error.text;
    ASSERT_CU(launch("_Z5delayj", slow, 20000u));
  }
  EXPECT_CU(cuStreamQuery(slow));
}

TEST_F(ShadowTest, ADriverInTroubleLeavesWhatEagerLeft) {
  const struct {
    const char* symbol;
    std::uint64_t nth;
    const char* id = "driver_error";
  } kFaults[] = {
      {"cuMemcpyDtoDAsync_v2", 1},                  // the first rewound
      {"cuGraphLaunch", 1, "graph_launch_failed"},  // the program
      {"cuMemcpyHtoDAsync_v2", 1},                  // the hashes
      {"cuLaunchKernel", 1},
      {"cuMemcpyDtoHAsync_v2", 1},
      {"cuStreamSynchronize", 1},
      {"cuStreamSynchronize", 2},  // all is put back
  };
  for (const auto& fault : kFaults) {
    ASSERT_CU(cuMemsetD32(input_, 0x40e00000, kCount));  // 7
    Region region = same_as_eager(0x40000000);           // changes the input in another way, and the weight
    region.builder.fill(region.weight.at(0), 0x55, 1, kBytes);
    Shadow shadow;
    Result result;
    ASSERT_TRUE(shadow.before(nullptr, watched(), result.error)) << result.error.text;
    run_eagerly();
    ASSERT_TRUE(shadow.after(nullptr, {{eager_output_, kBytes}}, result.error)) << result.error.text;
    const std::vector<std::uint8_t> left = all_of_eager();
    ASSERT_EQ(simcuda_set_fault(fault.symbol, fault.nth, CUDA_ERROR_UNKNOWN), 0) << fault.symbol;
    result = compare(shadow, region.builder);
    EXPECT_FALSE(result.compared) << fault.symbol << " " << fault.nth;
    EXPECT_STREQ(refusal::name_of(result.error.id), fault.id) << fault.symbol << " " << fault.nth;
    EXPECT_EQ(all_of_eager(), left) << fault.symbol << " " << fault.nth;
    simcuda_reset();
  }
}

}  // namespace
TEST_F(ShadowTest, AFaultWhileRewindingLeavesWhatEagerLeft) {
  Shadow shadow;
  Result result;
  const std::uint64_t half = kBytes / 2;
  ASSERT_TRUE(shadow.before(nullptr, {{input_, half}, {input_ + half, half}}, result.error));
  run_eagerly();
  ASSERT_TRUE(shadow.after(nullptr, {{eager_output_, kBytes}}, result.error));
  const std::vector<std::uint8_t> left = all_of_eager();
  Region region = same_as_eager();
  ASSERT_EQ(simcuda_set_fault("cuMemcpyDtoDAsync_v2", 2, CUDA_ERROR_UNKNOWN), 0);
  result = compare(shadow, region.builder);
  EXPECT_FALSE(result.compared);
  EXPECT_EQ(all_of_eager(), left);
}

TEST_F(ShadowTest, AFaultWhilePuttingBackKeepsNoOtherRangeFromIt) {
  Shadow shadow;
  Result result;
  const std::uint64_t half = kBytes / 2;
  ASSERT_TRUE(shadow.before(nullptr, {{input_, half}, {input_ + half, half}, {weight_, kBytes}}, result.error));
  run_eagerly();
  ASSERT_TRUE(shadow.after(nullptr, {{eager_output_, kBytes}}, result.error));
  Region region = same_as_eager(0x40000000);
  region.builder.fill(region.weight.at(0), 0x55, 1, kBytes);
  ASSERT_EQ(simcuda_set_fault("cuMemcpyDtoDAsync_v2", 3, CUDA_ERROR_UNKNOWN), 0);
  result = compare(shadow, region.builder);
  EXPECT_FALSE(result.compared);
  EXPECT_EQ(read(input_, kCount - 1), 12.0f);
  EXPECT_EQ(read(weight_), 5.0f);
}

}  // namespace grape::replay
