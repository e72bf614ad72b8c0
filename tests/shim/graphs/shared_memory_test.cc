// Kernels whose limit of dynamic shared memory is lower than at their launch, as cuDNN leaves it.
#include "shim/graphs/shared_memory.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shim/device/own_kernels.h"
#include "shim/graphs/graph_exec.h"
#include "shim/graphs/upload_ahead.h"
#include "tests/shim/graphs/program_builder.h"
#include "tests/simcuda/fixture.h"

namespace grape::graphs {
namespace {

using program::Bindings;
using replay_test::ProgramBuilder;

constexpr auto kLimit = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
constexpr int kLow = 1024;
constexpr char kMix[] = "_Z3mixPmmm";

// One kernel, by either of the two kinds of handles.
struct Kernel {
  const char* kind = nullptr;
  std::uint64_t handle = 0;
  std::function<CUresult(int)> set;
  std::function<int()> limit;
};

class SharedMemoryTest : public simcuda_test::Driver {
 protected:
  void TearDown() override {
    device::forget_own_kernels(context_);  // as the wrappers do it
    forget_upload_stream(context_);
    Driver::TearDown();
  }

  Kernel of_module() {
    CUfunction mix = function(kMix);
    const auto set = [mix](int bytes) { return cuFuncSetAttribute(mix, kLimit, bytes); };
    const auto limit = [mix] {
      int bytes = -1;
      EXPECT_CU(cuFuncGetAttribute(&bytes, kLimit, mix));
      return bytes;
    };
    return {"a function of a module", reinterpret_cast<std::uint64_t>(mix), set, limit};
  }
  static Kernel of_library() {
    CUlibrary library = nullptr;
    CUkernel mix = nullptr;
    EXPECT_CU(cuLibraryLoadData(&library, "SIMCUDA MODULE 1\n_Z3mixPmmm\n", nullptr, nullptr, 0, nullptr, nullptr, 0));
    EXPECT_CU(cuLibraryGetKernel(&mix, library, kMix));
    const auto set = [mix](int bytes) { return cuKernelSetAttribute(kLimit, bytes, mix, 0); };
    const auto limit = [mix] {
      int bytes = -1;
      EXPECT_CU(cuKernelGetAttribute(&bytes, kLimit, mix, 0));
      return bytes;
    };
    return {"a kernel of a library", reinterpret_cast<std::uint64_t>(mix), set, limit};
  }
  std::vector<Kernel> kinds() { return {of_module(), of_library()}; }

  // Each node multiplies the output by ten and adds its number, from 1.
  static ProgramBuilder nodes(const Kernel& kernel, const std::vector<std::uint32_t>& needs) {
    ProgramBuilder builder;
    const auto p = builder.add_output(8);
    const auto mix = builder.add_function(kernel.handle, kMix, {8, 8, 8});
    std::uint64_t number = 0;
    for (const std::uint32_t bytes : needs) {
      builder.kernel(mix, {p.at(0), ProgramBuilder::plain(10), ProgramBuilder::plain(++number)}).shared_bytes = bytes;
    }
    return builder;
  }
  std::unique_ptr<GraphExec> build(const ProgramBuilder& builder, CUdeviceptr output, refusal::Refusal& error) {
    plan_ = builder.plan();
    bindings_.outputs = {output};
    return GraphExec::build(share(builder), program::segments(builder.program()).front(), plan_, bindings_, error);
  }
  // The builder keeps it.
  static std::shared_ptr<const program::Program> share(const ProgramBuilder& builder) {
    return {std::shared_ptr<void>(), &builder.program()};
  }
  static std::uint64_t limits_set() {
    return simcuda_calls("cuFuncSetAttribute") + simcuda_calls("cuKernelSetAttribute");
  }

