// What one kernel launch costs on the CPU, on the real driver: back-to-back launches of an empty kernel.
//
//   launch_bench [batches] [launches a batch]
//
// The driver's functions are found as the CUDA runtime finds them, through cuGetProcAddress, so a preloaded library is
// in the way. Prints one JSON line: nanoseconds a launch (minimum and median over batches), and the same for a launch
// that the driver refuses at once (a null function), whose own cost is small enough to show what a wrapper adds.
// Exit status: 0 measured, 1 no driver or a call failed (the reason is on stderr).
#include <cuda.h>
#include <cudaTypedefs.h>
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

const char kPtx[] = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry empty(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 d) { ret; }
)";

PFN_cuGetProcAddress_v12000 g_get_proc_address = nullptr;

template <typename Function>
Function find(const char* symbol, int version) {
  void* address = nullptr;
  CUdriverProcAddressQueryResult found{};
  const CUresult result = g_get_proc_address(symbol, &address, version, CU_GET_PROC_ADDRESS_DEFAULT, &found);
  if (result != CUDA_SUCCESS || address == nullptr) {
    std::fprintf(stderr, "launch_bench: cuGetProcAddress(%s) returned %d\n", symbol, static_cast<int>(result));
    std::exit(1);
  }
  return reinterpret_cast<Function>(address);
}

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "launch_bench: %s returned %d\n", what, static_cast<int>(result));
  std::exit(1);
}

struct Times {
  double minimum, median;  // ns a call
};

// Times batches of calls; `after` runs untimed after each batch.
template <typename Call, typename After>
Times measure(int batches, int calls, Call call, After after) {
  std::vector<double> times;
  for (int batch = 0; batch < batches + 10; ++batch) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call(i);
    const auto end = std::chrono::steady_clock::now();
    after();
    if (batch >= 10) times.push_back(std::chrono::duration<double, std::nano>(end - begin).count() / calls);
  }
  std::sort(times.begin(), times.end());
  return {times.front(), times[times.size() / 2]};
}

}  // namespace

int main(int argc, char** argv) {
  const int batches = argc > 1 ? std::atoi(argv[1]) : 400;
  const int launches = argc > 2 ? std::atoi(argv[2]) : 500;  // fewer than the driver's queue holds: no launch waits
  if (batches < 1 || launches < 1) {
    std::fprintf(stderr, "usage: launch_bench [batches] [launches a batch]\n");
    return 1;
  }
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) {
    std::fprintf(stderr, "launch_bench: %s\n", dlerror());
    return 1;
  }
  g_get_proc_address = reinterpret_cast<PFN_cuGetProcAddress_v12000>(dlsym(driver, "cuGetProcAddress_v2"));
  if (g_get_proc_address == nullptr) {
    std::fprintf(stderr, "launch_bench: the driver has no cuGetProcAddress_v2\n");
    return 1;
  }
  check(find<PFN_cuInit_v2000>("cuInit", 2000)(0), "cuInit");
  CUdevice device = 0;
  CUcontext context = nullptr;
  check(find<PFN_cuDeviceGet_v2000>("cuDeviceGet", 2000)(&device, 0), "cuDeviceGet");
  check(find<PFN_cuDevicePrimaryCtxRetain_v7000>("cuDevicePrimaryCtxRetain", 7000)(&context, device), "retain");
  check(find<PFN_cuCtxSetCurrent_v4000>("cuCtxSetCurrent", 4000)(context), "cuCtxSetCurrent");
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUstream stream = nullptr;
  check(find<PFN_cuModuleLoadData_v2000>("cuModuleLoadData", 2000)(&module, kPtx), "cuModuleLoadData");
  check(find<PFN_cuModuleGetFunction_v2000>("cuModuleGetFunction", 2000)(&function, module, "empty"), "get function");
  check(find<PFN_cuStreamCreate_v2000>("cuStreamCreate", 2000)(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  const auto launch = find<PFN_cuLaunchKernel_v4000>("cuLaunchKernel", 4000);
  const auto synchronize = find<PFN_cuStreamSynchronize_v2000>("cuStreamSynchronize", 2000);

  unsigned long long a = 1, b = 2, c = 3;
  unsigned d = 0;
  void* parameters[] = {&a, &b, &c, &d};
  CUresult worst = CUDA_SUCCESS;
  const Times real = measure(
      batches, launches,
      [&](int i) {
        a = static_cast<unsigned long long>(i);
        const CUresult result = launch(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr);
        if (result != CUDA_SUCCESS) worst = result;
      },
      [&] { check(synchronize(stream), "cuStreamSynchronize"); });
  check(worst, "cuLaunchKernel");
  CUresult refused = CUDA_SUCCESS;
  const Times null = measure(
      batches, launches, [&](int) { refused = launch(nullptr, 1, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr); },
      [] {});
  std::printf(
      "{\"launch_min_ns\":%.1f,\"launch_median_ns\":%.1f,\"refused_min_ns\":%.1f,\"refused_median_ns\":%.1f,"
      "\"refused_result\":%d}\n",
      real.minimum, real.median, null.minimum, null.median, static_cast<int>(refused));
  return 0;
}
