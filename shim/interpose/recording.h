// The parts that all wrappers share: code positions, captures, and the two shapes of events.
#pragma once

#include <atomic>
#include <cstdint>

#include "compressor/trace/event.h"
#include "compressor/trace/meta.h"
#include "python_hooks/install/install.h"
#include "python_hooks/scopes/positions.h"
#include "shim/driver/captures.h"
#include "shim/driver/driver_api.h"
#include "shim/interpose/capture_arguments.h"
#include "shim/record/thread_log.h"

namespace grape::interpose {

struct Position {
  std::uint32_t frame = 0;
  std::uint32_t native_frame = 0;
};

// Calls of these classes carry the code position that caused them.
constexpr bool has_position(trace::ApiClass api_class) noexcept {
  switch (api_class) {
    case trace::ApiClass::kLaunch:
    case trace::ApiClass::kHostFunction:
    case trace::ApiClass::kCopy:
    case trace::ApiClass::kCopyToDevice:
    case trace::ApiClass::kCopyToHost:
    case trace::ApiClass::kMemset:
    case trace::ApiClass::kMemoryOp:
    case trace::ApiClass::kStreamSync:
    case trace::ApiClass::kAlloc:
    case trace::ApiClass::kGraphLaunch:
      return true;
    default:
      return false;
  }
}

// Joins this thread to its region and reads its position, as the configuration asks. Before an event is begun. errno is
// kept.
extern bool g_native_stacks;  // GRAPE_STACKS=native
std::uint32_t native_frame(record::ThreadLog& log) noexcept;
inline Position current_position(record::ThreadLog& log) noexcept {
  python::install::on_driver_call();
  Position position;
  position.frame = python::scopes::attached_stack(log);
  if (__builtin_expect(g_native_stacks, 0)) position.native_frame = native_frame(log);
  return position;
}

// Once, as soon as the driver answers: its version; and whether PyTorch's allocator can be seen.
void note_environment(trace::ApiClass api_class) noexcept;

// driver::is_capturing(), which is asked only while some capture is active.
inline bool is_captured(CUstream stream, bool per_thread) noexcept {
  if (__builtin_expect(driver::g_captures.load(std::memory_order_relaxed) <= 0, 1)) return false;
  return driver::is_capturing(stream, per_thread);
}

inline std::uint32_t elapsed(std::uint64_t begin) noexcept {
  const std::uint64_t ticks = record::ticks() - begin;
  return ticks < UINT32_MAX ? static_cast<std::uint32_t>(ticks) : UINT32_MAX;
}

constexpr std::uint32_t kMostEntries = 16;  // of one call

// What all calls of a row that launches no kernel have in common.
struct CallKind {
  std::uint32_t row;
  trace::ApiClass api_class;
  bool per_thread;
  std::uint16_t word_count;  // arguments
  std::int16_t stream;       // the argument with the stream that work was put on; -1: none
};

// `early`: the number in the order of all calls is taken now, and not when the event is begun.
record::Stamp stamp_of_call(record::ThreadLog& log, bool early) noexcept;

// A kCall event, behind whatever must be defined first. `words`: one per argument; of an out handle, what it points to.
// `entries`: of a call that succeeded. Keeps errno.
void record_call(record::ThreadLog& log, const CallKind& kind, CUresult result, record::Stamp stamp,
                 const std::uint64_t* words, const BlobEntry* entries, const BlobEntry* entries_end) noexcept;

// What a kernel launch consists of, whichever function launched it.
struct Launch {
  CUfunction function;  // or a CUkernel
  std::uint32_t grid[3];
  std::uint32_t block[3];
  std::uint32_t shared_bytes;
  CUstream stream;
  void* const* parameters;
  void* const* extra;
  const CUlaunchAttribute* attributes = nullptr;
  std::uint32_t attribute_count = 0;
  std::uint16_t flags = 0;
};

// A kLaunch event. errno is kept.
__attribute__((hot)) void record_launch(record::ThreadLog& log, std::uint32_t row, bool per_thread,
                                        const Launch& launch, record::Stamp stamp, std::uint32_t duration) noexcept;
// Of a launch that the driver refused: what it was given is not read. errno is kept.
void record_refused_launch(record::ThreadLog& log, std::uint32_t row, const Launch& launch, CUresult result,
                           record::Stamp stamp, std::uint32_t duration) noexcept;

// The nodes and edges of a graph that has just been instantiated as `exec`.
void record_graph_contents(record::ThreadLog& log, CUgraphExec exec, CUgraph graph) noexcept;

// In what the real cuGetProcAddress found, exchanges driver functions for their wrappers. `ask` is that real function.
using AskDriver = CUresult (*)(void* real, const char* base, void** function, int version, cuuint64_t flags);
void exchange_proc_address(void* real, AskDriver ask, const char* name, void** function) noexcept;

}  // namespace grape::interpose
