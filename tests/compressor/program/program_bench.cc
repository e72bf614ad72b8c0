// Times of symbolise, compare, plan and bind on a stream of the probe's: program_bench STREAM (without ".bin.gz").
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "compressor/program/plan.h"
#include "compressor/program/prove.h"
#include "compressor/program/symbolise.h"
#include "tests/compressor/program/stream_records.h"

namespace {

using namespace grape::program;  // NOLINT(google-build-using-namespace): a program of its own

constexpr int kRounds = 200;

// The median in microseconds. `prepare` is not counted.
double median(const std::function<void()>& prepare, const std::function<void()>& work) {
  std::vector<double> times;
  for (int i = 0; i < kRounds; ++i) {
    prepare();
    const auto begin = std::chrono::steady_clock::now();
    work();
    times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  return times[kRounds / 2];
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<StreamRegion> regions;
  std::string error = "usage: program_bench STREAM";
  if (argc != 2 || !read_stream(argv[1], regions, error) || regions.size() < 2) {
    std::fprintf(stderr, "program_bench: %s\n", error.c_str());
    return 1;
  }
  for (StreamRegion& region : regions) find_random_state(region.record);
  const RegionRecord& record = regions[0].record;
  const Program a = symbolise(record), b = symbolise(regions[1].record);
  const ArenaPlan plan = plan_arena(a);
  Bindings bindings;
  bindings.inputs.resize(a.input_bytes.size());
  bindings.outputs.resize(a.outputs.size());
  std::vector<std::uint64_t> words(a.words.size());
  RegionRecord copy;
  Program program;
  Comparison comparison;
  const auto nothing = [] {};
  std::printf("%zu nodes, %zu words, %zu references, %zu temps, %zu blocks before, arena %llu bytes\n", a.nodes.size(),
              a.words.size(), a.references.size(), a.temps.size(), record.before.size(),
              static_cast<unsigned long long>(plan.bytes));
  const double symbolised = median([&] { copy = record; }, [&] { program = symbolise(std::move(copy)); });
  const double compared = median(nothing, [&] { comparison = compare(a, b); });
  const double planned = median(nothing, [&] { plan_arena(a); });
  const double bound = median(nothing, [&] { bind(a, plan, bindings, words.data()); });
  std::printf("symbolise %.0f us, compare %.0f us, plan %.0f us, bind %.1f us\n", symbolised, compared, planned, bound);
}
