// Streams and events that come and go, with work behind them, while their handles are given anew. Ends with every
// counter of the driver: what a library in between asked about dead handles would show.
#include "client.h"
#include "simcuda.h"

int main() {
  client::open_context();
  CUmodule module = client::load(client::standard_image());
  CUfunction mix = client::function(module, client::kMix);
  const CUdeviceptr word = client::new_word(1);
  int reused = 0;
  CUstream last = nullptr;
  for (std::uint64_t round = 0; round < 50; ++round) {
    CUstream one = nullptr, two = nullptr;
    CUevent event = nullptr;
    CHECK(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
    reused += one == last || two == last;
    last = one;
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(client::launch(mix, one, word, std::uint64_t{31}, round));
    CHECK(cuEventRecord(event, one));
    CHECK(cuStreamWaitEvent(two, event, 0));
    CHECK(cuEventDestroy(event));  // allowed: the driver keeps what is pending
    CHECK(cuStreamDestroy(one));
    CHECK(client::launch(mix, two, word, std::uint64_t{31}, round + 1000));
    CHECK(cuStreamSynchronize(two));
    // Dead handles, as a program with a mistake uses them: the driver's answer, nobody else's.
    const CUresult dead = client::launch(mix, one, word, std::uint64_t{31}, round);
    const CUresult gone = cuEventRecord(event, two);
    std::printf("%d %d\n", static_cast<int>(dead), static_cast<int>(gone));
    CHECK(cuStreamDestroy(two));
  }
  std::printf("result %llu\n", static_cast<unsigned long long>(client::read_word(word)));
  std::fprintf(stderr, "handles reused %d times\n", reused);
  for (std::size_t i = 0; i < simcuda_symbol_count(); ++i) {
    const char* symbol = simcuda_symbol_name(i);
    if (simcuda_calls(symbol) != 0) {
      std::printf("calls %s %llu\n", symbol, static_cast<unsigned long long>(simcuda_calls(symbol)));
    }
  }
  return 0;
}
