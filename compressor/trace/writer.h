// Writing a trace (format: docs/FORMAT.md). Used by the recorder's writer thread, by converters and by tests.
// May throw std::bad_alloc; nothing else. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "compressor/trace/event.h"
#include "compressor/trace/meta.h"

namespace grape::trace {

// Where encoded bytes go. write() is all or nothing from the caller's view: false means that the trace ends here
// (disk full, EIO, a file size limit); it is not called again after that.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual bool write(const std::uint8_t* data, std::size_t bytes) = 0;
};

// Collects a run of one thread's events and codes it as one independent chunk: each event is coded as the difference
// to an earlier event of the same chunk that it resembles.
class ThreadEncoder {
 public:
  ThreadEncoder();
  ~ThreadEncoder();
  ThreadEncoder(ThreadEncoder&&) noexcept;
  ThreadEncoder& operator=(ThreadEncoder&&) noexcept;

  // Copies the event. Precondition: a well-formed event of at most kMaxEventBytes; sequence and ticks ascend.
  void add(const EventHeader& event);
  std::size_t raw_bytes() const;  // bytes of the current chunk's events
  std::size_t memory() const;     // bytes that the encoder holds, about: 2 to 4 times raw_bytes() for a small chunk
  std::size_t events() const;     // events in the current chunk

 private:
  friend class Writer;
  struct State;
  std::unique_ptr<State> state_;
};

// Write a chunk when ThreadEncoder::raw_bytes() reaches this: larger chunks compress better, since each starts anew;
// memory stays below about 32 MiB per busy thread whatever the chunk's size, and goes back when the chunk is written.
// Precondition: never above kMostChunkBytes.
constexpr std::size_t kGoodChunkBytes = 32u << 20;
constexpr std::size_t kMostChunkBytes = 128u << 20;

class Writer {
 public:
  // Writes the file header and the meta chunk, in one piece. `sink` must outlive the writer.
  Writer(Sink& sink, const Meta& meta);
  ~Writer();
  bool ok() const;  // false after the first failed write; every later call does nothing and returns false

  // Writes the encoder's events as one chunk of thread `thread` (the writer's own dense numbering from 1; os_thread is
  // its kernel thread id) and empties the encoder. No events: nothing is written.
  bool write_events(std::uint32_t thread, std::uint32_t os_thread, ThreadEncoder& encoder);
  bool write_end(const End& end);
  std::uint64_t bytes_written() const;
  std::uint64_t events_written() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace grape::trace
