// make_cache_corpus FOLDER: the seeds of the fuzzer's corpus.
#include <cstdio>
#include <fstream>

#include "tests/compressor/cache/caches.h"

namespace grape::cache {
namespace {

bool write(const std::string& path, const Cache& cache) {
  const std::vector<std::uint8_t> bytes = file_of(cache);
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return file.good();
}

Cache merged() {
  Builder builder("");
  builder.add(made_entry(1, 5000), store::made_program(5, 3), place_text);
  builder.merge(made_cache(4, 3), 1u << 20);
  return builder.take();
}

bool make(const std::string& folder) {
  return write(folder + "/empty", Builder("").take()) && write(folder + "/padding", made_cache(0, 0)) &&
         write(folder + "/one", made_cache(1, 2)) && write(folder + "/few", made_cache(7, 4)) &&
         write(folder + "/merged", merged());
}

}  // namespace
}  // namespace grape::cache

int main(int argc, char** argv) {
  if (argc != 2 || !grape::cache::make(argv[1])) {
    std::fprintf(stderr, "usage: make_cache_corpus FOLDER (which must exist)\n");
    return 2;
  }
  return 0;
}
