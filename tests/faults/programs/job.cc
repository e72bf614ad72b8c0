// Some of everything: memory, two streams with an event between them, a graph, a second module. Prints the result of
// each call, goes on after errors as far as it can, and prints what the device computed and how often the driver was
// called. Its output is the same in every run. Run with "calls" it prints every counter of the driver.
#include <cstring>

#include "client.h"
#include "simcuda.h"

namespace {

int g_failed = 0;

CUresult note(const char* what, CUresult result) {
  std::printf("%s %d\n", what, static_cast<int>(result));
  g_failed += result != CUDA_SUCCESS;
  return result;
}
#define NOTE(call) note(#call, call)

struct Job {
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction axpy = nullptr, fill = nullptr, mix = nullptr;
  CUdeviceptr x = 0, y = 0, word = 0;
  CUstream one = nullptr, two = nullptr;
  CUevent ready = nullptr;
};

constexpr int kCount = 256;

void open(Job& job) {
  CUdevice device = 0;
  NOTE(cuInit(0));
  NOTE(cuDeviceGet(&device, 0));
  NOTE(cuDevicePrimaryCtxRetain(&job.context, device));
  NOTE(cuCtxSetCurrent(job.context));
  NOTE(cuModuleLoadData(&job.module, client::standard_image().c_str()));
  NOTE(cuModuleGetFunction(&job.axpy, job.module, client::kAxpy));
  NOTE(cuModuleGetFunction(&job.fill, job.module, client::kFill));
  NOTE(cuModuleGetFunction(&job.mix, job.module, client::kMix));
  NOTE(cuMemAlloc(&job.x, kCount * sizeof(float)));
  NOTE(cuMemAlloc(&job.y, kCount * sizeof(float)));
  NOTE(cuMemAlloc(&job.word, sizeof(std::uint64_t)));
  NOTE(cuStreamCreate(&job.one, CU_STREAM_NON_BLOCKING));
  NOTE(cuStreamCreate(&job.two, CU_STREAM_NON_BLOCKING));
  NOTE(cuEventCreate(&job.ready, CU_EVENT_DISABLE_TIMING));
}

void compute(Job& job) {
  float host[kCount];
  for (int i = 0; i < kCount; ++i) host[i] = static_cast<float>(i);
  NOTE(cuMemcpyHtoDAsync(job.x, host, sizeof host, job.one));
  NOTE(cuMemsetD32Async(job.y, 0, kCount, job.two));
  NOTE(cuMemsetD32Async(job.word, 0, 2, job.one));
  for (int i = 0; i < 5; ++i) {
    NOTE(client::launch(job.axpy, job.one, job.x, job.x, 0.5F, kCount));
    NOTE(client::launch(job.mix, job.one, job.word, std::uint64_t{31}, static_cast<std::uint64_t>(i)));
  }
  NOTE(cuEventRecord(job.ready, job.one));
  NOTE(cuStreamWaitEvent(job.two, job.ready, 0));
  NOTE(cuStreamSynchronize(job.one));  // as well: a run in which either fails shall have one result
  NOTE(client::launch(job.axpy, job.two, job.y, job.x, 2.0F, kCount));
  NOTE(cuStreamSynchronize(job.two));
}

void replay(Job& job) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  NOTE(cuStreamBeginCapture(job.one, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  NOTE(client::launch(job.mix, job.one, job.word, std::uint64_t{31}, std::uint64_t{7}));
  NOTE(client::launch(job.mix, job.one, job.word, std::uint64_t{31}, std::uint64_t{8}));
  NOTE(cuStreamEndCapture(job.one, &graph));
  if (graph != nullptr) NOTE(cuGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 3 && exec != nullptr; ++i) NOTE(cuGraphLaunch(exec, job.one));
  if (exec != nullptr) NOTE(cuGraphExecDestroy(exec));
  if (graph != nullptr) NOTE(cuGraphDestroy(graph));
  NOTE(cuStreamSynchronize(job.one));
}

void close(Job& job) {
  float host[kCount] = {};
  std::uint64_t word = 0;
  NOTE(cuMemcpyDtoH(host, job.y, sizeof host));
  NOTE(cuMemcpyDtoH(&word, job.word, sizeof word));
  double sum = 0;
  for (float value : host) sum += value;
  std::printf("sum %.3f word %llu\n", sum, static_cast<unsigned long long>(word));
  NOTE(cuEventDestroy(job.ready));
  NOTE(cuStreamDestroy(job.one));
  NOTE(cuStreamDestroy(job.two));
  NOTE(cuModuleUnload(job.module));
  for (CUdeviceptr address : {job.x, job.y, job.word}) NOTE(cuMemFree(address));
}

}  // namespace

int main(int argc, char** argv) {
  Job job;
  open(job);
  compute(job);
  replay(job);
  close(job);
  if (argc > 1 && std::strcmp(argv[1], "calls") == 0) {
    for (std::size_t i = 0; i < simcuda_symbol_count(); ++i) {
      const char* symbol = simcuda_symbol_name(i);
      if (simcuda_calls(symbol) != 0) {
        std::printf("calls %s %llu\n", symbol, static_cast<unsigned long long>(simcuda_calls(symbol)));
      }
    }
  }
  NOTE(cuDevicePrimaryCtxRelease(0));
  std::printf("failed %d\n", g_failed);
  return g_failed == 0 ? 0 : 3;
}
