// store_bench STREAM [19]: sizes and speeds of the store on a probe stream (without ".bin.gz"), next to plain zstd of
// the same programs. Speeds are by CPU time. With "19" zstd -19 as well, which takes minutes.
#include <zdict.h>
#include <zstd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "compressor/program/symbolise.h"
#include "compressor/store/parts.h"
#include "compressor/store/record.h"
#include "compressor/store/store.h"
#include "tests/compressor/program/stream_records.h"

namespace grape::store {
namespace {

using program::Program;

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double seconds_of(const std::function<void()>& work) {
  const double begin = cpu_seconds();
  work();
  return cpu_seconds() - begin;
}

struct Samples {
  std::vector<double> seconds;
  double part(double fraction) {
    std::sort(seconds.begin(), seconds.end());
    return seconds[static_cast<std::size_t>(fraction * static_cast<double>(seconds.size() - 1))] * 1e6;
  }
};

// What each program is by itself, as bytes.
std::vector<Bytes> plain_bytes(const std::vector<Program>& programs) {
  Parts parts;
  std::vector<Bytes> all;
  for (const Program& program : programs) {
    all.emplace_back();
    put_image(to_image(program, parts), all.back());
  }
  return all;
}

void print(const char* what, std::size_t bytes, double seconds, double raw) {
  std::printf("%-38s %10zu bytes, %6.0f MB/s in\n", what, bytes, raw / 1e6 / seconds);
}

// All programs one behind the other: small, but none can be read without those before it.
void zstd_together(const std::vector<Bytes>& programs, int level, double raw) {
  Bytes all, out;
  for (const Bytes& program : programs) all.insert(all.end(), program.begin(), program.end());
  out.resize(ZSTD_compressBound(all.size()));
  std::size_t size = 0;
  const double seconds =
      seconds_of([&] { size = ZSTD_compress(out.data(), out.size(), all.data(), all.size(), level); });
  print(("zstd -" + std::to_string(level) + ", all as one").c_str(), size, seconds, raw);
}

void zstd_each(const std::vector<Bytes>& programs, int level, bool with_dictionary, double raw) {
  Bytes dictionary, samples, out;
  std::vector<std::size_t> sizes;
  const std::size_t every = std::max<std::size_t>(1, programs.size() / 32);
  for (std::size_t i = 0; i < programs.size(); i += every) {
    samples.insert(samples.end(), programs[i].begin(), programs[i].end());
    sizes.push_back(programs[i].size());
  }
  std::size_t total = 0;
  const double seconds = seconds_of([&] {
    if (with_dictionary) {
      dictionary.resize(112u << 10);
      const std::size_t size = ZDICT_trainFromBuffer(dictionary.data(), dictionary.size(), samples.data(), sizes.data(),
                                                     static_cast<unsigned>(sizes.size()));
      dictionary.resize(ZDICT_isError(size) != 0 ? 0 : size);
    }
    ZSTD_CCtx* context = ZSTD_createCCtx();
    ZSTD_CDict* tables = ZSTD_createCDict(dictionary.data(), dictionary.size(), level);
    for (const Bytes& program : programs) {
      out.resize(ZSTD_compressBound(program.size()));
      total += ZSTD_compress_usingCDict(context, out.data(), out.size(), program.data(), program.size(), tables);
    }
    ZSTD_freeCDict(tables);
    ZSTD_freeCCtx(context);
  });
  const std::string what = "zstd -" + std::to_string(level) + ", each by itself" +
                           (!with_dictionary     ? ""
                            : dictionary.empty() ? ", none trained"
                                                 : ", dictionary");
  print(what.c_str(), total + dictionary.size(), seconds, raw);
}

bool same(const Program& a, const Program& b, Parts& parts) {
  const Image x = to_image(a, parts), y = to_image(b, parts);
  return x.counts == y.counts && x.structure == y.structure && x.words == y.words;
}

bool load_all(const Store& store, const std::vector<Program>& programs, const std::vector<std::size_t>& order,
              Samples& samples) {
  Program program;
  Parts parts;
  std::string error;
  for (const std::size_t id : order) {
    bool good = false;
    samples.seconds.push_back(seconds_of([&] { good = store.get(id, program, error); }));
    if (!good || !same(program, programs[id], parts)) {
      std::fprintf(stderr, "store_bench: program %zu came back wrong: %s\n", id, error.c_str());
      return false;
    }
  }
  return true;
}

unsigned long long number(std::uint64_t value) { return value; }

bool put_all(Store& store, const std::vector<Program>& programs, double raw) {
  Samples puts;
  std::string error;
  double seconds = 0;
  for (std::size_t i = 0; i < programs.size(); ++i) {
    bool good = false;
    puts.seconds.push_back(seconds_of([&] { good = store.put(i, programs[i], error); }));
    seconds += puts.seconds.back();
    if (!good) {
      std::fprintf(stderr, "store_bench: program %zu: %s\n", i, error.c_str());
      return false;
    }
  }
  seconds += seconds_of([&] { store.compress(); });
  const Statistics all = store.statistics();
  print("store", all.compressed, seconds, raw);
  std::printf("  put: %.0f us median, %.0f us at most\n", puts.part(0.5), puts.part(1));
  std::printf("  %llu unique, %llu families, %llu bases, %llu whole, %llu dictionaries\n", number(all.unique),
              number(all.families), number(all.bases), number(all.whole), number(all.dictionaries));
  std::printf("  bytes: raw %llu, deduplicated %llu, compressed %llu, hot %llu, resident %llu\n", number(all.raw),
              number(all.deduplicated), number(all.compressed), number(all.hot), number(all.resident));
  return true;
}

bool get_all(Store& store, const std::vector<Program>& programs) {
  Bytes file;
  std::string error;
  const double saved = seconds_of([&] { store.save(file); });
  std::unique_ptr<Store> again, cold;
  const double opened = seconds_of([&] { again = Store::open(file, error); });
  Options nothing_hot;
  nothing_hot.hot_bytes = 0;
  cold = Store::open(file, error, nothing_hot);
  if (again == nullptr || cold == nullptr || !error.empty()) {
    std::fprintf(stderr, "store_bench: the file: %s\n", error.c_str());
    return false;
  }
  std::printf("  file: %zu bytes, written in %.1f ms, opened in %.1f ms\n", file.size(), saved * 1e3, opened * 1e3);
  Samples in_order, at_random, not_hot;
  std::vector<std::size_t> ids(programs.size());
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = i;
  if (!load_all(store, programs, ids, in_order)) return false;
  std::shuffle(ids.begin(), ids.end(), std::mt19937(1));
  if (!load_all(*again, programs, ids, at_random) || !load_all(*cold, programs, ids, not_hot)) return false;
  std::printf("  load: in order %.1f us median (95%%: %.1f), at random %.1f (%.1f), with nothing hot %.1f (%.1f)\n",
              in_order.part(0.5), in_order.part(0.95), at_random.part(0.5), at_random.part(0.95), not_hot.part(0.5),
              not_hot.part(0.95));
  return true;
}

bool bench(const std::vector<Program>& programs, bool slow) {
  const std::vector<Bytes> bytes = plain_bytes(programs);
  double raw = 0, words = 0;
  for (const Bytes& program : bytes) raw += static_cast<double>(program.size());
  for (const Program& program : programs) words += static_cast<double>(program.words.size()) * 8;
  std::printf("%zu programs, %.1f MB, of them %.1f MB of parameters\n", programs.size(), raw / 1e6, words / 1e6);
  Store store;
  if (!put_all(store, programs, raw) || !get_all(store, programs)) return false;
  for (const int level : {3, 19}) {
    if (level == 19 && !slow) continue;
    zstd_together(bytes, level, raw);
    zstd_each(bytes, level, false, raw);
    zstd_each(bytes, level, true, raw);
  }
  return true;
}

}  // namespace
}  // namespace grape::store

int main(int argc, char** argv) {
  std::vector<grape::program::StreamRegion> regions;
  std::string error;
  if (argc < 2 || !grape::program::read_stream(argv[1], regions, error, grape::program::RegionEnd::kAtTheNextMark)) {
    std::fprintf(stderr, "usage: store_bench STREAM [19]  %s\n", error.c_str());
    return 2;
  }
  std::vector<grape::program::Program> programs;
  for (auto& region : regions) {
    find_random_state(region.record);
    programs.push_back(symbolise(std::move(region.record)));
  }
  regions.clear();
  return grape::store::bench(programs, argc > 2) ? 0 : 1;
}
