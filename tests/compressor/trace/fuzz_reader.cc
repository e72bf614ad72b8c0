// Fuzzing of the trace reader: any bytes must be refused, or read as events that are well-formed. The input is read
// three times: as it is; with checksums made right, so that changes reach what is behind them; and as the columns of
// one chunk, so that they reach the event decoder.
#include <cstdint>
#include <cstdlib>

#include "compressor/trace/history.h"
#include "compressor/trace/reader.h"
#include "tests/compressor/trace/trace_builder.h"

namespace grape::trace {
namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check_tables(const Tables& tables) {
  for (std::size_t i = 1; i < tables.frames.size(); ++i) {
    require(tables.frames[i].parent < i);
    require(tables.frames[i].code < tables.codes.size());
  }
  for (std::size_t i = 1; i < tables.native_frames.size(); ++i) require(tables.native_frames[i].parent < i);
}

void check_launch(const LaunchView& launch, const Tables& tables) {
  require(launch.function() < tables.functions.size());
  require(launch.frame() < tables.frames.size());
  require(launch.native_frame() < tables.native_frames.size());
  const auto* end = reinterpret_cast<const std::uint8_t*>(launch.words() + launch.word_count());
  require(launch.attribute_count() <= kMaxEventBytes && launch.parameter_bytes() <= kMaxEventBytes);
  require(launch.parameters() + launch.parameter_bytes() <= end);
}

void read(Bytes bytes) {
  const std::size_t size = bytes.size();
  Error error;
  auto reader = Reader::from_bytes(std::move(bytes), error);
  if (reader == nullptr) {
    require(static_cast<bool>(error) && error.offset <= size);
    return;
  }
  EventView view;
  std::uint32_t thread = 0;
  std::uint64_t sequence = 0, content = 0;
  while (reader->next(view, thread)) {
    require(view.header->bytes >= sizeof(EventHeader) && view.header->bytes <= kMaxEventBytes);
    require(view.header->sequence >= sequence);
    sequence = view.header->sequence;
    for (std::size_t i = 0; i < view.word_count(); ++i) content += view.words()[i];
    if (view.header->kind == EventKind::kLaunch) check_launch(LaunchView(view), reader->tables());
  }
  require(reader->damage().offset <= size);
  check_tables(reader->tables());
  volatile std::uint64_t use = content;
  (void)use;
}

// The input's first bytes say how it is divided into columns.
Bytes as_columns(const std::uint8_t* data, std::size_t size) {
  ByteCursor cursor(data, size);
  Bytes file = write_trace({}, 1, false);
  ChunkHeader header;
  header.type = static_cast<std::uint16_t>(ChunkType::kEvents);
  header.thread = 1;
  header.first_sequence = 1;
  header.events = cursor.fixed<std::uint16_t>();
  header.last_sequence = header.events + cursor.fixed<std::uint16_t>();
  header.event_bytes = cursor.fixed<std::uint32_t>() % (1u << 20);
  std::vector<Bytes> columns(kColumns);
  for (Bytes& column : columns) {
    const std::size_t bytes = std::min<std::size_t>(cursor.fixed<std::uint16_t>(), cursor.left());
    const std::uint8_t* from = cursor.take(bytes);
    if (from != nullptr) column.assign(from, from + bytes);
  }
  append_chunk(file, header, columns);
  return file;
}

}  // namespace
}  // namespace grape::trace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const grape::trace::Bytes input(data, data + size);
  grape::trace::read(input);
  grape::trace::read(grape::trace::with_right_checksums(input));
  grape::trace::read(grape::trace::as_columns(data, size));
  return 0;
}
