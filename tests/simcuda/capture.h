// Stream capture: calls on a stream become nodes of a graph instead of being executed.
#pragma once

#include <memory>
#include <vector>

#include "stream.h"

namespace simcuda {

struct Graph;

struct Capture {
  std::uint64_t id = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  const void* owner = nullptr;  // names the thread that began it
  bool valid = true;
  std::shared_ptr<Graph> graph;
  bool into_existing = false;  // cuStreamBeginCaptureToGraph
  Stream* origin = nullptr;
  std::vector<std::shared_ptr<Stream>> streams;  // the origin and those that joined by events
};

bool captures_active();  // in any stream; cheap

CUresult capture_work(Stream& stream, Work&& work);

// A call that a capture of this stream does not stand: ends the capture as invalid. Returns `error`, or
// CUDA_ERROR_STREAM_CAPTURE_INVALIDATED if it was already.
CUresult invalidate_capture(Stream& stream, CUresult error);

// For work on the legacy stream: CUDA_ERROR_STREAM_CAPTURE_IMPLICIT if it would make a captured blocking stream wait.
CUresult check_implicit_synchronization(Stream& stream);
// For a wait for the whole context: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED if a stream of it is captured.
CUresult check_context_synchronization(Context& context);
// For calls such as cuMemAlloc that a capture in global mode (or a thread's own, in thread-local mode) forbids.
CUresult check_unsafe_call();

// Events in a capture. record: the event stands for what was captured so far. wait: the stream joins.
CUresult capture_event_record(Stream& stream, CUevent handle, const std::shared_ptr<Event>& event, bool external);
CUresult capture_event_wait(Stream& stream, CUevent handle, const std::shared_ptr<Event>& event, bool external);

}  // namespace simcuda
