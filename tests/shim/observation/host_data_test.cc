// Host memory that a call copies to the device: its bytes at the call become part of the program.
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include "compressor/program/plan.h"
#include "compressor/program/prove.h"
#include "compressor/program/symbolise.h"
#include "shim/graphs/exec_pool.h"
#include "shim/observation/region_record.h"
#include "shim/replay/program_run.h"
#include "tests/shim/observation/region_fixture.h"

namespace grape::replay_test {
namespace {

using program::NodeKind;
using program::Program;

class HostDataTest : public RegionTest {
 protected:
  void SetUp() override {
    RegionTest::SetUp();
    main_ = stream();
    to_ = torch_alloc(kRoom);
    last_ = torch_alloc(kRoom);
  }
  void TearDown() override {
    device::forget_own_kernels(context_);
    RegionTest::TearDown();
  }

  static std::vector<std::uint8_t> numbers(std::size_t count, unsigned first) {
    std::vector<std::uint8_t> made(count);
    std::iota(made.begin(), made.end(), static_cast<std::uint8_t>(first));
    return made;
  }

  // As `torch.tensor(host, device="cuda")` does.
  void copy_and_wait(CUdeviceptr to, std::vector<std::uint8_t> host) {
    ASSERT_CU(cuMemcpyHtoDAsync(to, host.data(), host.size(), main_));
    ASSERT_CU(cuStreamSynchronize(main_));
    std::fill(host.begin(), host.end(), std::uint8_t{0xEE});  // the call is over: nobody needs it
  }

  Program observed(const std::function<void()>& work) {
    auto result = observe(work);
    EXPECT_NE(result.record, nullptr) << result.refusal.text;
    return result.record != nullptr ? program::symbolise(std::move(*result.record)) : Program{};
  }

  void refused(const std::string& reason, const std::function<void()>& work) {
    const auto result = observe(work);
    EXPECT_EQ(result.record, nullptr) << reason;
    EXPECT_EQ(result.refusal.text, reason);
    EXPECT_FALSE(result.again) << reason;
    simcuda_reset();
  }

  std::vector<std::uint8_t> bytes(CUdeviceptr at, std::size_t count) {
    std::vector<std::uint8_t> host(count);
    EXPECT_CU(cuCtxSynchronize());
    EXPECT_CU(cuMemcpyDtoH(host.data(), at, count));
    return host;
  }

  // With its host data at `at`.
  void replay(const Program& program, CUdeviceptr at) {
    const program::ArenaPlan plan = program::plan_arena(program);
    program::Bindings bindings;
    bindings.host_data = at;
    refusal::Refusal error;
    ASSERT_TRUE(replay::put_host_data(program, at, main_));
    const store::KeptProgram kept(program);
    ASSERT_TRUE(steps_.prepare(pool_, kept, plan, bindings, error)) << error.text;
    ASSERT_EQ(steps_.run(main_, {}), replay::ProgramRun::Result::kDone);
  }

