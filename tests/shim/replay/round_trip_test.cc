// Observed, symbolised, proven, built and run with all memory moved: the same bytes as eager.
#include <cstring>
#include <vector>

#include "compressor/program/plan.h"
#include "compressor/program/prove.h"
#include "compressor/program/symbolise.h"
#include "shim/device/device_hash.h"
#include "shim/graphs/graph_exec.h"
#include "tests/shim/observation/region_fixture.h"

namespace grape::replay_test {
namespace {

constexpr int kRows = 4, kInner = 8, kColumns = 16;
constexpr std::uint64_t kInputBytes = kRows * kInner * 4, kHiddenBytes = kRows * kColumns * 4;

// A small model: relu(input W + b) on one stream, its sum on another, both joined.
class RoundTrip : public RegionTest {
 protected:
  void SetUp() override {
    RegionTest::SetUp();
    matmul_ = function("_Z6matmulPfPKfS1_iii");
    relu_ = function("_Z9bias_reluPfPKfii");
    sum_ = function("_Z10reduce_sumPfPKfi");
    axpy_ = function("_Z4axpyPfPKffi");
    main_ = stream();
    side_ = stream();
    weight_ = filled(kInner * kColumns, 1);
    bias_ = filled(kColumns, 2);
  }
  void TearDown() override {
    device::forget_own_kernels(context_);
    RegionTest::TearDown();
  }

  CUdeviceptr filled(int count, int seed) {
    std::vector<float> host(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i)
      host[static_cast<std::size_t>(i)] = static_cast<float>((i * 37 + seed * 11) % 23 - 9) / 7;
    const CUdeviceptr made = torch_alloc(host.size() * 4);
    EXPECT_CU(cuMemcpyHtoD(made, host.data(), host.size() * 4));
    return made;
  }

  // What eager does: the output's address.
  CUdeviceptr forward(CUdeviceptr input) {
    const CUdeviceptr hidden = torch_alloc(kHiddenBytes);
    EXPECT_CU(run(matmul_, main_, hidden, input, weight_, kRows, kColumns, kInner));
    EXPECT_CU(run(relu_, main_, hidden, bias_, kRows, kColumns));
    const CUevent fork = event();
    EXPECT_CU(cuEventRecord(fork, main_));
    EXPECT_CU(cuStreamWaitEvent(side_, fork, 0));
    const CUdeviceptr total = torch_alloc(4);
    EXPECT_CU(run(sum_, side_, total, hidden, kRows * kColumns));
    EXPECT_CU(cuEventRecord(fork, side_));
    const CUdeviceptr output = torch_alloc(kHiddenBytes + 4);
    EXPECT_CU(cuMemsetD8Async(output, 0, kHiddenBytes + 4, main_));
    EXPECT_CU(run(axpy_, main_, output, hidden, 0.5F, kRows * kColumns));
    EXPECT_CU(cuStreamWaitEvent(main_, fork, 0));
    EXPECT_CU(cuMemcpyDtoDAsync(output + kHiddenBytes, total, 4, main_));
    EXPECT_CU(cuEventDestroy(fork));
    torch_free(total, 4);
    torch_free(hidden, kHiddenBytes);
    return output;
  }

  program::Program observed(CUdeviceptr input) {
    auto result = observe([&] { output_ = forward(input); });
    EXPECT_NE(result.record, nullptr) << result.refusal.text;
    if (result.record == nullptr) return {};
    result.record->inputs.push_back({input, kInputBytes});
    return program::symbolise(std::move(*result.record));
  }

  std::vector<char> bytes(CUdeviceptr at) {
    std::vector<char> host(kHiddenBytes + 4);
    EXPECT_CU(cuCtxSynchronize());
    EXPECT_CU(cuMemcpyDtoH(host.data(), at, host.size()));
    return host;
  }

