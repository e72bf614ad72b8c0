// How fast the writer thread codes events, and how small they become: launches as a decoder's loop issues them, the
// same kernels in the same order, with times that jitter and blocks that an allocator hands out in changing order.
#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "compressor/trace/writer.h"

namespace {

using namespace grape::trace;  // NOLINT(google-build-using-namespace): the benchmark is about this namespace

constexpr std::uint32_t kKernels = 250;  // of one step
constexpr std::uint32_t kSteps = 200;    // of one chunk
constexpr std::uint32_t kParameterBytes = 160;

class Counting : public Sink {
 public:
  bool write(const std::uint8_t*, std::size_t bytes) override {
    total += bytes;
    return true;
  }
  std::uint64_t total = 0;
};

struct Launch {
  EventHeader header{};
  std::uint64_t words[kLaunchFixed + words_for(kParameterBytes)] = {};
};

// A fixed sequence of pseudo-random numbers (Knuth's MMIX generator).
class Sequence {
 public:
  std::uint64_t next(std::uint64_t limit) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return (state_ >> 33) % limit;
  }

 private:
  std::uint64_t state_ = 1;
};

// One step's launches: parameters are weights' addresses that stay, and blocks' that differ from step to step.
std::vector<Launch> launches_of(std::uint32_t step, Sequence& sequence, std::uint64_t& ticks) {
  std::vector<Launch> launches(kKernels);
  for (std::uint32_t i = 0; i < kKernels; ++i) {
    Launch& launch = launches[i];
    const std::uint64_t index = std::uint64_t{step} * kKernels + i;
    ticks += 6000 + sequence.next(4000);
    const auto duration = static_cast<std::uint32_t>(3000 + sequence.next(500));
    launch.header = {sizeof(Launch), EventKind::kLaunch, 0, i % 40, duration, index + 1, ticks};
    launch.words[kLaunchFunction] = pack(1 + i % 40, 1);
    launch.words[kLaunchStack] = pack(1 + i, 0);
    launch.words[kLaunchGridXY] = pack(96 + i, 1);
    launch.words[kLaunchGridZ] = pack(1, 128);
    launch.words[kLaunchBlock] = pack(1, 1);
    launch.words[kLaunchStream] = 0x5500c0de;
    launch.words[kLaunchSizes] = pack(0, kParameterBytes);
    std::uint64_t* parameters = launch.words + kLaunchFixed;
    for (std::size_t word = 0; word < words_for(kParameterBytes); ++word) {
      parameters[word] = word % 3 == 0 ? 0x7f0000000000 + (i * 20 + word) * 0x4000 : word;
    }
    parameters[1] = 0x7f8000000000 + sequence.next(64) * 0x200;
    parameters[2] = step;
  }
  return launches;
}

void EncodeLaunches(benchmark::State& state) {
  std::vector<Launch> all;
  Sequence sequence;
  std::uint64_t ticks = 0;
  for (std::uint32_t step = 0; step < kSteps; ++step) {
    const auto launches = launches_of(step, sequence, ticks);
    all.insert(all.end(), launches.begin(), launches.end());
  }
  Counting sink;
  Meta meta;
  Writer writer(sink, meta);
  EventEncoder encoder;
  for (auto _ : state) {
    for (const Launch& launch : all) encoder.add(launch.header);
    if (!writer.write_events(1, 1, encoder)) state.SkipWithError("the writer failed");
  }
  const auto events = static_cast<double>(state.iterations()) * static_cast<double>(all.size());
  state.SetItemsProcessed(static_cast<std::int64_t>(events));
  state.SetBytesProcessed(static_cast<std::int64_t>(events * sizeof(Launch)));
  state.counters["stored_bytes_per_event"] = static_cast<double>(sink.total) / events;
}
BENCHMARK(EncodeLaunches)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
