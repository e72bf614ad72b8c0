// Converts the events of one region call to a program::RegionRecord, or refuses it. Asks the driver and the thread's
// state through callbacks only.
#pragma once

#include <cstdint>
#include <vector>

#include "shim/observation/region_sink.h"
#include "shim/record/api_table.h"

namespace grape::observation {

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

// The kind of a thread's note: one word, 1 where the events behind it are an attached thread's, 0 where they are those
// of the thread that makes the call.
constexpr trace::EventKind kThreadNote = static_cast<trace::EventKind>(0x7ffc);

// The kind of a note where the work of the call is interrupted by work that is not the call's, on the same thread, and
// where it goes on: one word, 1 or 0. Events in between are left out, but for definitions and the ends of blocks.
constexpr trace::EventKind kOutsideNote = static_cast<trace::EventKind>(0x7ffb);

// The driver's calls, as events name them. Never destroyed.
const record::ApiTable& driver_calls();

// `events.before` is used up. May throw std::bad_alloc.
RegionSink::Result make_region_record(RegionEvents& events);

}  // namespace grape::observation
