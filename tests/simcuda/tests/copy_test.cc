#include <atomic>
#include <cstring>
#include <thread>

#include "fixture.h"

namespace simcuda_test {
namespace {

class Copy : public Driver {};

TEST_F(Copy, EveryLinearForm) {
  const float in[4] = {1, 2, 3, 4};
  float out[4] = {};
  CUdeviceptr a = floats(4);
  CUdeviceptr b = floats(4);
  CUstream s = stream();
  ASSERT_CU(cuMemcpyHtoDAsync(a, in, sizeof in, s));
  ASSERT_CU(cuMemcpyDtoDAsync(b, a, sizeof in, s));
  ASSERT_CU(cuMemcpyAsync(a, b, sizeof in, s));
  ASSERT_CU(cuMemcpyPeerAsync(b, context_, a, context_, sizeof in, s));
  ASSERT_CU(cuMemcpyDtoHAsync(out, b, sizeof in, s));
  ASSERT_CU(cuStreamSynchronize(s));
  EXPECT_EQ(std::memcmp(in, out, sizeof in), 0);
  float back[4] = {};
  ASSERT_CU(cuMemcpy(reinterpret_cast<CUdeviceptr>(back), b, sizeof back));
  EXPECT_EQ(std::memcmp(in, back, sizeof in), 0);
  ASSERT_CU(cuMemcpyDtoD(a + 4, b, 8));
  EXPECT_EQ(read(a, 2), 2.0F);
}

// The source may change after the call, as it may with the real driver for memory that is not pinned.
TEST_F(Copy, PageableSourceIsReadBeforeTheCallReturns) {
  CUstream s = stream();
  CUdeviceptr a = floats(1);
  float value = 5;
  ASSERT_CU(launch("_Z5delayj", s, 20000U));
  ASSERT_CU(cuMemcpyHtoDAsync(a, &value, sizeof value, s));
  value = 6;
  ASSERT_CU(cuStreamSynchronize(s));
  EXPECT_EQ(read(a), 5.0F);
}

TEST_F(Copy, PinnedSourceIsReadInStreamOrder) {
  CUstream s = stream();
  CUdeviceptr a = floats(1);
  float* pinned = nullptr;
  ASSERT_CU(cuMemAllocHost(reinterpret_cast<void**>(&pinned), sizeof(float)));
  *pinned = 5;
  // The host's own function changes it, in order: no race in the test itself.
  ASSERT_CU(cuLaunchHostFunc(
      s, [](void* data) { *static_cast<float*>(data) = 6; }, pinned));
  ASSERT_CU(cuMemcpyHtoDAsync(a, pinned, sizeof(float), s));
  ASSERT_CU(cuStreamSynchronize(s));
  EXPECT_EQ(read(a), 6.0F);
}

TEST_F(Copy, TwoAndThreeDimensions) {
  const unsigned char in[2][3] = {{1, 2, 3}, {4, 5, 6}};
  CUdeviceptr pitched = 0;
  std::size_t pitch = 0;
  ASSERT_CU(cuMemAllocPitch(&pitched, &pitch, 3, 2, 4));
  CUDA_MEMCPY2D plane = {};
  plane.srcMemoryType = CU_MEMORYTYPE_HOST;
  plane.srcHost = in;
  plane.srcPitch = 3;
  plane.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  plane.dstDevice = pitched;
  plane.dstPitch = pitch;
  plane.WidthInBytes = 3;
  plane.Height = 2;
  ASSERT_CU(cuMemcpy2D(&plane));
  EXPECT_EQ(read<unsigned char>(pitched, pitch + 2), 6);
  unsigned char out[2][2][2] = {};
  CUDA_MEMCPY3D box = {};
  box.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  box.srcDevice = pitched;
  box.srcPitch = pitch;
  box.srcXInBytes = 1;
  box.dstMemoryType = CU_MEMORYTYPE_HOST;
  box.dstHost = out;
  box.dstPitch = 2;
  box.dstHeight = 2;
  box.dstZ = 1;
  box.WidthInBytes = 2;
  box.Height = 2;
  box.Depth = 1;
  ASSERT_CU(cuMemcpy3D(&box));
  EXPECT_EQ(out[1][0][0], 2);
  EXPECT_EQ(out[1][1][1], 6);
  EXPECT_EQ(out[0][1][1], 0);
  box.Height = 3;
  EXPECT_RESULT(cuMemcpy3D(&box), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Copy, EveryMemset) {
  CUdeviceptr a = floats(8);
  CUstream s = stream();
  ASSERT_CU(cuMemsetD8(a, 0x11, 4));
  ASSERT_CU(cuMemsetD16(a + 4, 0x2222, 2));
  ASSERT_CU(cuMemsetD32(a + 8, 0x33333333, 1));
  ASSERT_CU(cuMemsetD32Async(a + 12, 0x44444444, 1, s));
  ASSERT_CU(cuMemsetD2D8Async(a + 16, 8, 0x55, 2, 2, s));
  ASSERT_CU(cuStreamSynchronize(s));
  EXPECT_EQ(read<unsigned>(a, 0), 0x11111111U);
  EXPECT_EQ(read<unsigned>(a, 1), 0x22222222U);
  EXPECT_EQ(read<unsigned>(a, 2), 0x33333333U);
  EXPECT_EQ(read<unsigned>(a, 3), 0x44444444U);
  EXPECT_EQ(read<unsigned>(a, 4), 0x5555U);
  EXPECT_EQ(read<unsigned>(a, 6), 0x5555U);
  EXPECT_RESULT(cuMemsetD8(a, 0, 33), CUDA_ERROR_INVALID_VALUE);
  EXPECT_RESULT(cuMemsetD32(a + 1, 0, 1), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Copy, WaitAndWriteValues) {
  CUdeviceptr flag = number(0);
  CUstream waiting = stream();
  CUstream writing = stream();
  CUdeviceptr y = floats(1);
  ASSERT_CU(cuStreamWaitValue32(waiting, flag, 7, CU_STREAM_WAIT_VALUE_EQ));
  ASSERT_CU(launch("_Z4fillPffi", waiting, y, 3.0F, 1));
  EXPECT_RESULT(cuStreamQuery(waiting), CUDA_ERROR_NOT_READY);
  ASSERT_CU(cuStreamWriteValue32(writing, flag, 7, 0));
  ASSERT_CU(cuStreamSynchronize(waiting));
  EXPECT_EQ(read(y), 3.0F);
}

}  // namespace
}  // namespace simcuda_test
