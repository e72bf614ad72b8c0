#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "fixture.h"

namespace simcuda_test {
namespace {

class Stress : public Driver {};

constexpr int kThreads = 64;
constexpr int kLaunches = 200;

TEST_F(Stress, ManyThreadsOnOneStreamOnOwnStreamsAndOnPerThreadStreams) {
  CUstream shared = stream();
  CUdeviceptr total = number(0);
  CUfunction add = function("_Z10atomic_addPmm");
  CUfunction mix = function("_Z3mixPmmm");
  std::vector<CUdeviceptr> ordered;
  for (int i = 0; i < kThreads; ++i) ordered.push_back(number(0));
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      ASSERT_CU(cuCtxSetCurrent(context_));
      CUstream own = stream(t % 2 == 0 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
      CUdeviceptr mine = ordered[static_cast<std::size_t>(t)];
      std::uint64_t one = 1;
      std::uint64_t factor = 3;
      for (std::uint64_t i = 0; i < kLaunches; ++i) {
        void* add_parameters[] = {&total, &one};
        void* mix_parameters[] = {&mine, &factor, &i};
        ASSERT_CU(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, shared, add_parameters, nullptr));
        ASSERT_CU(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, CU_STREAM_PER_THREAD, add_parameters, nullptr));
        ASSERT_CU(cuLaunchKernel(mix, 1, 1, 1, 1, 1, 1, 0, own, mix_parameters, nullptr));
        if (i % 50 == 0) {
          ASSERT_CU(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, nullptr, add_parameters, nullptr));
        }
      }
      ASSERT_CU(cuStreamSynchronize(CU_STREAM_PER_THREAD));
      ASSERT_CU(cuStreamSynchronize(own));
      ASSERT_CU(cuStreamDestroy(own));
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(read<std::uint64_t>(total), std::uint64_t{kThreads} * (2 * kLaunches + kLaunches / 50));
  std::uint64_t expected = 0;
  for (std::uint64_t i = 0; i < kLaunches; ++i) expected = expected * 3 + i;
  for (const CUdeviceptr mine : ordered) EXPECT_EQ(read<std::uint64_t>(mine), expected);
}

TEST_F(Stress, ThreadsAllocateFreeAndLoadAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      ASSERT_CU(cuCtxSetCurrent(context_));
      for (int i = 0; i < 100; ++i) {
        CUdeviceptr address = 0;
        ASSERT_CU(cuMemAllocAsync(&address, 4096, CU_STREAM_PER_THREAD));
        ASSERT_CU(launch("_Z4fillPffi", CU_STREAM_PER_THREAD, address, 1.0F, 1024));
        ASSERT_CU(cuMemFreeAsync(address, CU_STREAM_PER_THREAD));
        CUmodule module = nullptr;
        ASSERT_CU(cuModuleLoadData(&module, "SIMCUDA MODULE 1\n_Z4copyPfPKfi\n"));
        ASSERT_CU(cuModuleUnload(module));
      }
      ASSERT_CU(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Runs `body` in a fresh process (a fork of this one could not use the driver). Returns its exit status.
int run_self(const std::string& test, const std::string& environment) {
  char self[4096] = {};
  if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return -1;
  const std::string full =
      environment + " '" + self + "' --gtest_also_run_disabled_tests --gtest_filter=" + test + " >/dev/null 2>&1";
  const auto begin = std::chrono::steady_clock::now();
  const int status = std::system(full.c_str());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(8)) << "hangs at exit";
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class Exiting : public Driver {
 protected:
  void queue_ten_seconds() {
    for (int i = 0; i < 10; ++i) ASSERT_CU(launch("_Z5delayj", i % 2 == 0 ? nullptr : CU_STREAM_PER_THREAD, 1000000U));
  }
};
TEST_F(Exiting, DISABLED_Exit) {
  queue_ten_seconds();
  std::exit(3);
}
TEST_F(Exiting, DISABLED_QuickExit) {
  queue_ten_seconds();
  _exit(4);
}
TEST_F(Exiting, DISABLED_FaultsFromTheEnvironment) {
  CUdeviceptr address = 0;
  const CUresult first = cuMemAlloc(&address, 16);
  const CUresult second = cuMemAlloc(&address, 16);
  std::size_t free_bytes = 0;
  std::size_t total = 0;
  EXPECT_CU(cuMemGetInfo(&free_bytes, &total));
  for (int i = 0; i < 3; ++i) EXPECT_CU(launch("_Z7nothingv", nullptr));
  EXPECT_CU(cuCtxSynchronize());
  std::exit(first == CUDA_SUCCESS && second == CUDA_ERROR_OUT_OF_MEMORY && total == 1000000 ? 5 : 6);
}

TEST(Process, ExitsWithWorkQueued) {
  EXPECT_EQ(run_self("Exiting.DISABLED_Exit", ""), 3);
  EXPECT_EQ(run_self("Exiting.DISABLED_QuickExit", ""), 4);
}

TEST(Process, ReadsItsEnvironment) {
  const std::string log = ::testing::TempDir() + "simcuda-log-" + std::to_string(getpid());
  EXPECT_EQ(run_self("Exiting.DISABLED_FaultsFromTheEnvironment",
                     "SIMCUDA_FAULTS=cuMemAlloc_v2:2:2 SIMCUDA_MEMORY=1000000 SIMCUDA_LOG='" + log + "'"),
            5);
  std::ifstream file(log);
  std::string line;
  int lines = 0;
  while (std::getline(file, line)) {
    ++lines;
    EXPECT_EQ(line, std::to_string(lines) + " 0x1 _Z7nothingv");
  }
  EXPECT_EQ(lines, 3);
  unlink(log.c_str());
}

// Not a benchmark: a bound loose enough for a loaded machine, to notice a lost order of magnitude.
TEST_F(Stress, LaunchesAreCheap) {
  CUstream s = stream();
  CUfunction nothing = function("_Z7nothingv");
  constexpr int kCalls = 20000;
  const auto time_of = [&] {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, s, nullptr, nullptr);
    const auto end = std::chrono::steady_clock::now();
    EXPECT_CU(cuStreamSynchronize(s));
    return static_cast<double>(std::chrono::duration_cast<std::chrono::nanoseconds>(end - begin).count()) / kCalls;
  };
  time_of();
  const double queued = time_of();
  simcuda_set_null_launch(1);
  const double null_launch = time_of();
  simcuda_set_null_launch(0);
  RecordProperty("launch_ns", static_cast<int>(queued));
  RecordProperty("null_launch_ns", static_cast<int>(null_launch));
  std::printf("launch %.0f ns, null launch %.1f ns\n", queued, null_launch);
  EXPECT_LT(queued, 50000);
  EXPECT_LT(null_launch, 5000);
}

}  // namespace
}  // namespace simcuda_test
