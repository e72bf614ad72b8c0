// convert_stream STREAM.bin.gz OUT.grape [BLOCKS.json]
#include <cstdio>
#include <string>

#include "tests/compressor/trace/convert_stream.h"

namespace {

class FileSink : public grape::trace::Sink {
 public:
  explicit FileSink(const char* path) : file_(std::fopen(path, "wb")) {}
  ~FileSink() override {
    if (file_ != nullptr) std::fclose(file_);
  }
  bool write(const std::uint8_t* data, std::size_t bytes) override {
    return file_ != nullptr && std::fwrite(data, 1, bytes, file_) == bytes;
  }
  bool flush() { return file_ != nullptr && std::fflush(file_) == 0; }

 private:
  std::FILE* file_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 4) {
    std::fprintf(stderr, "usage: convert_stream STREAM.bin.gz OUT.grape [BLOCKS.json]\n");
    return 2;
  }
  grape::trace::ConvertOptions options;
  const std::string path = argv[1];
  options.command = "convert_stream " + path.substr(path.find_last_of('/') + 1);
  grape::trace::ConvertCounts counts;
  std::vector<std::uint8_t> stream;
  std::string error;
  FileSink sink(argv[2]);
  const bool done = (argc < 4 || grape::trace::read_blocks(argv[3], options.blocks, error)) &&
                    grape::trace::read_gzip(path, stream, error) &&
                    grape::trace::convert_stream(stream, options, sink, counts, error);
  if (!done || !sink.flush()) {
    std::fprintf(stderr, "convert_stream: %s\n", done ? "the output cannot be written" : error.c_str());
    return 1;
  }
  std::printf("%llu events, %llu launches, %llu bytes\n", static_cast<unsigned long long>(counts.events),
              static_cast<unsigned long long>(counts.launches), static_cast<unsigned long long>(counts.file_bytes));
  return 0;
}
