#include "shim/observation/region_sink.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "shim/driver/current_context.h"
#include "shim/driver/real_driver.h"
#include "shim/driver/unhandled.h"
#include "shim/memory/live_blocks.h"
#include "shim/observation/dead_stack.h"
#include "shim/observation/region_record.h"
#include "shim/record/function_cache.h"

namespace grape::observation {
namespace {

constexpr std::size_t kFirstRoom = std::size_t{256} << 10;
constexpr std::size_t kMostRoom = std::size_t{64} << 20;
// Each thread numbers the functions that it launches by itself. Those of attached threads are numbered anew, from here.
// No thread knows as many.
constexpr std::uint32_t kShared = 1U << 20;

constexpr trace::EventHeader header_of(trace::EventKind kind) {
  return {sizeof(trace::EventHeader), kind, 0, 0, 0, 0, 0};
}

bool grow_sink(record::EventSink& sink, std::size_t needed) noexcept {
  if (needed > kMostRoom) return false;
  const std::size_t larger = std::max(std::min(sink.room * 2, kMostRoom), std::max(needed, kFirstRoom));
  auto* data = static_cast<std::uint8_t*>(std::realloc(sink.data, larger));
  if (data == nullptr) return false;
  sink.data = data;
  sink.room = larger;
  return true;
}

// May another work have it where the call's is told apart by its order? It has a place among the rest in any case.
bool may_stand_between(const trace::EventHeader& event) noexcept {
  return trace::is_definition(event.kind) || event.kind == trace::EventKind::kBlockFree;
}

void describe(const record::Function& function, program::FunctionInfo& out) {
  out.handle = reinterpret_cast<std::uint64_t>(function.handle);
  out.name = function.name != nullptr ? function.name : "";
  out.has_layout = function.has_layout;
  for (std::uint32_t i = 0; i < function.parameter_count; ++i) {
    out.parameters.push_back({function.parameters()[i].offset, function.parameters()[i].bytes});
  }
}

}  // namespace

RegionSink::RegionSink() noexcept {
  sink_.grow = grow_sink;
  sink_.take = [](void* sink, const trace::EventHeader& event) noexcept {
    static_cast<RegionSink*>(sink)->take_event(event);
  };
  sink_.collector = this;
}

RegionSink::~RegionSink() {
  cancel();
  std::free(sink_.data);
}

bool RegionSink::begin(std::uint64_t context) noexcept {
  CUcontext current = nullptr;
  if (record::t_thread.sink != nullptr || driver::current_context(current) != CUDA_SUCCESS) return false;
  events_.began_context = last_context_ = reinterpret_cast<std::uint64_t>(current);
  events_.context = context != 0 ? context : events_.began_context;
  events_.stacks.clear();
  if (!attached()) return false;
  events_.log = last_log_ = record::t_thread.log;
  sink_.used = noted_ = 0;
  sink_.lost = outside_ = interrupted_ = false;
  still_inside_ = nullptr;
  events_.shared_functions.clear();
  call_ = CallScope::current();
  if (call_ != nullptr && !call_->follow(*this)) {
    detached();
    return false;
  }
  const memory::LiveBlocks& blocks = memory::LiveBlocks::instance();
  complete_ = blocks.snapshot(events_.before) && blocks.snapshot_host(events_.host) &&
              blocks.snapshot_library(events_.library) && blocks.has_framework();
  events_.serial = blocks.last_serial();
  driver::count_unhandled(unhandled_);
  return true;
}

RegionSink* RegionSink::of_thread() noexcept {
  return record::t_thread.sink != nullptr ? static_cast<RegionSink*>(record::t_thread.sink->collector) : nullptr;
}

void RegionSink::set_inside_while(bool (*still)(const void*), const void* of) noexcept {
  set_outside(false);
  still_inside_ = still;
  inside_of_ = of;
}

void RegionSink::set_outside(bool outside) noexcept {
  still_inside_ = nullptr;
  if (outside == outside_ || record::t_thread.sink != &sink_) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  outside_ = outside;
  const std::uint64_t word = outside ? 1 : 0;
  sink_.append(header_of(kOutsideNote), &word, sizeof word);
}

void RegionSink::cancel() noexcept {
  if (call_ != nullptr) call_->unfollow(*this);
  call_ = nullptr;
  detached();
}

bool RegionSink::attached() noexcept {
  if (record::t_thread.sink != nullptr) return false;
  record::t_thread.sink = &sink_;
  if (record::thread_log() != nullptr) {
    note_stack();
    return true;
  }
  record::t_thread.sink = nullptr;
  return false;
}

// Where there is no memory its addresses stay as they are.
void RegionSink::note_stack() noexcept {
  const program::Extent own = own_stack();
  const std::lock_guard<std::mutex> lock(mutex_);
  try {
    events_.stacks.push_back(own);
  } catch (const std::bad_alloc&) {
    return;
  }
}

void RegionSink::detached() noexcept {
  if (record::t_thread.sink == &sink_) record::t_thread.sink = nullptr;
}

void RegionSink::take_event(const trace::EventHeader& event) noexcept {
  clear_dead_stack();
  if (still_inside_ != nullptr && !still_inside_(inside_of_)) set_outside(true);
  const std::lock_guard<std::mutex> lock(mutex_);
  note_thread_and_context();
  if (last_log_ == events_.log) {
    interrupted_ = interrupted_ || (call_ != nullptr && call_->waits() && !may_stand_between(event));
    sink_.append(event);
  } else if (!trace::is_definition(event.kind)) {
    take_of_attached(event);
  }
}

// The context is asked of the driver, since the CUDA runtime has ways to change it that no wrapper sees.
void RegionSink::note_thread_and_context() noexcept {
  if (record::t_thread.log != last_log_) {
    last_log_ = record::t_thread.log;
    const std::uint64_t is_attached = last_log_ != events_.log ? 1 : 0;
    sink_.append(header_of(kThreadNote), &is_attached, sizeof is_attached);
  }
  CUcontext current = nullptr;
  if (driver::current_context(current) != CUDA_SUCCESS) return;
  const auto context = reinterpret_cast<std::uint64_t>(current);
  if (context == last_context_) return;
  last_context_ = context;
  sink_.append(header_of(kContextNote), &context, sizeof context);
}

// Its functions are numbered for all threads of the call. Its frames are known to its own thread alone.
void RegionSink::take_of_attached(const trace::EventHeader& event) noexcept {
  interrupted_ = interrupted_ || !(may_stand_between(event) || CallScope::works_now());
  sink_.append(event);
  if (sink_.lost) return;
  auto* words = reinterpret_cast<std::uint64_t*>(sink_.data + sink_.used - event.bytes + sizeof event);
  if (event.kind == trace::EventKind::kLaunch) {
    words[trace::kLaunchStack] = 0;
    try {
      const std::uint64_t launch = words[trace::kLaunchFunction];
      words[trace::kLaunchFunction] = trace::pack(shared_id(trace::low(launch)), trace::high(launch));
    } catch (const std::bad_alloc&) {
      sink_.lost = true;
    }
  } else if (event.kind == trace::EventKind::kBlockAlloc) {
    words[2] = trace::pack(0, trace::high(words[2]));
  } else if (event.kind == trace::EventKind::kCall) {
    words[1] = 0;
    // Nobody knows when what it read is there: see note_stream_sync().
    const record::CallView call(trace::EventView{&event});
    if (driver_calls()[call.api()].api_class == trace::ApiClass::kCopyToHost)
      sink_.append(header_of(trace::EventKind::kLost));
  }
}

// 0: the thread itself does not know it.
std::uint32_t RegionSink::shared_id(std::uint32_t function) {
  const record::Function* known = record::function_of_id(*record::t_thread.log, function);
  if (known == nullptr) return 0;
  const auto handle = reinterpret_cast<std::uint64_t>(known->handle);
  const auto at = std::find_if(events_.shared_functions.begin(), events_.shared_functions.end(),
                               [=](const program::FunctionInfo& info) { return info.handle == handle; });
  const auto index = static_cast<std::uint32_t>(at - events_.shared_functions.begin());
  if (at == events_.shared_functions.end()) describe(*known, events_.shared_functions.emplace_back());
  return kShared + index;
}

bool RegionEvents::function(std::uint32_t id, program::FunctionInfo& out) const {
  if (id >= kShared) {
    if (id - kShared >= shared_functions.size()) return false;
    out = shared_functions[id - kShared];
    return true;
  }
  const record::Function* function = record::function_of_id(*log, id);
  if (function != nullptr) describe(*function, out);
  return function != nullptr;
}

RegionSink::Result RegionSink::end() noexcept {
  Result result;
  // Where Grape has become inert meanwhile, calls went by unrecorded.
  const bool collected = record::t_thread.sink == &sink_ && lifecycle::active();
  cancel();
  try {
    if (!collected) {
      result.refusal = refusal::make(refusal::not_recorded);
    } else if (interrupted_) {
      result.refusal = refusal::make(refusal::pass_interrupted);
    } else if (sink_.lost) {
      result.refusal = refusal::make(refusal::too_much_to_record);
    } else if (!complete_ || !memory::LiveBlocks::instance().complete()) {
      result.refusal = refusal::make(refusal::unreported_memory);
    } else if (const char* name = driver::unhandled_since(unhandled_)) {
      result.refusal = refusal::make(refusal::unknown_function, name);  // it may have been another thread
    } else {
      events_.data = sink_.data;
      events_.bytes = sink_.used;
      if (!memory::LiveBlocks::instance().snapshot_segments(events_.segments)) throw std::bad_alloc();
      events_.ended_context = reinterpret_cast<std::uint64_t>(driver::current_context());
      result = make_region_record(events_);
    }
    result.again = refusal::is_passing(result.refusal.id);
  } catch (const std::bad_alloc&) {
    result.record.reset();
    result.refusal = refusal::out_of_memory();
    result.again = true;
  }
  return result;
}

// Is the last event one of the calling thread's? Else another thread's stands where a note is to be, which is lost.
bool RegionSink::follows_own_event() noexcept {
  if (last_log_ != record::t_thread.log) sink_.append(header_of(trace::EventKind::kLost));
  return last_log_ == record::t_thread.log;
}

void note_stream_sync() noexcept {
  RegionSink* sink = RegionSink::of_thread();
  // What an attached thread waits for is not what this one has read.
  if (sink == nullptr || record::t_thread.log != sink->events_.log) return;
  const std::lock_guard<std::mutex> lock(sink->mutex_);
  struct {
    trace::EventHeader header;
    std::uint64_t value[kMostValueBytes / 8];
  } note = {};
  const std::size_t end = sink->sink_.used;
  while (sink->noted_ < end) {
    const auto* header = reinterpret_cast<const trace::EventHeader*>(sink->sink_.data + sink->noted_);
    sink->noted_ += header->bytes;
    if (header->kind != trace::EventKind::kCall) continue;
    const record::CallView call(trace::EventView{header});
    const record::ApiLayout& layout = driver_calls()[call.api()];
    if (layout.api_class != trace::ApiClass::kCopyToHost || call.result() != 0 || layout.bytes < 0 || layout.dst < 0) {
      continue;
    }
    const std::uint64_t bytes = call.argument(layout.bytes);
    const auto* read = reinterpret_cast<const void*>(call.argument(layout.dst));
    if (bytes > kMostValueBytes || read == nullptr) continue;
    const std::size_t words = trace::words_for(bytes);
    if (words != 0) note.value[words - 1] = 0;
    std::memcpy(note.value, read, bytes);
    note.header = header_of(kValueNote);
    note.header.bytes += static_cast<std::uint32_t>(words * 8);
    sink->sink_.append(note.header);
  }
}

// The driver has read them: they can be read. Not those of memory that it knows, which the device may be writing to.
void note_host_copy(std::uint64_t source, std::uint64_t bytes) noexcept {
  RegionSink* sink = RegionSink::of_thread();
  auto* attribute = driver::real::get_cuPointerGetAttribute();
  if (sink == nullptr || bytes > kMostHostData || attribute == nullptr) return;
  CUmemorytype type{};
  if (attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, source) != CUDA_ERROR_INVALID_VALUE) return;
  const std::lock_guard<std::mutex> lock(sink->mutex_);
  if (sink->follows_own_event()) {
    sink->sink_.append(header_of(kHostDataNote), reinterpret_cast<const void*>(source), bytes);
  }
}

void note_block_serial(std::uint64_t serial) noexcept {
  RegionSink* sink = RegionSink::of_thread();
  if (sink == nullptr) return;
  const std::lock_guard<std::mutex> lock(sink->mutex_);
  if (sink->follows_own_event()) sink->sink_.append(header_of(kSerialNote), &serial, sizeof serial);
}

}  // namespace grape::observation
