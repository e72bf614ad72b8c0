// What one driver call costs on the calling thread, on the simulated driver with SIMCUDA_NULL=1, where a launch itself
// does nothing. Built as a library with one entry, so that a plain program (grape_bench) and a Python interpreter
// (run_bench.py) can host the same loops: what Grape adds depends on the environment and on the frames above.
#include <benchmark/benchmark.h>
#include <cuda.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr char kModule[] =
    "SIMCUDA MODULE 1\n_Z6matmulPfPKfS1_iii\n_Z9tile_copyPf14CUtensorMap_sti\n_Z9copyPfPKfi = _Z4copyPfPKfi\n";

struct Driver {
  CUmodule module = nullptr;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  const char* error = nullptr;

  Driver() {
    CUdevice device = 0;
    CUcontext context = nullptr;
    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&device, 0) != CUDA_SUCCESS ||
        cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS || cuCtxSetCurrent(context) != CUDA_SUCCESS) {
      error = "no device";
    } else if (cuModuleLoadData(&module, kModule) != CUDA_SUCCESS) {
      error = "this is not the simulated driver";
    } else if (cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS ||
               cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
      error = "no stream or event";
    }
  }
  CUfunction function(const char* name) const {
    CUfunction found = nullptr;
    return cuModuleGetFunction(&found, module, name) == CUDA_SUCCESS ? found : nullptr;
  }
};

const Driver& driver() {
  static const Driver opened;
  return opened;
}

// Calls come in bursts with pauses that are not timed, as a program's do that keeps a GPU busy: without them the loop
// would outrun the writer thread, and events that are dropped cost less than those that are kept.
constexpr int kBurst = 1000;
constexpr auto kPause = std::chrono::microseconds(1500);

template <class Call>
void in_bursts(benchmark::State& state, Call call) {
  CUresult worst = CUDA_SUCCESS;
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kBurst; ++i) {
      const CUresult result = call(i);
      if (result != CUDA_SUCCESS) worst = result;
    }
    const auto end = std::chrono::steady_clock::now();
    state.SetIterationTime(std::chrono::duration<double>(end - begin).count());
    std::this_thread::sleep_for(kPause);
  }
  if (worst != CUDA_SUCCESS) state.SkipWithError("a call failed");
  state.SetItemsProcessed(state.iterations() * kBurst);
}

bool ready(benchmark::State& state) {
  if (driver().error != nullptr) state.SkipWithError(driver().error);
  return driver().error == nullptr;
}

// Six parameters in 36 bytes, the outputs and inputs moving as an allocator's blocks do.
void LaunchMatmul(benchmark::State& state) {
  if (!ready(state)) return;
  const CUfunction kernel = driver().function("_Z6matmulPfPKfS1_iii");
  CUdeviceptr to = 0x700000000000, left = to + 0x1000, right = to + 0x2000;
  int m = 64, n = 64, k = 64;
  void* parameters[] = {&to, &left, &right, &m, &n, &k};
  in_bursts(state, [&](int i) {
    to = 0x700000000000 + static_cast<std::uint64_t>(i % 16) * 512;
    return cuLaunchKernel(kernel, 8, 8, 1, 32, 1, 1, 0, driver().stream, parameters, nullptr);
  });
}

// A 128-byte struct by value, as in kernels that take a tensor map.
void LaunchTensorMap(benchmark::State& state) {
  if (!ready(state)) return;
  const CUfunction kernel = driver().function("_Z9tile_copyPf14CUtensorMap_sti");
  CUdeviceptr to = 0x700000000000;
  CUtensorMap map = {};
  int n = 64;
  void* parameters[] = {&to, &map, &n};
  in_bursts(state, [&](int i) {
    map.opaque[0] = 0x700000000000 + static_cast<std::uint64_t>(i % 16) * 512;
    return cuLaunchKernel(kernel, 8, 1, 1, 128, 1, 1, 0, driver().stream, parameters, nullptr);
  });
}

// With one attribute, as PyTorch's launches with clusters or programmatic dependent launch.
void LaunchEx(benchmark::State& state) {
  if (!ready(state)) return;
  const CUfunction kernel = driver().function("_Z6matmulPfPKfS1_iii");
  CUdeviceptr to = 0x700000000000, left = to + 0x1000, right = to + 0x2000;
  int m = 64, n = 64, k = 64;
  void* parameters[] = {&to, &left, &right, &m, &n, &k};
  CUlaunchAttribute attribute = {};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig shape = {};
  shape.gridDimX = shape.gridDimY = 8;
  shape.gridDimZ = shape.blockDimY = shape.blockDimZ = 1;
  shape.blockDimX = 32;
  shape.hStream = driver().stream;
  shape.attrs = &attribute;
  shape.numAttrs = 1;
  in_bursts(state, [&](int) { return cuLaunchKernelEx(&shape, kernel, parameters, nullptr); });
}

void EventRecord(benchmark::State& state) {
  if (!ready(state)) return;
  in_bursts(state, [&](int) { return cuEventRecord(driver().event, driver().stream); });
}

BENCHMARK(LaunchMatmul)->UseManualTime();
BENCHMARK(LaunchTensorMap)->UseManualTime();
BENCHMARK(LaunchEx)->UseManualTime();
BENCHMARK(EventRecord)->UseManualTime();

}  // namespace

// Google Benchmark's usual main. Exit status as a program's.
extern "C" __attribute__((visibility("default"))) int grape_bench_main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return driver().error != nullptr ? 1 : 0;
}
