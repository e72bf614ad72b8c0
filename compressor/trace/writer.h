// Writing a trace (format: docs/FORMAT.md). Used by the recorder's writer thread, by converters and by tests.
// May throw std::bad_alloc; nothing else. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compressor/trace/chunk.h"
#include "compressor/trace/event_encoder.h"
#include "compressor/trace/meta.h"

namespace grape::trace {

// Where encoded bytes go. write() is all or nothing from the caller's view: false means that the trace ends here
// (disk full, EIO, a file size limit); it is not called again after that.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual bool write(const std::uint8_t* data, std::size_t bytes) = 0;
};

class Writer {
 public:
  // Writes the file header and the meta chunk, in one piece. `sink` must outlive the writer.
  Writer(Sink& sink, const Meta& meta);
  bool ok() const { return ok_; }  // false after the first failed write; every later call does nothing, returning false

  // Writes the encoder's events as one chunk of thread `thread` (the writer's own dense numbering from 1; os_thread is
  // its kernel thread id) and empties the encoder. No events: nothing is written.
  bool write_events(std::uint32_t thread, std::uint32_t os_thread, EventEncoder& encoder);
  bool write_end(const End& end);
  std::uint64_t bytes_written() const { return bytes_; }
  std::uint64_t events_written() const { return events_; }

 private:
  bool write_chunk(ChunkHeader& header, const std::vector<const Bytes*>& columns, const std::vector<int>& levels);
  bool write_fields(ChunkType type, const Bytes& fields);

  Sink& sink_;
  bool ok_ = true;
  std::uint64_t ticks_per_second_;
  std::uint64_t bytes_ = 0, events_ = 0;
  ColumnPacker packer_;
  Bytes body_;
};

}  // namespace grape::trace
