// What a trace says about itself: the process it came from, the driver's call table, and how it ended.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace grape::trace {

// What a driver call does, as far as views and the graph builder must know.
enum class ApiClass : std::uint8_t {
  kOther = 0,
  kLaunch,
  kHostFunction,  // cuLaunchHostFunc, cuStreamAddCallback
  kCopy,          // device to device, or of unknown direction
  kCopyToDevice,  // host to device
  kCopyToHost,    // device to host: a host read
  kMemset,
  kEventRecord,
  kEventWait,   // cuStreamWaitEvent
  kStreamSync,  // the host waits for a stream, event, context: a host read point
  kQuery,       // cuStreamQuery, cuEventQuery: the host looks, without waiting
  kMemoryOp,    // cuStreamWriteValue, WaitValue, BatchMemOp
  kAlloc,
  kFree,
  kStream,  // create, destroy, attributes
  kEvent,   // create, destroy
  kModule,  // modules, libraries, kernels, functions
  kGraph,   // create, add, capture, instantiate, update, set parameters, destroy
  kGraphLaunch,
  kContext,
  kTensorMap,
};

// One wrapped driver function. `arguments` names them in order, comma-separated, with a kind after a colon:
// u unsigned, i signed, f float, d device pointer, h host pointer, s stream, e event, x opaque handle,
// t text (in the blob), b struct (in the blob), o out handle (its value after the call, 0 if it failed).
// Names that views rely on: dst, src, bytes, value, width, height, stream, event, exec, graph, ptr.
// Example: "dst:d,src:h,bytes:u,stream:s".
struct ApiInfo {
  std::string symbol;  // as exported by the driver: "cuMemcpyHtoDAsync_v2", "cuLaunchKernel_ptsz"
  ApiClass api_class = ApiClass::kOther;
  std::string arguments;
};

struct Meta {
  std::uint64_t ticks_per_second = 0;  // of EventHeader::ticks; refined at the end, see End
  std::uint64_t start_ticks = 0;       // ticks at start_unix_ns
  std::uint64_t start_unix_ns = 0;
  std::uint32_t pid = 0;
  std::string host;
  std::string command;  // argv joined by spaces, control characters escaped
  std::string grape_version;
  std::string python_version;       // "" where there is no Python (or it was not known yet)
  std::int32_t driver_version = 0;  // as cuDriverGetVersion gives it: 13000
  // Recorded only between calls of cuProfilerStart and cuProfilerStop: what happened from a stop to the next start is
  // not known, but for the making of graphs.
  bool ranges = false;
  std::vector<ApiInfo> apis;  // api id N is apis[N - 1]
};

struct NamedCount {
  std::string name;
  std::uint64_t count = 0;
};

// The last chunk of a trace that was closed in order. A trace without it is "incomplete".
struct End {
  std::uint64_t events = 0;            // written
  std::uint64_t lost = 0;              // dropped because buffers were full
  std::uint64_t ticks_per_second = 0;  // measured over the whole run
  std::vector<NamedCount> unhandled;   // driver functions that were called but are not wrapped
  std::vector<std::string> notices;    // what the library had to say ("no block-level allocator events", ...)
};

}  // namespace grape::trace