  static constexpr std::uint64_t kRoom = 70'000;
  CUstream main_ = nullptr;
  CUdeviceptr to_ = 0, last_ = 0;
  graphs::ExecPool pool_;
  replay::ProgramRun steps_;
};

TEST_F(HostDataTest, ItsBytesAtTheCallAreCopiedByTheGraph) {
  const auto first = numbers(37, 3), second = numbers(5, 90);
  const Program program = observed([&] {
    copy_and_wait(to_, first);
    copy_and_wait(to_ + 100, second);
    ASSERT_CU(cuMemcpyDtoDAsync(last_, to_, 105, main_));
  });
  ASSERT_EQ(program.nodes.size(), 3u);
  EXPECT_EQ(program.nodes[0].kind, NodeKind::kHostCopy);
  EXPECT_EQ(program.host_data.size(), 64u);
  EXPECT_EQ(program.waited_streams, std::vector<std::uint64_t>{reinterpret_cast<std::uint64_t>(main_)});
  for (const CUdeviceptr at : {torch_alloc(64), torch_alloc(64)}) {
    ASSERT_CU(cuMemsetD8(last_, 0, 105));
    ASSERT_CU(cuMemsetD8(to_, 0, 105));
    replay(program, at);
    EXPECT_EQ(bytes(last_, 37), first);
    EXPECT_EQ(bytes(last_ + 100, 5), second);
  }
}

TEST_F(HostDataTest, EveryFormOfACopyIsKept) {
  const auto data = numbers(64, 7);
  const auto host = reinterpret_cast<CUdeviceptr>(data.data());
  const std::function<void()> forms[] = {
      [&] { ASSERT_CU(cuMemcpyHtoD(to_, data.data(), 64)); },
      [&] { ASSERT_CU(cuMemcpyHtoDAsync(to_, data.data(), 64, main_)); },
      [&] { ASSERT_CU(cuMemcpy(to_, host, 64)); },
      [&] { ASSERT_CU(cuMemcpyAsync(to_, host, 64, main_)); },
  };
  int form = 0;
  for (const auto& copy : forms) {
    const Program program = observed(copy);
    ASSERT_EQ(program.nodes.size(), 1u) << form;
    EXPECT_EQ(program.nodes[0].kind, NodeKind::kHostCopy) << form;
    EXPECT_EQ(program.host_data, data) << form;
    // Those that return when all is done have waited for the default stream.
    EXPECT_EQ(program.waited_streams.size(), form % 2 == 0 ? 1u : 0u) << form;
    ++form;
  }
}

TEST_F(HostDataTest, OtherBytesAreAnotherProgram) {
  const auto with = [&](std::size_t count, unsigned first) {
    return observed([&] {
      copy_and_wait(to_, numbers(16, 1));
      copy_and_wait(to_ + 100, numbers(count, first));
    });
  };
  const Program one = with(32, 5), other = with(32, 6);
  EXPECT_EQ(program::compare(one, with(32, 5)).difference, program::Difference::kNone);
  const program::Comparison comparison = program::compare(one, other);
  EXPECT_EQ(comparison.difference, program::Difference::kHostData);
  EXPECT_EQ(comparison.node, 1u);
  EXPECT_EQ(
      program::describe(comparison, one, other, nullptr).text,
      "copies other host data to the device each time: a copy from the host (operation 1) is the first to differ");
  EXPECT_EQ(program::compare(one, with(31, 5)).difference, program::Difference::kHostData);
}

// What the program copied to the host before the call is there when the host has waited for the stream; so it is, in
// the same place, when it is a replay that waits.
TEST_F(HostDataTest, AReplayWaitsWhereTheCallDid) {
  const Program waits = observed([&] { copy_and_wait(to_, numbers(16, 1)); });
  const Program flows = observed([&] { ASSERT_CU(cuMemcpyHtoDAsync(to_, numbers(16, 1).data(), 16, main_)); });
  EXPECT_EQ(program::compare(waits, flows).difference, program::Difference::kEvents);
  void* pinned = nullptr;
  ASSERT_CU(cuMemAllocHost(&pinned, 64));
  const CUfunction delay = function("_Z5delayj");
  const CUdeviceptr at = torch_alloc(64);
  replay(waits, at);
  ASSERT_CU(cuMemsetD8(last_, 0x5A, 1));
  std::memset(pinned, 0, 1);
  ASSERT_CU(run(delay, main_, 30'000U));
  ASSERT_CU(cuMemcpyDtoHAsync(pinned, last_, 1, main_));
  replay(waits, at);
  EXPECT_EQ(*static_cast<volatile std::uint8_t*>(pinned), 0x5A);
  ASSERT_CU(cuCtxSynchronize());
  ASSERT_CU(cuMemFreeHost(pinned));
}

TEST_F(HostDataTest, WhatIsRefused) {
  const auto large = numbers(observation::kMostHostData, 0), larger = numbers(observation::kMostHostData + 1, 0);
  const std::string too_much = "copies more host memory to the device than Grape keeps (cuMemcpyHtoDAsync)";
  EXPECT_EQ(observed([&] { copy_and_wait(to_, large); }).host_data, large);
  refused(too_much, [&] { copy_and_wait(to_, larger); });
  refused(too_much, [&] {
    for (int i = 0; i < 5; ++i) copy_and_wait(to_, large);
  });
  void* pinned = nullptr;
  ASSERT_CU(cuMemAllocHost(&pinned, 64));
  refused("copies pinned memory of the host to the device (cuMemcpyHtoDAsync)",
          [&] { ASSERT_CU(cuMemcpyHtoDAsync(to_, pinned, 64, main_)); });
  refused("copies pinned memory of the host to the device (cuMemcpyAsync)",
          [&] { ASSERT_CU(cuMemcpyAsync(to_, reinterpret_cast<CUdeviceptr>(pinned), 64, main_)); });
  ASSERT_CU(cuMemFreeHost(pinned));
  // Device memory that nobody told of: the bytes were not taken, and nothing was read from there.
  const CUdeviceptr unknown = floats(16);
  memory::LiveBlocks::instance().remove(memory::BlockSource::kDriver, unknown);
  refused("copies memory to the device that may not be the host's own (cuMemcpyAsync)",
          [&] { ASSERT_CU(cuMemcpyAsync(to_, unknown, 64, main_)); });
  refused("waits for the device (cuStreamSynchronize)", [&] {
    copy_and_wait(to_, numbers(16, 1));
    ASSERT_CU(cuStreamSynchronize(main_));  // for nothing that was copied
  });
  refused("waits for the device (cuStreamSynchronize)", [&] {
    ASSERT_CU(cuMemcpyHtoDAsync(to_, large.data(), 16, main_));
    ASSERT_CU(cuStreamSynchronize(nullptr));  // another stream
  });
  const CUevent done = event();
  refused("waits for the device (cuEventSynchronize)", [&] {
    ASSERT_CU(cuMemcpyHtoDAsync(to_, large.data(), 16, main_));
    ASSERT_CU(cuEventSynchronize(done));
  });
  CUarray array = nullptr;
  CUDA_ARRAY_DESCRIPTOR description{16, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1};
  if (cuArrayCreate(&array, &description) == CUDA_SUCCESS) {
    refused("copies memory in a way that Grape cannot replay (cuMemcpyHtoAAsync)",
            [&] { ASSERT_CU(cuMemcpyHtoAAsync(array, 0, large.data(), 16, main_)); });
  }
}

}  // namespace
}  // namespace grape::replay_test
