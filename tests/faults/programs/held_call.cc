// One thread is inside a driver call for as long as the others work: it waits for a stream whose host function waits
// for the others to be done. If any lock were held across that call, nobody would get further.
//   held_call stream|event|copy: the call
#include <semaphore.h>

#include <atomic>
#include <thread>

#include "client.h"

namespace {

sem_t g_entered, g_release;

void CUDA_CB hold(void*) {
  sem_post(&g_entered);
  sem_wait(&g_release);
}

// Everything that a wrapper may need a lock for: first sight of a kernel, unloading, allocation, streams, events.
std::uint64_t work_meanwhile() {
  CUstream stream = nullptr;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  std::uint64_t sum = 0;
  for (int round = 0; round < 20; ++round) {
    CUmodule module = client::load(client::standard_image());
    CUfunction mix = client::function(module, client::kMix);
    CUdeviceptr word = 0;
    CUevent event = nullptr;
    std::uint64_t value = 0;
    CHECK(cuMemAlloc(&word, sizeof value));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemcpyHtoDAsync(word, &value, sizeof value, stream));
    for (std::uint64_t i = 0; i < 50; ++i) CHECK(client::launch(mix, stream, word, std::uint64_t{3}, i));
    CHECK(cuEventRecord(event, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemcpyDtoHAsync(&value, word, sizeof value, stream));
    CHECK(cuStreamSynchronize(stream));
    sum += value;
    CHECK(cuEventDestroy(event));
    CHECK(cuModuleUnload(module));
  }
  CHECK(cuStreamDestroy(stream));
  return sum;
}

// Waits for the held stream in one call.
void wait_for(const std::string& call, CUstream held, CUdeviceptr word) {
  CUevent event = nullptr;
  std::uint64_t value = 0;
  CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  CHECK(cuLaunchHostFunc(held, hold, nullptr));
  CHECK(cuEventRecord(event, held));
  if (call == "stream") CHECK(cuStreamSynchronize(held));
  if (call == "event") CHECK(cuEventSynchronize(event));
  if (call == "copy") CHECK(cuMemcpyDtoH(&value, word, sizeof value));  // behind all blocking streams
}

}  // namespace

int main(int argc, char** argv) {
  const std::string call = argc > 1 ? argv[1] : "stream";
  CUcontext context = client::open_context();
  sem_init(&g_entered, 0, 0);
  sem_init(&g_release, 0, 0);
  CUstream held = nullptr;
  CHECK(cuStreamCreate(&held, CU_STREAM_DEFAULT));
  const CUdeviceptr word = client::new_word();
  std::atomic<bool> back{false};
  std::thread inside([&] {
    CHECK(cuCtxSetCurrent(context));
    wait_for(call, held, word);
    back.store(true);
  });
  sem_wait(&g_entered);
  const std::uint64_t sum = work_meanwhile();
  const bool early = back.load();
  sem_post(&g_release);
  inside.join();
  std::printf("%s %llu\n", early ? "the call was over too early" : "meanwhile", static_cast<unsigned long long>(sum));
  return early ? 1 : 0;
}
