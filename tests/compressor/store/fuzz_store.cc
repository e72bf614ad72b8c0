// Fuzzing of the store's file: any bytes must be refused, or read as programs that do not contradict themselves. The
// input is read three times: as it is; with checksums made right, so that changes reach what is behind them; and as
// the bytes of an image and of a difference, so that they get past zstd.
#include <cstdint>
#include <cstdlib>

#include "compressor/store/parts.h"
#include "compressor/store/record.h"
#include "compressor/store/store.h"
#include "tests/compressor/store/programs.h"
#include "tests/compressor/store/store_file.h"

namespace grape::store {
namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void read_all(const Bytes& file) {
  std::string error;
  const auto store = Store::open(file, error);
  if (store == nullptr) {
    require(!error.empty());
    return;
  }
  program::Program program;
  std::vector<std::uint64_t> sound;
  for (const std::uint64_t id : store->ids()) {
    if (!store->get(id, program, error)) {
      require(!error.empty() && program.words.empty());
      continue;
    }
    require(check(program, error));
    sound.push_back(id);
  }
  const program::Program more = made_program(3, 4);
  if (!store->contains(77)) require(store->put(77, more, error));
  Bytes saved;
  store->save(saved);
  std::string none;
  const auto again = Store::open(saved, none);
  require(again != nullptr);
  for (const std::uint64_t id : sound) require(again->get(id, program, none));
}

void read_cells(const Bytes& bytes) {
  Parts parts;
  static const program::Program kBase = made_program(2, 6);
  const Image base = to_image(kBase, parts);
  const auto snapshot = parts.snapshot();
  program::Program program;
  std::string error;
  Counts counts{};
  std::vector<std::uint64_t> structure;
  if (apply_difference(base, bytes, counts, structure, program.words)) {
    if (from_structure(counts, structure, snapshot->names, snapshot->layouts, program, error)) {
      require(check(program, error));
    }
  }
  Image image;
  if (!take_image(bytes, image)) return;
  shape_of(image);
  sketch_of(image);
  program.words = image.words;
  if (from_structure(image.counts, image.structure, snapshot->names, snapshot->layouts, program, error)) {
    require(check(program, error));
  }
}

}  // namespace
}  // namespace grape::store

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  grape::store::Bytes bytes(data, data + size);
  grape::store::read_all(bytes);
  grape::store::read_cells(bytes);
  grape::store::repair_checksums(bytes);
  grape::store::read_all(bytes);
  return 0;
}
