// What the tests of the simulated driver share: a current primary context, a module with all kernels, short launches.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/simcuda/simcuda.h"

namespace simcuda_test {

#define EXPECT_CU(expression) EXPECT_EQ(static_cast<int>(expression), static_cast<int>(CUDA_SUCCESS)) << #expression
#define ASSERT_CU(expression) ASSERT_EQ(static_cast<int>(expression), static_cast<int>(CUDA_SUCCESS)) << #expression
#define EXPECT_RESULT(expression, result) \
  EXPECT_EQ(static_cast<int>(expression), static_cast<int>(result)) << #expression

constexpr char kImage[] =
    "SIMCUDA MODULE 1\n"
    "# what the tests use\n"
    "_Z4copyPfPKfi\n"
    "_Z4fillPffi\n"
    "_Z4axpyPfPKffi\n"
    "_Z6matmulPfPKfS1_iii\n"
    "_Z10reduce_sumPfPKfi\n"
    "_Z9bias_reluPfPKfii\n"
    "_Z6affinePfPKf12AffineParamsi\n"
    "_Z6gatherPf10GatherDesc\n"
    "_Z5delayj\n"
    "_Z3mixPmmm\n"
    "_Z10atomic_addPmm\n"
    "_Z9tile_copyPf14CUtensorMap_sti\n"
    "_Z9exclusivePij\n"
    "_Z4meetPmm\n"
    "_Z4trapv\n"
    "_Z7nothingv\n"
    "an alias = _Z4axpyPfPKffi\n"
    "global counter 16\n";

class Driver : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_CU(cuInit(0));
    ASSERT_CU(cuDevicePrimaryCtxRetain(&context_, 0));
    ASSERT_CU(cuCtxSetCurrent(context_));
    ASSERT_CU(cuModuleLoadData(&module_, kImage));
  }
  // Every test leaves a clean driver behind, whatever it did to it.
  void TearDown() override {
    simcuda_reset();
    simcuda_set_memory(std::size_t{16} << 30);
    simcuda_set_latency(0);
    simcuda_set_null_launch(0);
    EXPECT_CU(cuDevicePrimaryCtxReset_v2(0));
    EXPECT_CU(cuCtxSetCurrent(nullptr));
  }

  CUfunction function(const char* name) {
    CUfunction found = nullptr;
    EXPECT_CU(cuModuleGetFunction(&found, module_, name));
    return found;
  }

  CUdeviceptr floats(std::size_t count, float value = 0) {
    CUdeviceptr made = 0;
    EXPECT_CU(cuMemAlloc(&made, count * sizeof(float)));
    std::vector<float> host(count, value);
    EXPECT_CU(cuMemcpyHtoD(made, host.data(), count * sizeof(float)));
    return made;
  }

  CUdeviceptr number(std::uint64_t value) {
    CUdeviceptr made = 0;
    EXPECT_CU(cuMemAlloc(&made, sizeof value));
    EXPECT_CU(cuMemcpyHtoD(made, &value, sizeof value));
    return made;
  }

  template <typename T = float>
  T read(CUdeviceptr from, std::size_t index = 0) {
    T value{};
    EXPECT_CU(cuMemcpyDtoH(&value, from + index * sizeof(T), sizeof value));
    return value;
  }

  template <typename... P>
  CUresult launch(const char* name, CUstream stream, P... parameters) {
    void* pointers[] = {static_cast<void*>(&parameters)..., nullptr};
    return cuLaunchKernel(function(name), 1, 1, 1, 32, 1, 1, 0, stream, pointers, nullptr);
  }

  CUstream stream(unsigned flags = CU_STREAM_NON_BLOCKING) {
    CUstream made = nullptr;
    EXPECT_CU(cuStreamCreate(&made, flags));
    return made;
  }

  CUevent event() {
    CUevent made = nullptr;
    EXPECT_CU(cuEventCreate(&made, CU_EVENT_DEFAULT));
    return made;
  }

  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
};

}  // namespace simcuda_test