  CUfunction matmul_ = nullptr, relu_ = nullptr, sum_ = nullptr, axpy_ = nullptr;
  CUstream main_ = nullptr, side_ = nullptr;
  CUdeviceptr weight_ = 0, bias_ = 0, output_ = 0;
};

TEST_F(RoundTrip, AReplayLeavesTheBytesThatEagerLeaves) {
  const program::Program first = observed(filled(kRows * kInner, 3));
  const CUdeviceptr input = filled(kRows * kInner, 4);
  const program::Program second = observed(input);
  const CUdeviceptr eager = output_;
  ASSERT_EQ(second.nodes.size(), 6u);
  ASSERT_EQ(second.temps.size(), 2u);
  ASSERT_EQ(second.outputs.size(), 1u);
  ASSERT_EQ(second.statics.size(), 2u);
  const program::Comparison comparison = program::compare(first, second);
  EXPECT_EQ(comparison.difference, program::Difference::kNone)
      << program::describe(comparison, first, second, nullptr).text;
  EXPECT_TRUE(comparison.noise.empty());

  const program::ArenaPlan plan = program::plan_arena(second);
  CUdeviceptr arena = 0, output = 0, other_output = 0;
  ASSERT_CU(cuMemAlloc(&arena, plan.bytes));
  ASSERT_CU(cuMemAlloc(&output, kHiddenBytes + 4));
  ASSERT_CU(cuMemAlloc(&other_output, kHiddenBytes + 4));
  program::Bindings bindings;
  bindings.arena = arena;
  bindings.inputs = {input};
  bindings.outputs = {output};
  refusal::Refusal error;
  const std::shared_ptr<const program::Program> shared(std::shared_ptr<void>(), &second);  // owned by this test
  auto exec = graphs::GraphExec::build(shared, program::segments(second).front(), plan, bindings, error);
  ASSERT_NE(exec, nullptr) << error.text;
  ASSERT_CU(exec->launch(main_, {side_}));
  EXPECT_EQ(bytes(output), bytes(eager));

  // Another input, another output, and the arena elsewhere.
  const CUdeviceptr other_input = filled(kRows * kInner, 5);
  CUdeviceptr other_arena = 0;
  ASSERT_CU(cuMemAlloc(&other_arena, plan.bytes));
  ASSERT_CU(cuMemFree(arena));
  bindings.arena = other_arena;
  bindings.inputs = {other_input};
  bindings.outputs = {other_output};
  ASSERT_CU(exec->bind(bindings));
  ASSERT_CU(exec->launch(main_));
  const CUdeviceptr other_eager = forward(other_input);
  EXPECT_EQ(bytes(other_output), bytes(other_eager));
  EXPECT_NE(bytes(other_output), bytes(output));

  device::DeviceHash* hash = device::DeviceHash::of_current_context(error);
  ASSERT_NE(hash, nullptr) << error.text;
  std::vector<std::uint64_t> hashes;
  ASSERT_CU(
      hash->hash(main_, {{other_output, kHiddenBytes + 4}, {other_eager, kHiddenBytes + 4}, {output, 4}}, hashes));
  EXPECT_EQ(hashes[0], hashes[1]);
  EXPECT_NE(hashes[0], hashes[2]);
}

// None of Grape's own calls is seen as the program's.
TEST_F(RoundTrip, BuildingAndLaunchingIsNotRecorded) {
  const program::Program program = observed(filled(kRows * kInner, 3));
  const program::ArenaPlan plan = program::plan_arena(program);
  program::Bindings bindings;
  CUdeviceptr arena = 0;
  ASSERT_CU(cuMemAlloc(&arena, plan.bytes));
  bindings.arena = arena;
  bindings.inputs = {filled(kRows * kInner, 3)};
  bindings.outputs = {torch_alloc(kHiddenBytes + 4)};
  const auto result = observe([&] {
    refusal::Refusal error;
    const std::shared_ptr<const program::Program> shared(std::shared_ptr<void>(), &program);
    auto exec = graphs::GraphExec::build(shared, program::segments(program).front(), plan, bindings, error);
    ASSERT_NE(exec, nullptr) << error.text;
    ASSERT_CU(exec->launch(main_, {side_}));
  });
  ASSERT_NE(result.record, nullptr) << result.refusal.text;
  EXPECT_TRUE(result.record->nodes.empty());
}

}  // namespace
}  // namespace grape::replay_test
