// Collects what one thread does while a call of a region is observed, and makes a program::RegionRecord of it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "compressor/program/record.h"
#include "compressor/refusal/refusal.h"
#include "shim/driver/unhandled.h"
#include "shim/record/thread_log.h"

namespace grape::replay {

// Copies of the thread's events (compressor/trace/event.h), as ThreadLog::commit() publishes them, definitions too.
// While it collects, the thread is recorded, whether there is a trace or not. One thread; grows as needed up to a cap
// (64 MiB), then is overfull and the call is not used. Its memory is kept from call to call.
class RegionSink {
 public:
  RegionSink() noexcept;
  ~RegionSink();  // on the thread that began; stops collecting
  RegionSink(const RegionSink&) = delete;
  RegionSink& operator=(const RegionSink&) = delete;

  // Starts anew; snapshots LiveBlocks. False: this thread cannot be recorded, or another sink collects already; end()
  // then says so. `context`: the one that all of the work must be in; null: the one that is current.
  bool begin(std::uint64_t context = 0) noexcept;

  // With the events of this call: null and a refusal (naming the driver call) if the call did what
  // no program can hold: a read by the host, a wait of the host, an allocation of the driver, a host function, a graph
  // of the application's, a capture, a call that failed, an unknown call... The record has neither inputs nor random
  // state: they are the caller's to add.
  struct Result {
    std::unique_ptr<program::RegionRecord> record;
    refusal::Refusal refusal;
    // Python frame id of the call that `refusal` names, in this thread's definitions; 0 unknown.
    std::uint32_t frame = 0;
    bool again = false;   // this observation does not count (streams were made, ...): the next may be clean
    bool loaded = false;  // kernels were loaded: a first call, or one of a new shape, which may do more than the next
    // Memory of the driver or streams were made or given up, as libraries do once. Such a call may be the first of two
    // that prove a program, not the second.
    refusal::Refusal set_up;
    std::uint32_t set_up_frame = 0;
  };
  Result end() noexcept;
  // Stops collecting, without a result. Nothing if it does not collect.
  void cancel() noexcept;

 private:
  record::EventSink sink_;
  std::vector<program::LiveBlock> before_, host_;
  driver::UnhandledCounts unhandled_{};  // before
  std::uint64_t context_ = 0;            // of the work
  std::uint64_t began_context_ = 0;      // current at the begin
  std::uint64_t serial_ = 0;             // the last one before
  bool complete_ = false;
};

// The thread has waited for a stream: what it read of device memory before is there, and kept with its events.
void note_stream_sync() noexcept;

// The thread has copied ordinary memory of the host's to the device, or what may be that: its bytes are kept with its
// events.
void note_host_copy(std::uint64_t source, std::uint64_t bytes) noexcept;

// The serial of the block whose event this thread has just recorded, if its events are collected.
void note_block_serial(std::uint64_t serial) noexcept;

}  // namespace grape::replay
