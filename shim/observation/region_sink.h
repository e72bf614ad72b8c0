// Collects the driver calls of one observed call of a region, and makes a program::RegionRecord of them.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "compressor/program/record.h"
#include "compressor/refusal/refusal.h"
#include "shim/driver/unhandled.h"
#include "shim/observation/call_scope.h"
#include "shim/record/thread_log.h"

namespace grape::observation {

// What was collected of a call.
struct RegionEvents {
  const std::uint8_t* data = nullptr;  // events back to back
  std::size_t bytes = 0;
  record::ThreadLog* log = nullptr;                     // of the thread that began
  std::vector<program::FunctionInfo> shared_functions;  // that attached threads launched
  std::vector<program::Extent> stacks;                  // of the call's threads
  std::vector<program::LiveBlock> before;               // device memory alive at the begin
  std::vector<program::Extent> segments;                // device memory from the driver, at the end
  std::vector<program::LiveBlock> host;                 // memory that the host may change at any time
  std::vector<program::HostWord> library;               // memory of the host that a library keeps, at the begin
  std::uint64_t context = 0;                            // of the work
  std::uint64_t began_context = 0;                      // current at the begin
  std::uint64_t ended_context = 0;                      // current at the end
  std::uint64_t serial = 0;                             // LiveBlocks::last_serial() at the begin

  // What the call's threads know of a function; false: nothing any more.
  bool function(std::uint32_t id, program::FunctionInfo& out) const;
};

// Copies of the call's events (compressor/trace/event.h), as ThreadLog::commit() publishes them, definitions too: those
// of the thread that begins, and of the threads that are attached to its CallScope. While it collects, they are
// recorded, whether there is a trace or not. Grows as needed up to a cap (64 MiB), then is overfull and the call is not
// used. Its memory is kept from call to call.
class RegionSink final : CallScope::Follower {
 public:
  RegionSink() noexcept;
  ~RegionSink();  // on the thread that began; stops collecting

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
    // Python frame id of the call that `refusal` names, in the definitions of the thread that began; 0 unknown.
    std::uint32_t frame = 0;
    bool again = false;   // this observation does not count (streams were made, ...): the next may be clean
    bool loaded = false;  // kernels were loaded: a first call, or one of a new shape, which may do more than the next
    // Memory of the driver or streams were made or given up, as libraries do once. Such a call may be the first of two
    // that prove a program, not the second.
    refusal::Refusal set_up;
    std::uint32_t set_up_frame = 0;
  };
  Result end() noexcept;
  // What the thread does from here on is not the call's, or is again. On the thread that began.
  void set_outside(bool outside) noexcept;
  // It is the call's as long as `still` says so, which is asked at each event, on that thread.
  void set_inside_while(bool (*still)(const void*), const void* of) noexcept;
  // Stops collecting, without a result. Nothing if it does not collect.
  void cancel() noexcept;

 private:
  friend void note_stream_sync() noexcept;
  friend void note_host_copy(std::uint64_t source, std::uint64_t bytes) noexcept;
  friend void note_block_serial(std::uint64_t serial) noexcept;
  static RegionSink* of_thread() noexcept;

  bool attached() noexcept override;
  void detached() noexcept override;
  void note_stack() noexcept;
  void take_event(const trace::EventHeader& event) noexcept;
  void take_of_attached(const trace::EventHeader& event) noexcept;
  void note_thread_and_context() noexcept;
  bool follows_own_event() noexcept;
  std::uint32_t shared_id(std::uint32_t function);

  record::EventSink sink_;
  std::mutex mutex_;                       // held while something is appended
  CallScope* call_ = nullptr;              // null: one thread works for the call, and no other ever will
  record::ThreadLog* last_log_ = nullptr;  // of the thread whose event came last
  std::uint64_t last_context_ = 0;         // in which that was
  bool outside_ = false;
  bool interrupted_ = false;  // an attached thread worked for others, or two threads worked for the call at a time
  bool (*still_inside_)(const void*) = nullptr;
  const void* inside_of_ = nullptr;
  std::size_t noted_ = 0;  // up to here what the host read was kept
  RegionEvents events_;
  driver::UnhandledCounts unhandled_{};  // before
  bool complete_ = false;
};

// The thread has waited for a stream: what it read of device memory before is there, and kept with its events.
void note_stream_sync() noexcept;

// The thread has copied ordinary memory of the host's to the device, or what may be that: its bytes are kept with its
// events.
void note_host_copy(std::uint64_t source, std::uint64_t bytes) noexcept;

// The serial of the block whose event this thread has just recorded, if its events are collected.
void note_block_serial(std::uint64_t serial) noexcept;

}  // namespace grape::observation
