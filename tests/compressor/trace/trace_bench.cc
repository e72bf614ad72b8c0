// trace_bench STREAM.bin.gz [CHUNK_MIB]: sizes and speeds of the trace format on a probe stream, next to plain zstd of
// the raw bytes. Speeds are by CPU time.
#include <zstd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "compressor/trace/event_decoder.h"
#include "tests/compressor/trace/convert_stream.h"
#include "tests/compressor/trace/trace_builder.h"

namespace grape::trace {
namespace {

// CPU time of this thread, so that what else runs on the machine does not count.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

void print_columns(const Bytes& file) {
  static const char* const kNames[] = {"ops",   "jumps",   "shapes",    "literals",  "gaps",      "classes", "deltas",
                                       "words", "recalls", "sequences", "intervals", "durations", "overflow"};
  std::uint64_t raw[kColumns] = {}, stored[kColumns] = {}, other = 0;
  for (const ChunkPlace& chunk : chunks_of(file)) {
    const std::size_t body = chunk.offset + kChunkHeaderBytes;
    ByteCursor cursor(file.data() + body, chunk.header.stored);
    const std::uint64_t count = cursor.varint();
    const bool events = chunk.header.type == static_cast<std::uint16_t>(ChunkType::kEvents);
    other += kChunkHeaderBytes + (events ? 0 : chunk.header.stored);
    for (std::uint64_t i = 0; i < count && events; ++i) {
      const std::uint64_t column_raw = cursor.varint(), column_stored = cursor.varint();
      if (i >= kColumns) continue;
      raw[i] += column_raw;
      stored[i] += column_stored;
    }
  }
  for (std::size_t i = 0; i < kColumns; ++i) {
    std::printf("  %-10s %9llu -> %8llu\n", kNames[i], static_cast<unsigned long long>(raw[i]),
                static_cast<unsigned long long>(stored[i]));
  }
  std::printf("  %-10s              %8llu\n", "other", static_cast<unsigned long long>(other));
}

void print_plain_zstd(const Bytes& stream, int level) {
  Bytes out(ZSTD_compressBound(stream.size()));
  const double begin = cpu_seconds();
  const std::size_t size = ZSTD_compress(out.data(), out.size(), stream.data(), stream.size(), level);
  const double seconds = cpu_seconds() - begin;
  std::printf("plain zstd -%-2d       %10zu bytes, %6.0f MB/s in\n", level, size,
              static_cast<double>(stream.size()) / 1e6 / seconds);
}

int bench(int argc, char** argv) {
  Bytes stream;
  std::string message;
  if (argc < 2 || !read_gzip(argv[1], stream, message)) {
    std::fprintf(stderr, "usage: trace_bench STREAM.bin.gz [CHUNK_MIB]  %s\n", message.c_str());
    return 2;
  }
  ConvertOptions options;
  if (argc > 2) options.chunk_bytes = std::strtoul(argv[2], nullptr, 10) << 20;
  MemorySink sink;
  ConvertCounts counts;
  if (!convert_stream(stream, options, sink, counts, message)) {
    std::fprintf(stderr, "trace_bench: %s\n", message.c_str());
    return 1;
  }
  const double megabytes = static_cast<double>(counts.event_bytes) / 1e6;
  std::printf("stream               %10zu bytes, %llu events, %llu launches\n", stream.size(),
              static_cast<unsigned long long>(counts.events), static_cast<unsigned long long>(counts.launches));
  std::printf("trace                %10zu bytes, %6.0f MB/s in (%.0f ns an event)\n", sink.bytes.size(),
              megabytes / counts.encode_seconds, counts.encode_seconds * 1e9 / static_cast<double>(counts.events));
  const double begin = cpu_seconds();
  Error error;
  auto reader = Reader::from_bytes(sink.bytes, error);
  EventView view;
  std::uint32_t thread = 0;
  std::uint64_t events = 0;
  while (reader != nullptr && reader->next(view, thread)) ++events;
  const double seconds = cpu_seconds() - begin;
  std::printf("read back            %10llu events, %6.0f MB/s out, %.3f s\n", static_cast<unsigned long long>(events),
              megabytes / seconds, seconds);
  print_columns(sink.bytes);
  print_plain_zstd(stream, 3);
  if (argc > 3) print_plain_zstd(stream, 19);  // minutes on a large stream: any third argument asks for it
  return reader != nullptr && reader->complete() && events == counts.events ? 0 : 1;
}

}  // namespace
}  // namespace grape::trace

int main(int argc, char** argv) { return grape::trace::bench(argc, argv); }
