#include "shim/observation/region_sink.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "shim/driver/current_context.h"
#include "shim/driver/real_driver.h"
#include "shim/driver/unhandled.h"
#include "shim/memory/live_blocks.h"
#include "shim/observation/region_record.h"
#include "shim/record/function_cache.h"

namespace grape::replay {
namespace {

constexpr std::size_t kFirstRoom = std::size_t{256} << 10;
constexpr std::size_t kMostRoom = std::size_t{64} << 20;

bool grow_sink(record::EventSink& sink, std::size_t needed) noexcept {
  if (needed > kMostRoom) return false;
  const std::size_t larger = std::max(std::min(sink.room * 2, kMostRoom), std::max(needed, kFirstRoom));
  auto* data = static_cast<std::uint8_t*>(std::realloc(sink.data, larger));
  if (data == nullptr) return false;
  sink.data = data;
  sink.room = larger;
  return true;
}

// Asked of the driver, since the CUDA runtime has ways to change it that no wrapper sees.
void note_context(record::EventSink& sink) noexcept {
  CUcontext current = nullptr;
  if (driver::current_context(current) != CUDA_SUCCESS) return;
  const auto context = reinterpret_cast<std::uint64_t>(current);
  if (context == sink.context) return;
  sink.context = context;
  sink.append({0, kContextNote, 0, 0, 0, 0, 0}, &context, sizeof context);
}

// The driver's call table, parsed at the first use. Never destroyed.
const record::ApiTable* apis() {
  static const record::ApiTable* table = [] {
    std::uint32_t count = 0;
    const record::ApiRow* rows = record::api_table(count);
    std::vector<trace::ApiInfo> infos;
    for (std::uint32_t i = 0; rows != nullptr && i < count; ++i) {
      infos.push_back({rows[i].symbol, rows[i].api_class, rows[i].arguments});
    }
    return new record::ApiTable(infos);
  }();
  return table;
}

bool function_of_thread(std::uint32_t id, program::FunctionInfo& out, void* log) {
  const record::Function* function = record::function_of_id(*static_cast<record::ThreadLog*>(log), id);
  if (function == nullptr) return false;
  out.handle = reinterpret_cast<std::uint64_t>(function->handle);
  out.name = function->name != nullptr ? function->name : "";
  out.has_layout = function->has_layout;
  for (std::uint32_t i = 0; i < function->parameter_count; ++i) {
    out.parameters.push_back({function->parameters()[i].offset, function->parameters()[i].bytes});
  }
  return true;
}

bool stream_of_driver(std::uint64_t handle, RegionEvents::Stream& out) {
  auto* stream = reinterpret_cast<CUstream>(handle);
  auto* get_flags = driver::real::get_cuStreamGetFlags();
  auto* get_context = driver::real::get_cuStreamGetCtx();
  unsigned flags = 0;
  CUcontext context = nullptr;
  if (get_flags == nullptr || get_flags(stream, &flags) != CUDA_SUCCESS || get_context == nullptr ||
      get_context(stream, &context) != CUDA_SUCCESS) {
    return false;
  }
  out.non_blocking = (flags & CU_STREAM_NON_BLOCKING) != 0;
  out.context = reinterpret_cast<std::uint64_t>(context);
  program::LiveBlock made;
  if (LiveBlocks::instance().find(BlockSource::kStream, handle, made)) out.serial = made.serial;
  return true;
}

bool event_as_made(std::uint64_t handle, RegionEvents::Event& out) {
  program::LiveBlock made;
  if (!LiveBlocks::instance().find(BlockSource::kEvent, handle, made)) return false;
  out.serial = made.serial;
  out.flags = static_cast<std::uint32_t>(made.bytes);
  return true;
}

}  // namespace

RegionSink::RegionSink() noexcept {
  sink_.grow = grow_sink;
  sink_.ahead = note_context;
}

RegionSink::~RegionSink() {
  cancel();
  std::free(sink_.data);
}

bool RegionSink::begin(std::uint64_t context) noexcept {
  record::ThreadState& thread = record::t_thread;
  CUcontext current = nullptr;
  if (thread.sink != nullptr || driver::current_context(current) != CUDA_SUCCESS) return false;
  began_context_ = reinterpret_cast<std::uint64_t>(current);
  context_ = context != 0 ? context : began_context_;
  sink_.context = began_context_;
  sink_.used = sink_.noted = 0;
  sink_.lost = false;
  thread.sink = &sink_;
  if (record::thread_log() == nullptr) {
    thread.sink = nullptr;
    return false;
  }
  const LiveBlocks& blocks = LiveBlocks::instance();
  complete_ = blocks.snapshot(before_) && blocks.snapshot_host(host_) && blocks.has_framework();
  serial_ = blocks.last_serial();
  driver::count_unhandled(unhandled_);
  return true;
}

void RegionSink::cancel() noexcept {
  if (record::t_thread.sink == &sink_) record::t_thread.sink = nullptr;
}

RegionSink::Result RegionSink::end() noexcept {
  Result result;
  record::ThreadLog* log = record::t_thread.log;
  // Where Grape has become inert meanwhile, calls went by unrecorded.
  const bool collected = record::t_thread.sink == &sink_ && log != nullptr && lifecycle::active();
  cancel();
  try {
    if (!collected) {
      result.refusal = refusal::make(refusal::not_recorded);
    } else if (sink_.lost) {
      result.refusal = refusal::make(refusal::too_much_to_record);
    } else if (!complete_ || !LiveBlocks::instance().complete()) {
      result.refusal = refusal::make(refusal::unreported_memory);
    } else if (const char* name = driver::unhandled_since(unhandled_)) {
      result.refusal = refusal::make(refusal::unknown_function, name);  // it may have been another thread
    } else {
      RegionEvents events;
      events.data = sink_.data;
      events.bytes = sink_.used;
      events.apis = apis();
      events.before = std::move(before_);
      events.host = std::move(host_);
      if (!LiveBlocks::instance().snapshot_segments(events.segments)) throw std::bad_alloc();
      events.context = context_;
      events.began_context = began_context_;
      events.ended_context = reinterpret_cast<std::uint64_t>(driver::current_context());
      events.serial = serial_;
      events.function = function_of_thread;
      events.stream = stream_of_driver;
      events.event = event_as_made;
      events.user = log;
      result = make_region_record(std::move(events));
    }
    result.again = refusal::is_passing(result.refusal.id);
  } catch (const std::bad_alloc&) {
    result.record.reset();
    result.refusal = refusal::out_of_memory();
    result.again = true;
  }
  return result;
}

void note_stream_sync() noexcept {
  record::EventSink* sink = record::t_thread.sink;
  if (sink == nullptr) return;
  struct {
    trace::EventHeader header;
    std::uint64_t value[kMostValueBytes / 8];
  } note = {};
  const std::size_t end = sink->used;
  while (sink->noted < end) {
    const auto* header = reinterpret_cast<const trace::EventHeader*>(sink->data + sink->noted);
    sink->noted += header->bytes;
    if (header->kind != trace::EventKind::kCall) continue;
    const record::CallView call(trace::EventView{header});
    const record::ApiLayout& layout = (*apis())[call.api()];
    if (layout.api_class != trace::ApiClass::kCopyToHost || call.result() != 0 || layout.bytes < 0 || layout.dst < 0) {
      continue;
    }
    const std::uint64_t bytes = call.argument(layout.bytes);
    const auto* read = reinterpret_cast<const void*>(call.argument(layout.dst));
    if (bytes > kMostValueBytes || read == nullptr) continue;
    const std::size_t words = trace::words_for(bytes);
    if (words != 0) note.value[words - 1] = 0;
    std::memcpy(note.value, read, bytes);
    note.header = {static_cast<std::uint32_t>(sizeof note.header + words * 8), kValueNote, 0, 0, 0, 0, 0};
    sink->append(note.header);
  }
}

// The driver has read them: they can be read. Not those of memory that it knows, which the device may be writing to.
void note_host_copy(std::uint64_t source, std::uint64_t bytes) noexcept {
  record::EventSink* sink = record::t_thread.sink;
  auto* attribute = driver::real::get_cuPointerGetAttribute();
  if (sink == nullptr || bytes > kMostHostData || attribute == nullptr) return;
  CUmemorytype type{};
  if (attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, source) != CUDA_ERROR_INVALID_VALUE) return;
  sink->append({0, kHostDataNote, 0, 0, 0, 0, 0}, reinterpret_cast<const void*>(source), bytes);
}

void note_block_serial(std::uint64_t serial) noexcept {
  record::EventSink* sink = record::t_thread.sink;
  if (sink == nullptr) return;
  struct {
    trace::EventHeader header;
    std::uint64_t serial;
  } note = {{sizeof note, kSerialNote, 0, 0, 0, 0, 0}, serial};
  sink->append(note.header);
}

}  // namespace grape::replay
