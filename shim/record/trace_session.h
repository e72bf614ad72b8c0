// The state of the writer thread for one trace. It gathers the threads' events into chunks, and decides when chunks go
// to the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "compressor/trace/writer.h"
#include "shim/record/trace_file.h"

namespace grape::record {

class Recorder;

// May throw std::bad_alloc.
class TraceSession {
 public:
  explicit TraceSession(Recorder& recorder) : recorder_(recorder) {}

  // Takes a copy of an event. `slot` is where the thread's encoder is kept between calls (null at first).
  void add(std::uint32_t thread, std::uint32_t os_thread, void*& slot, const trace::EventHeader& event);
  // The thread is gone: writes what is left of it and frees its encoder.
  void close_thread(void*& slot);
  // Writes the chunks that are due: large, or old, or (with `all`) every one.
  void flush(bool all);
  // Writes the end chunk and closes the file.
  void close();
  bool ok() const { return !failed_; }

 private:
  struct Thread {
    std::uint32_t number = 0, os_thread = 0;
    trace::EventEncoder encoder;
    std::uint64_t first_nanoseconds = 0;  // when the oldest event of the chunk was taken
  };
  bool open();
  void write(Thread& thread);
  void fail();

  Recorder& recorder_;
  TraceFile file_;
  std::unique_ptr<trace::Writer> writer_;  // null until there is something to write
  std::vector<std::unique_ptr<Thread>> threads_;
  bool failed_ = false;
  bool closed_ = false;
  std::uint64_t launches_ = 0, calls_ = 0, regions_ = 0;
  std::uint64_t held_bytes_ = 0;
};

}  // namespace grape::record
