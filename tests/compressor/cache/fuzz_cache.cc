// Fuzzing of the cache's file: any bytes must be refused, or read as a cache that can be merged and saved and comes
// back the same. The input is read as it is, and with checksums made right, so that changes reach what is behind them.
#include <cstdlib>

#include "tests/compressor/cache/caches.h"
#include "tests/compressor/store/store_file.h"

namespace grape::cache {
namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void read_all(const std::vector<std::uint8_t>& file) {
  Cache cache, again;
  std::string error;
  if (!open(file, cache, error)) {
    require(!error.empty() && cache.programs == nullptr);
    return;
  }
  for (const Entry& entry : cache.entries) require(cache.programs->contains(entry.id));
  require(open(file_of(cache), again, error));
  require(again.environment == cache.environment && again.places == cache.places);
  require(again.entries.size() == cache.entries.size() && again.padding.size() == cache.padding.size());
  Builder builder("");
  builder.add(made_entry(1, 1), store::made_program(3, 4), place_text);
  builder.merge(cache, 1u << 20);
  const Cache merged = builder.take();
  require(!merged.entries.empty() && merged.entries.size() <= cache.entries.size() + 1);
  require(merged.padding.size() == cache.padding.size());
  Cache last;
  require(open(file_of(merged), last, error) && equal(last, merged));
}

}  // namespace
}  // namespace grape::cache

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::uint8_t> bytes(data, data + size);
  grape::cache::read_all(bytes);
  grape::store::repair_checksums(bytes);
  grape::cache::read_all(bytes);
  return 0;
}
