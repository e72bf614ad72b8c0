#include <cudaTypedefs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "fixture.h"

namespace simcuda_test {
namespace {

class Context : public Driver {};

TEST_F(Context, NamesItselfSimulated) {
  char name[64];
  ASSERT_CU(cuDeviceGetName(name, sizeof name, 0));
  EXPECT_NE(std::strstr(name, "simulated"), nullptr) << name;
  int version = 0;
  EXPECT_CU(cuDriverGetVersion(&version));
  EXPECT_EQ(version, 13000);
  int major = 0;
  EXPECT_CU(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
  EXPECT_EQ(major, 9);
  EXPECT_RESULT(cuDeviceGetName(name, sizeof name, 1), CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(Context, StackOfCurrentContexts) {
  CUcontext made = nullptr;
  ASSERT_CU(cuCtxCreate(&made, nullptr, 0, 0));
  CUcontext current = nullptr;
  EXPECT_CU(cuCtxGetCurrent(&current));
  EXPECT_EQ(current, made);
  CUdevice device = -1;
  EXPECT_CU(cuCtxGetDevice(&device));
  EXPECT_EQ(device, 0);
  EXPECT_CU(cuCtxPopCurrent(&current));
  EXPECT_EQ(current, made);
  EXPECT_CU(cuCtxGetCurrent(&current));
  EXPECT_EQ(current, context_);
  EXPECT_CU(cuCtxPushCurrent(made));
  EXPECT_CU(cuCtxDestroy(made));
  EXPECT_CU(cuCtxGetCurrent(&current));
  EXPECT_EQ(current, context_);
  EXPECT_RESULT(cuCtxDestroy(made), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(Context, ThreadsHaveNoneAtFirst) {
  std::thread([] {
    CUdeviceptr address = 0;
    EXPECT_RESULT(cuMemAlloc(&address, 16), CUDA_ERROR_INVALID_CONTEXT);
  }).join();
}

// Calling the newer signature with what happens to be in the register must not pass for a success.
TEST_F(Context, SynchronizeSignaturesDiffer) {
  PFN_cuCtxSynchronize_v2000 old_one = nullptr;
  PFN_cuCtxSynchronize_v13000 new_one = nullptr;
  ASSERT_CU(cuGetProcAddress("cuCtxSynchronize", reinterpret_cast<void**>(&old_one), 12000, 0, nullptr));
  ASSERT_CU(cuGetProcAddress("cuCtxSynchronize", reinterpret_cast<void**>(&new_one), 13000, 0, nullptr));
  EXPECT_NE(reinterpret_cast<void*>(old_one), reinterpret_cast<void*>(new_one));
  EXPECT_CU(old_one());
  EXPECT_CU(new_one(nullptr));
  EXPECT_CU(new_one(context_));
  int foreign = 0;
  EXPECT_RESULT(new_one(reinterpret_cast<CUcontext>(&foreign)), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(Context, ResetForgetsHandlesAndReusesThem) {
  CUstream stream_handle = stream();
  CUdeviceptr memory = floats(4);
  CUfunction axpy = function("_Z4axpyPfPKffi");
  ASSERT_CU(cuDevicePrimaryCtxReset_v2(0));
  EXPECT_RESULT(cuStreamQuery(stream_handle), CUDA_ERROR_INVALID_HANDLE);
  const char* name = nullptr;
  EXPECT_RESULT(cuFuncGetName(&name, axpy), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_RESULT(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  CUcontext again = nullptr;
  ASSERT_CU(cuDevicePrimaryCtxRetain(&again, 0));
  EXPECT_EQ(again, context_);
  float value = 0;
  EXPECT_RESULT(cuMemcpyDtoH(&value, memory, sizeof value), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Context, FailedKernelSticks) {
  ASSERT_CU(launch("_Z4trapv", nullptr));
  EXPECT_RESULT(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
  CUdeviceptr address = 0;
  EXPECT_RESULT(cuMemAlloc(&address, 16), CUDA_ERROR_LAUNCH_FAILED);
  simcuda_reset();
  EXPECT_CU(cuMemAlloc(&address, 16));
}

TEST_F(Context, KernelOutsideItsMemoryIsCaught) {
  CUdeviceptr y = floats(4);
  ASSERT_CU(launch("_Z4fillPffi", nullptr, y, 1.0F, 1000));
  EXPECT_RESULT(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(Context, ChildOfForkIsInert) {
  ASSERT_CU(cuCtxSynchronize());
  const pid_t child = fork();
  if (child == 0) {
    CUdeviceptr address = 0;
    const bool refused = cuMemAlloc(&address, 16) == CUDA_ERROR_NOT_INITIALIZED;
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  CUdeviceptr address = 0;
  EXPECT_CU(cuMemAlloc(&address, 16));
}

TEST_F(Context, ErrorsHaveNames) {
  const char* name = nullptr;
  EXPECT_CU(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &name));
  EXPECT_STREQ(name, "CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_RESULT(cuGetErrorName(static_cast<CUresult>(12345), &name), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(name, nullptr);
}

}  // namespace
}  // namespace simcuda_test