  program::ArenaPlan plan_;
  Bindings bindings_;
};

TEST_F(SharedMemoryTest, ALoweredLimitIsRaisedForTheNodeAndPutBack) {
  for (const Kernel& kernel : kinds()) {
    SCOPED_TRACE(kernel.kind);
    const ProgramBuilder builder = nodes(kernel, {8192});
    const CUdeviceptr first = number(0), second = number(4);
    ASSERT_CU(kernel.set(kLow));
    refusal::Refusal error;
    auto exec = build(builder, first, error);
    ASSERT_NE(exec, nullptr) << error.text;
    EXPECT_EQ(kernel.limit(), kLow);
    ASSERT_CU(exec->launch(nullptr));
    EXPECT_EQ(read<std::uint64_t>(first), 1u);
    bindings_.outputs = {second};
    ASSERT_CU(exec->bind(bindings_));
    EXPECT_EQ(kernel.limit(), kLow);
    ASSERT_CU(exec->launch(nullptr));
    EXPECT_EQ(read<std::uint64_t>(second), 41u);
    EXPECT_EQ(read<std::uint64_t>(first), 1u);
    EXPECT_EQ(simcuda_calls("cuGraphAddKernelNode_v2"), 2u) << "the driver did refuse it";
    EXPECT_EQ(simcuda_calls("cuGraphExecKernelNodeSetParams_v2"), 2u) << "the driver did refuse it";
    simcuda_reset();
  }
}

// In ascending, descending and mixed order: each limit that was raised hides the one before it.
TEST_F(SharedMemoryTest, NodesOfOneKernelWithDifferentNeeds) {
  const std::vector<std::uint32_t> orders[] = {{4096, 8192}, {8192, 4096}, {512, 8192, 2048, 16384, 0}};
  for (const Kernel& kernel : kinds()) {
    for (const std::vector<std::uint32_t>& needs : orders) {
      SCOPED_TRACE(std::string(kernel.kind) + ", first " + std::to_string(needs.front()));
      const ProgramBuilder builder = nodes(kernel, needs);
      const CUdeviceptr first = number(0), second = number(0);
      const std::uint64_t expected = needs.size() == 2 ? 12 : 12345;
      ASSERT_CU(kernel.set(kLow));
      refusal::Refusal error;
      auto exec = build(builder, first, error);
      ASSERT_NE(exec, nullptr) << error.text;
      EXPECT_EQ(kernel.limit(), kLow);
      bindings_.outputs = {second};
      ASSERT_CU(exec->bind(bindings_));
      EXPECT_EQ(exec->patched(), needs.size());
      EXPECT_EQ(kernel.limit(), kLow);
      ASSERT_CU(exec->launch(nullptr));
      EXPECT_EQ(read<std::uint64_t>(second), expected);
    }
  }
}

TEST_F(SharedMemoryTest, AnotherProgramsNodesAreSetTheSameWay) {
  for (const Kernel& kernel : kinds()) {
    SCOPED_TRACE(kernel.kind);
    const ProgramBuilder little = nodes(kernel, {0, 0}), much = nodes(kernel, {4096, 8192});
    const CUdeviceptr output = number(0);
    ASSERT_CU(kernel.set(kLow));
    refusal::Refusal error;
    auto exec = build(little, output, error);
    ASSERT_NE(exec, nullptr) << error.text;
    ASSERT_TRUE(exec->adopt(share(much), program::segments(much.program()).front(), plan_, bindings_));
    EXPECT_EQ(exec->patched(), 2u);
    EXPECT_EQ(kernel.limit(), kLow);
    ASSERT_CU(exec->launch(nullptr));
    EXPECT_EQ(read<std::uint64_t>(output), 12u);
  }
}

TEST_F(SharedMemoryTest, ALimitThatIsHighEnoughIsLeftAlone) {
  for (const Kernel& kernel : kinds()) {
    SCOPED_TRACE(kernel.kind);
    const ProgramBuilder builder = nodes(kernel, {8192, 0});
    ASSERT_CU(kernel.set(8192));
    simcuda_reset();
    refusal::Refusal error;
    auto exec = build(builder, number(0), error);
    ASSERT_NE(exec, nullptr) << error.text;
    // What the driver refuses for another reason is not tried again.
    ASSERT_EQ(simcuda_set_fault("cuGraphExecKernelNodeSetParams_v2", 1, CUDA_ERROR_INVALID_VALUE), 0);
    bindings_.outputs = {number(0)};
    EXPECT_RESULT(exec->bind(bindings_), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(simcuda_calls("cuGraphExecKernelNodeSetParams_v2"), 1u);
    EXPECT_EQ(limits_set(), 0u);
    EXPECT_EQ(kernel.limit(), 8192);
  }
}

TEST_F(SharedMemoryTest, WhatFailsPutsTheLimitBackAsWell) {
  constexpr std::uint32_t kTooMuch = 1 << 20;  // for any device
  for (const Kernel& kernel : kinds()) {
    SCOPED_TRACE(kernel.kind);
    ASSERT_CU(kernel.set(kLow));
    refusal::Refusal error;
    const ProgramBuilder impossible = nodes(kernel, {4096, kTooMuch});
    EXPECT_EQ(build(impossible, number(0), error), nullptr);
    EXPECT_EQ(error.text, "cuGraphAddKernelNode: CUDA_ERROR_INVALID_VALUE at node 1 (_Z3mixPmmm)");
    EXPECT_EQ(kernel.limit(), kLow);
    const ProgramBuilder builder = nodes(kernel, {4096, 8192});
    ASSERT_EQ(simcuda_set_fault("cuGraphInstantiateWithFlags", 1, CUDA_ERROR_OUT_OF_MEMORY), 0);
    EXPECT_EQ(build(builder, number(0), error), nullptr);
    EXPECT_EQ(kernel.limit(), kLow);
  }
}

TEST_F(SharedMemoryTest, TheLimitIsRaisedWhileItLives) {
  const Kernel kernel = of_library();
  ASSERT_CU(kernel.set(kLow));
  CUDA_KERNEL_NODE_PARAMS node{};
  node.kern = reinterpret_cast<CUkernel>(kernel.handle);
  node.sharedMemBytes = kLow;
  EXPECT_FALSE(SharedMemoryLimit(node).raised()) << "it was no lower";
  node.sharedMemBytes = 0;
  EXPECT_FALSE(SharedMemoryLimit(node).raised());
  {
    node.sharedMemBytes = 4096;
    const SharedMemoryLimit limit(node);
    EXPECT_TRUE(limit.raised());
    EXPECT_EQ(kernel.limit(), 4096);
    node.sharedMemBytes = 8192;
    const SharedMemoryLimit higher(node);
    EXPECT_TRUE(higher.raised());
    EXPECT_EQ(kernel.limit(), 8192);
  }
  EXPECT_EQ(kernel.limit(), kLow);
}

}  // namespace
}  // namespace grape::graphs
