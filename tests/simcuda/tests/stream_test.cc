#include <atomic>
#include <thread>

#include "fixture.h"

namespace simcuda_test {
namespace {

class Streams : public Driver {
 protected:
  // *p = *p 10 + digit: the order can be read off.
  CUresult digit(CUstream s, CUdeviceptr p, std::uint64_t value) {
    return launch("_Z3mixPmmm", s, p, std::uint64_t{10}, value);
  }
};

TEST_F(Streams, AreInOrderAndAsynchronous) {
  CUstream s = stream();
  CUdeviceptr p = number(0);
  ASSERT_CU(launch("_Z5delayj", s, 20000U));
  EXPECT_RESULT(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
  for (std::uint64_t i = 1; i <= 5; ++i) ASSERT_CU(digit(s, p, i));
  ASSERT_CU(cuStreamSynchronize(s));
  EXPECT_CU(cuStreamQuery(s));
  EXPECT_EQ(read<std::uint64_t>(p), 12345U);
}

TEST_F(Streams, LegacyStreamWaitsForBlockingStreamsAndTheyForIt) {
  CUstream blocking = stream(CU_STREAM_DEFAULT);
  CUdeviceptr p = number(0);
  ASSERT_CU(launch("_Z5delayj", blocking, 10000U));
  ASSERT_CU(digit(blocking, p, 1));
  ASSERT_CU(digit(nullptr, p, 2));
  ASSERT_CU(launch("_Z5delayj", nullptr, 10000U));
  ASSERT_CU(digit(blocking, p, 3));
  ASSERT_CU(cuStreamSynchronize(blocking));
  EXPECT_EQ(read<std::uint64_t>(p), 123U);
}

TEST_F(Streams, NonBlockingStreamDoesNotWaitForLegacy) {
  CUstream s = stream(CU_STREAM_NON_BLOCKING);
  CUdeviceptr flag = number(0);
  // The legacy stream waits for what only the other stream does: it would hang if that waited in turn.
  ASSERT_CU(cuStreamWaitValue32(nullptr, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
  ASSERT_CU(cuStreamWriteValue32(s, flag, 1, 0));
  EXPECT_CU(cuCtxSynchronize());
}

TEST_F(Streams, WhoWaitsForLegacyWaitsForBlockingStreamsAlone) {
  CUstream blocking = stream(CU_STREAM_DEFAULT);
  CUstream s = stream(CU_STREAM_NON_BLOCKING);
  CUdeviceptr flag = number(0), p = number(0);
  ASSERT_CU(cuStreamWaitValue32(s, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
  ASSERT_CU(launch("_Z5delayj", blocking, 10000U));
  ASSERT_CU(digit(blocking, p, 1));
  EXPECT_CU(cuStreamSynchronize(nullptr));
  EXPECT_CU(cuStreamQuery(blocking));
  EXPECT_RESULT(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
  ASSERT_CU(cuStreamWriteValue32(nullptr, flag, 1, 0));
  EXPECT_CU(cuCtxSynchronize());
}

TEST_F(Streams, PerThreadDefaultStreamIsTheThreadsOwn) {
  unsigned long long mine = 0;
  unsigned long long legacy = 0;
  unsigned long long other = 0;
  ASSERT_CU(cuStreamGetId(CU_STREAM_PER_THREAD, &mine));
  ASSERT_CU(cuStreamGetId(nullptr, &legacy));
  std::thread([&] {
    ASSERT_CU(cuCtxSetCurrent(context_));
    ASSERT_CU(cuStreamGetId(CU_STREAM_PER_THREAD, &other));
  }).join();
  EXPECT_NE(mine, legacy);
  EXPECT_NE(mine, other);
}

TEST_F(Streams, PerThreadSymbolsUseIt) {
  using Query = CUresult (*)(CUstream);
  Query query = nullptr;
  ASSERT_CU(cuGetProcAddress("cuStreamQuery", reinterpret_cast<void**>(&query), 12000,
                             CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, nullptr));
  CUdeviceptr flag = number(0);
  ASSERT_CU(cuStreamWaitValue32(CU_STREAM_PER_THREAD, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
  EXPECT_RESULT(query(nullptr), CUDA_ERROR_NOT_READY);
  EXPECT_CU(cuStreamQuery(nullptr)) << "legacy, with nothing in it";
  CUstream s = stream();
  ASSERT_CU(cuStreamWriteValue32(s, flag, 1, 0));
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_CU(query(nullptr));
}

TEST_F(Streams, EventsOrderStreams) {
  CUstream a = stream();
  CUstream b = stream();
  CUevent e = event();
  CUdeviceptr p = number(0);
  ASSERT_CU(launch("_Z5delayj", a, 20000U));
  ASSERT_CU(digit(a, p, 1));
  ASSERT_CU(cuEventRecord(e, a));
  EXPECT_RESULT(cuEventQuery(e), CUDA_ERROR_NOT_READY);
  ASSERT_CU(cuStreamWaitEvent(b, e, 0));
  ASSERT_CU(digit(b, p, 2));
  ASSERT_CU(cuStreamSynchronize(b));
  EXPECT_EQ(read<std::uint64_t>(p), 12U);
  EXPECT_CU(cuEventSynchronize(e));
  EXPECT_CU(cuEventQuery(e));
}

TEST_F(Streams, EventsMeasureTime) {
  CUstream s = stream();
  CUevent start = event();
  CUevent end = event();
  float milliseconds = 0;
  EXPECT_RESULT(cuEventElapsedTime(&milliseconds, start, end), CUDA_ERROR_INVALID_HANDLE);
  ASSERT_CU(cuEventRecord(start, s));
  ASSERT_CU(launch("_Z5delayj", s, 10000U));
  ASSERT_CU(cuEventRecord(end, s));
  EXPECT_RESULT(cuEventElapsedTime(&milliseconds, start, end), CUDA_ERROR_NOT_READY);
  ASSERT_CU(cuEventSynchronize(end));
  ASSERT_CU(cuEventElapsedTime(&milliseconds, start, end));
  EXPECT_GE(milliseconds, 9.9F);
  EXPECT_LT(milliseconds, 5000.0F);
}

TEST_F(Streams, DestroyedWithWorkQueued) {
  CUstream s = stream();
  CUdeviceptr p = number(0);
  CUevent e = event();
  ASSERT_CU(launch("_Z5delayj", s, 10000U));
  ASSERT_CU(digit(s, p, 7));
  ASSERT_CU(cuEventRecord(e, s));
  ASSERT_CU(cuStreamDestroy(s));
  EXPECT_RESULT(cuStreamQuery(s), CUDA_ERROR_INVALID_HANDLE);
  ASSERT_CU(cuEventSynchronize(e));
  EXPECT_EQ(read<std::uint64_t>(p), 7U);
  EXPECT_CU(cuEventDestroy(e));
  EXPECT_RESULT(cuEventQuery(e), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(Streams, HostFunctionsRunInOrderOnAnotherThread) {
  CUstream s = stream();
  struct Seen {
    std::thread::id thread;
    std::atomic<int> calls{0};
  } seen;
  ASSERT_CU(cuLaunchHostFunc(
      s,
      [](void* data) {
        static_cast<Seen*>(data)->thread = std::this_thread::get_id();
        ++static_cast<Seen*>(data)->calls;
      },
      &seen));
  ASSERT_CU(cuStreamAddCallback(
      s, [](CUstream, CUresult, void* data) { ++static_cast<Seen*>(data)->calls; }, &seen, 0));
  ASSERT_CU(cuStreamSynchronize(s));
  EXPECT_EQ(seen.calls, 2);
  EXPECT_NE(seen.thread, std::this_thread::get_id());
}

TEST_F(Streams, PrioritiesAndFlags) {
  int least = 1;
  int greatest = 1;
  ASSERT_CU(cuCtxGetStreamPriorityRange(&least, &greatest));
  CUstream s = nullptr;
  ASSERT_CU(cuStreamCreateWithPriority(&s, CU_STREAM_NON_BLOCKING, -100));
  int priority = 0;
  unsigned flags = 0;
  EXPECT_CU(cuStreamGetPriority(s, &priority));
  EXPECT_EQ(priority, greatest);
  EXPECT_CU(cuStreamGetFlags(s, &flags));
  EXPECT_EQ(flags, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
  EXPECT_RESULT(cuStreamCreate(&s, 64), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Streams, NullLaunchDoesNothing) {
  CUdeviceptr y = floats(1);
  simcuda_set_null_launch(1);
  ASSERT_CU(launch("_Z4fillPffi", nullptr, y, 1.0F, 1));
  simcuda_set_null_launch(0);
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(read(y), 0.0F);
}

}  // namespace
}  // namespace simcuda_test
