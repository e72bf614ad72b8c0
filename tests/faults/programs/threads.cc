// COUNT threads launch at once, N kernels each, every kernel under a name and with parameters that tell thread and
// place.
//   threads shared|own|default COUNT N: on one stream, on a stream for each thread, on each thread's default stream
#include <atomic>
#include <cstring>
#include <thread>

#include "client.h"

namespace {

std::atomic<bool> g_go{false};

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "shared";
  const auto count = static_cast<std::size_t>(client::number(argc, argv, 2, 64));
  const long launches = client::number(argc, argv, 3, 200);
  CUcontext context = client::open_context();
  // Kernel t<thread>_<i mod 3>: the driver's log shows each thread's order.
  std::vector<std::string> names;
  for (std::size_t t = 0; t < count; ++t) {
    for (int phase = 0; phase < 3; ++phase) {
      names.push_back("t" + std::to_string(t) + "_" + std::to_string(phase) + " = " +
                      (mode == "shared" ? client::kAtomicAdd : client::kMix));
    }
  }
  CUmodule module = client::load(client::image(names));
  std::vector<CUstream> streams(count, nullptr);
  std::vector<CUdeviceptr> words;
  for (std::size_t t = 0; t < count; ++t) words.push_back(client::new_word());
  CHECK(cuCtxSynchronize());
  CUstream shared = nullptr;
  CHECK(cuStreamCreate(&shared, CU_STREAM_NON_BLOCKING));
  for (CUstream& stream : streams) {
    stream = shared;
    if (mode == "own") CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (mode == "default") stream = CU_STREAM_PER_THREAD;
  }
  const auto work = [&](std::size_t t) {
    CHECK(cuCtxSetCurrent(context));
    CUfunction kernels[3];
    for (int phase = 0; phase < 3; ++phase) {
      kernels[phase] = client::function(module, ("t" + std::to_string(t) + "_" + std::to_string(phase)).c_str());
    }
    while (!g_go.load()) sched_yield();
    for (long i = 0; i < launches; ++i) {
      const std::uint64_t tag = (static_cast<std::uint64_t>(t) << 32) | static_cast<std::uint64_t>(i);
      CHECK(mode == "shared" ? client::launch(kernels[i % 3], streams[t], words[t], tag)
                             : client::launch(kernels[i % 3], streams[t], words[t], std::uint64_t{31}, tag));
    }
    CHECK(cuStreamSynchronize(streams[t]));
  };
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < count; ++t) threads.emplace_back(work, t);
  g_go.store(true);
  for (std::thread& thread : threads) thread.join();
  for (CUdeviceptr word : words) std::printf("%llu\n", static_cast<unsigned long long>(client::read_word(word)));
  return 0;
}
