// Writes to the trace as often as it can: THREADS short-lived threads one after the other, each with LAUNCHES launches,
// since a thread's events go to the file when it ends. Prints the device's count of them.
//   churn THREADS LAUNCHES
#include <thread>

#include "client.h"

int main(int argc, char** argv) {
  const long threads = client::number(argc, argv, 1, 100);
  const long launches = client::number(argc, argv, 2, 20);
  CUcontext context = client::open_context();
  CUmodule module = client::load(client::standard_image());
  CUfunction add = client::function(module, client::kAtomicAdd);
  CUdeviceptr word = client::new_word();
  for (long t = 0; t < threads; ++t) {
    std::thread([=] {
      CHECK(cuCtxSetCurrent(context));
      for (long i = 0; i < launches; ++i) CHECK(client::launch(add, nullptr, word, std::uint64_t{1}));
    }).join();
  }
  CHECK(cuCtxSynchronize());
  std::printf("%llu\n", static_cast<unsigned long long>(client::read_word(word)));
  return 0;
}
