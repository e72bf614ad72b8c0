// make_store_corpus FOLDER: the seeds of the fuzzer's corpus.
#include <cstdio>
#include <fstream>
#include <string>

#include "compressor/store/parts.h"
#include "compressor/store/record.h"
#include "compressor/store/store.h"
#include "tests/compressor/store/programs.h"

namespace grape::store {
namespace {

bool save(const std::string& path, const Bytes& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return file.good();
}

Bytes file_of(std::uint64_t programs, std::size_t nodes, std::size_t dictionary_after) {
  Options options;
  options.dictionary_after = dictionary_after;
  Store store(options);
  std::string error;
  for (std::uint64_t i = 0; i < programs; ++i) {
    store.put(i, relative_of(made_program(i % 2, nodes), i), error);
    if (i % 3 == 0) store.put(100 + i, relative_of(made_program(i % 2, nodes), i), error);
    if (i % 4 == 0 && nodes > 0)
      store.put(200 + i, with_node_inserted(relative_of(made_program(i % 2, nodes), i)), error);
  }
  Bytes file;
  store.save(file);
  return file;
}

bool make(const std::string& folder) {
  Parts parts;
  const program::Program base = made_program(2, 6);
  const Image image = to_image(base, parts);
  Bytes whole, equal_counts, other_counts;
  put_image(image, whole);
  const Image near = to_image(relative_of(base, 5), parts), longer = to_image(with_node_inserted(base), parts);
  encode_difference(image, fit(image, near), near, equal_counts);
  encode_difference(image, fit(image, longer), longer, other_counts);
  bool good = save(folder + "/image", whole) && save(folder + "/difference", equal_counts);
  good = good && save(folder + "/difference_longer", other_counts);
  good = good && save(folder + "/empty", file_of(0, 0, 8)) && save(folder + "/tiny", file_of(1, 0, 8));
  return good && save(folder + "/few", file_of(3, 2, 8)) && save(folder + "/dictionary", file_of(20, 6, 8));
}

}  // namespace
}  // namespace grape::store

int main(int argc, char** argv) {
  if (argc != 2 || !grape::store::make(argv[1])) {
    std::fprintf(stderr, "usage: make_store_corpus FOLDER (which must exist)\n");
    return 2;
  }
  return 0;
}
