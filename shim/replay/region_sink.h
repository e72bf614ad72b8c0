// Collects what one thread does while a call of a region is observed, and makes a program::RegionRecord of it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compressor/program/record.h"
#include "compressor/trace/event.h"

namespace grape::replay {

// Copies of the thread's events (compressor/trace/event.h), as ThreadLog::commit() publishes them, definitions too. One
// thread; grows as needed up to a cap (64 MiB), then is overfull and the call is not used.
class RegionSink {
 public:
  void begin() noexcept;  // snapshots LiveBlocks
  void append(const trace::EventHeader& event) noexcept;
  // With the events of this call: null and a reason (one line for a user, naming the driver call and, where known, the
  // Python frame id) if the call did what no program can hold: a read by the host, a wait of the host, an allocation of
  // the driver, a host function, a graph of the application's, a capture, a call that failed, an unknown call...
  struct Result {
    std::unique_ptr<program::RegionRecord> record;
    std::string reason;
    std::uint32_t frame = 0;
  };
  Result end() noexcept;
};

}  // namespace grape::replay
