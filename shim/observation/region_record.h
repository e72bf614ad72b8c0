// Converts the events of one region call to a program::RegionRecord, or refuses it. Asks the driver and the thread's
// state through callbacks only.
#pragma once

#include <cstdint>
#include <vector>

#include "shim/observation/region_sink.h"
#include "shim/record/api_table.h"

namespace grape::replay {

// The kind of a serial's note in a sink: one word, the serial of the block whose event stands before it.
constexpr trace::EventKind kSerialNote = trace::EventKind::kNone;

// The kind of a value's note: the words that the host has read, after the wait for them; in the order of the reads.
constexpr trace::EventKind kValueNote = static_cast<trace::EventKind>(0x7fff);
constexpr std::uint64_t kMostValueBytes = 4096;  // more is not kept

// The kind of a note behind a copy from the host: the bytes that it had there.
constexpr trace::EventKind kHostDataNote = static_cast<trace::EventKind>(0x7ffe);
constexpr std::uint64_t kMostHostData = std::uint64_t{64} << 10;        // of one copy; more is not kept
constexpr std::uint64_t kMostHostDataInAll = std::uint64_t{256} << 10;  // of one call

// The kind of a context's note: one word, the context in which the events behind it were.
constexpr trace::EventKind kContextNote = static_cast<trace::EventKind>(0x7ffd);

struct RegionEvents {
  const std::uint8_t* data = nullptr;  // events back to back, as a RegionSink has them
  std::size_t bytes = 0;
  const record::ApiTable* apis = nullptr;
  std::vector<program::LiveBlock> before;  // device memory alive at the begin
  std::vector<program::Extent> segments;   // device memory from the driver, at the end
  std::vector<program::LiveBlock> host;    // memory that the host may change at any time
  std::uint64_t context = 0;               // of the work
  std::uint64_t began_context = 0;         // current at the begin
  std::uint64_t ended_context = 0;         // current at the end
  std::uint64_t serial = 0;                // LiveBlocks::last_serial() at the begin

  // What the thread knows of a function; false: nothing any more.
  bool (*function)(std::uint32_t id, program::FunctionInfo& out, void* user) = nullptr;
  // A stream that is no default stream; false: the driver does not know it.
  struct Stream {
    bool non_blocking = false;
    std::uint64_t context = 0;
    std::uint64_t serial = 0;  // 0: not known
  };
  bool (*stream)(std::uint64_t handle, Stream& out) = nullptr;
  // An event as it is at the end; false: nobody saw it made.
  struct Event {
    std::uint64_t serial = 0;
    std::uint32_t flags = 0;  // of cuEventCreate
  };
  bool (*event)(std::uint64_t handle, Event& out) = nullptr;
  void* user = nullptr;
};

// May throw std::bad_alloc.
RegionSink::Result make_region_record(RegionEvents events);

}  // namespace grape::replay
