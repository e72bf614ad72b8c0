// Building and taking apart traces in tests.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "compressor/trace/chunk.h"
#include "compressor/trace/event.h"
#include "compressor/trace/reader.h"
#include "compressor/trace/writer.h"

namespace grape::trace {

class MemorySink : public Sink {
 public:
  bool write(const std::uint8_t* data, std::size_t size) override {
    if (bytes.size() + size > capacity) return false;
    bytes.insert(bytes.end(), data, data + size);
    return true;
  }
  Bytes bytes;
  std::size_t capacity = SIZE_MAX;
};

// An event that owns its memory.
struct OwnedEvent {
  std::uint32_t thread = 1;
  EventHeader header{};
  std::vector<std::uint64_t> words;

  // As the recorder lays it out.
  std::vector<std::uint64_t> flat() const;
  bool same_content(const OwnedEvent& other) const;  // all but the times
};

OwnedEvent make_event(EventKind kind, std::vector<std::uint64_t> words, std::uint32_t key = 0, std::uint16_t flags = 0);
std::vector<std::uint64_t> with_texts(std::vector<std::uint64_t> words, std::initializer_list<std::string> texts);
OwnedEvent define_function(std::uint32_t id, const std::string& name, std::uint64_t handle);
OwnedEvent define_code(std::uint32_t id, const std::string& file, const std::string& name);
OwnedEvent define_frame(std::uint32_t id, std::uint32_t parent, std::uint32_t code, std::uint32_t line);
OwnedEvent define_native_frame(std::uint32_t id, std::uint32_t parent, std::uint64_t offset);
OwnedEvent define_scope(std::uint32_t id, const std::string& name, std::uint64_t address);
OwnedEvent launch(std::uint32_t function, std::uint32_t frame, const std::vector<std::uint64_t>& parameters);

Meta test_meta();

// Writes the events in their order, which must ascend in sequence per thread; a chunk per thread and `chunk_events`.
Bytes write_trace(const std::vector<OwnedEvent>& events, std::size_t chunk_events = 1000, bool with_end = true);

std::vector<OwnedEvent> read_all(Reader& reader);

// One or two events of every kind, by two threads, with definitions and stacks.
std::vector<OwnedEvent> every_kind();

struct ChunkPlace {
  std::size_t offset;
  ChunkHeader header;
};
// The chunks of a good file.
std::vector<ChunkPlace> chunks_of(const Bytes& file);

// A file header, for traces that are put together by hand.
Bytes file_start(std::uint16_t major = kFormatMajor, std::uint16_t minor = kFormatMinor);

// Appends a chunk with right checksums, its columns not compressed, whatever they hold. Of `header` all but sizes and
// checksums is taken as it is.
void append_chunk(Bytes& file, ChunkHeader header, const std::vector<Bytes>& columns);

// The same trace with columns that are not compressed, so that its bytes can be changed one by one.
Bytes without_compression(const Bytes& file);

// Makes marker, lengths and checksums of all chunks right again after bytes were changed, as far as bytes reach.
Bytes with_right_checksums(Bytes file);

}  // namespace grape::trace
