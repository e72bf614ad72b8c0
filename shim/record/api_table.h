// The driver's call table of a trace, parsed once: the index of a call's stream, event, size and so on. Core: no CUDA,
// no Python, no preloading. The few driver constants used here are named with their source in cuda.h.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "compressor/trace/event.h"
#include "compressor/trace/meta.h"
#include "shim/driver/function_facts.h"

namespace grape::record {

struct Argument {
  std::string name;
  char kind = 'u';  // see trace::ApiInfo::arguments
};

struct ApiLayout {
  std::string symbol;
  trace::ApiClass api_class = trace::ApiClass::kOther;
  driver::InCall in_call = driver::InCall::kByClass;
  bool per_thread = false;                        // stream 0 means the calling thread's own default stream
  bool destroys = false;                          // a destroy, free or unload
  bool begins_range = false, ends_range = false;  // of a trace recorded in ranges: cuProfilerStart, cuProfilerStop
  std::vector<Argument> arguments;
  // Index of the argument of that name, -1: there is none.
  int stream = -1, event = -1, exec = -1, bytes = -1, count = -1, width = -1, height = -1, dst = -1, src = -1,
      value = -1, flags = -1, ptr = -1, copy = -1;
  std::uint32_t element_bytes = 1;  // of a memset: D8, D16 or D32
};

// A kCall event by field. Precondition: header->kind == kCall and the payload passed the reader's check.
struct CallView : trace::EventView {
  explicit CallView(trace::EventView view) : EventView(view) {}
  std::uint32_t api() const { return trace::low(words()[0]); }
  std::int32_t result() const { return static_cast<std::int32_t>(trace::high(words()[0])); }
  std::uint32_t frame() const { return trace::low(words()[1]); }
  std::uint32_t native_frame() const { return trace::high(words()[1]); }
  std::uint32_t argument_count() const { return trace::low(words()[2]); }
  // 0 where the call has no such argument; `index` may be -1.
  std::uint64_t argument(int index) const {
    return index >= 0 && static_cast<std::uint32_t>(index) < argument_count() ? words()[3 + index] : 0;
  }
  bool has(int index) const { return index >= 0 && static_cast<std::uint32_t>(index) < argument_count(); }
  // The bytes that pointer argument `index` led to; null, and 0 bytes, where the trace has none.
  const std::uint8_t* blob(int index, std::uint32_t& bytes) const;
};

enum class CopyDirection : std::uint8_t { kUnknown, kToDevice, kToHost, kOnDevice };
constexpr int kCopyDirections = 4;

class ApiTable {
 public:
  // `ranges`: of a trace recorded in ranges (trace::Meta).
  explicit ApiTable(const std::vector<trace::ApiInfo>& apis, bool ranges = false);
  // The layout of api id N; one without arguments where the table has no such id.
  const ApiLayout& operator[](std::uint32_t api) const { return layouts_[api < layouts_.size() ? api : 0]; }
  std::size_t size() const { return layouts_.size(); }

 private:
  std::vector<ApiLayout> layouts_;
};

// Bytes that a copy or memset moves, 0 where the trace does not tell. Copies through structs (2D, 3D) count their area.
std::uint64_t moved_bytes(const ApiLayout& layout, const CallView& call);
CopyDirection copy_direction(const ApiLayout& layout, const CallView& call);

// The handle under which the trace's streams are told apart: 0 is the legacy default stream, 2 the thread's own.
constexpr std::uint64_t kLegacyStream = 0;
constexpr std::uint64_t kPerThreadStream = 2;
std::uint64_t normal_stream(const ApiLayout& layout, std::uint64_t handle);
// Of a call: its stream argument, else the default stream that its flavour means.
std::uint64_t stream_of(const ApiLayout& layout, const CallView& call);

// Which streams order with the legacy default stream: all but those created with CU_STREAM_NON_BLOCKING.
class StreamModes {
 public:
  void add(const ApiLayout& layout, const CallView& call);
  void set(std::uint64_t handle, bool non_blocking) { non_blocking_[handle] = non_blocking; }
  bool blocking(std::uint64_t handle) const {
    const auto found = non_blocking_.find(handle);
    return found == non_blocking_.end() || !found->second;
  }

 private:
  std::unordered_map<std::uint64_t, bool> non_blocking_;
};

}  // namespace grape::record
