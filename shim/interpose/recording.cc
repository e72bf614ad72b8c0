#include "shim/interpose/recording.h"

#include <errno.h>

#include <algorithm>
#include <cstring>

#include "python_hooks/install/install.h"
#include "python_hooks/scopes/positions.h"
#include "shim/driver/real_driver.h"
#include "shim/driver/unhandled.h"
#include "shim/interpose/allocator.h"
#include "shim/interpose/rows.h"
#include "shim/lifecycle/config.h"
#include "shim/lifecycle/hot.h"
#include "shim/record/function_cache.h"
#include "shim/record/native_stack.h"

namespace grape::interpose {

GRAPE_HOT bool g_native_stacks = false;

namespace {

// The tables are there before anything can be recorded: this library's constructors run before the program's own code.
__attribute__((constructor(102))) void publish_tables() {
  g_native_stacks = config().stacks == Stacks::kNative;
  record::set_api_table(kRows, kRowCount);
  record::set_unhandled_source(driver::unhandled_calls);
}

std::atomic<bool> g_version_noted{false};

// Words that an entry takes, with the parameters of the kernel it names.
std::uint32_t entry_words(const BlobEntry& entry, const record::PackedParameters& parameters) noexcept {
  const std::size_t words = 1 + trace::words_for(entry.bytes);
  return static_cast<std::uint32_t>(parameters.bytes == 0 ? words : words + 1 + trace::words_for(parameters.bytes));
}

std::uint64_t* write_bytes(std::uint64_t* out, std::uint32_t index, const void* data, std::uint32_t bytes) noexcept {
  *out++ = trace::pack(index, bytes);
  const auto words = static_cast<std::uint32_t>(trace::words_for(bytes));
  if (words != 0) out[words - 1] = 0;
  if (bytes != 0) std::memcpy(out, data, bytes);
  return out + words;
}

}  // namespace

std::uint32_t native_frame(record::ThreadLog& log) noexcept {
  const int saved_errno = errno;
  const std::uint32_t frame = record::current_native_stack(log);
  errno = saved_errno;
  return frame;
}

void note_environment(trace::ApiClass api_class) noexcept {
  if (__builtin_expect(!g_version_noted.load(std::memory_order_relaxed), 0)) {
    int version = 0;
    if (driver::real::call_cuDriverGetVersion(&version) == CUDA_SUCCESS) record::set_driver_version(version);
    g_version_noted.store(true, std::memory_order_relaxed);
  }
  if (api_class == trace::ApiClass::kAlloc) check_allocator();
}

record::Stamp stamp_of_call(record::ThreadLog& log, bool early) noexcept {
  return {record::ticks(), early ? log.next_sequence() : 0};
}

void record_call(record::ThreadLog& log, const CallKind& kind, CUresult result, record::Stamp stamp,
                 const std::uint64_t* words, const BlobEntry* entries, const BlobEntry* entries_end) noexcept {
  const std::uint32_t duration = elapsed(stamp.ticks);
  const int saved_errno = errno;
  const bool captured = result == CUDA_SUCCESS && kind.stream >= 0 &&
                        is_captured(reinterpret_cast<CUstream>(words[kind.stream]), kind.per_thread);
  note_environment(kind.api_class);
  Position position;
  // Whoever collects a call's events names the line of what it refuses, whichever driver call that is.
  const bool collected = record::t_thread.sink != nullptr && kind.api_class != trace::ApiClass::kQuery;
  if (has_position(kind.api_class) || collected) {
    position = current_position(log);
  } else {
    python::install::on_driver_call();
  }
  record::PackedParameters parameters[kMostEntries];
  std::uint32_t blob_words = 0, flags = captured ? trace::kFlagCaptured : 0;
  for (const BlobEntry* entry = entries; entry != entries_end; ++entry) {
    record::PackedParameters& packed = parameters[entry - entries];
    if (entry->kernel.function != nullptr) {
      packed = record::packed_parameters(record::find_function(log, entry->kernel.function), entry->kernel.parameters,
                                         entry->kernel.extra);
      flags |= packed.flags;
    }
    if (entry->cut) flags |= trace::kFlagTruncated;
    blob_words += entry_words(*entry, packed);
  }
  const std::uint32_t all_words = 3 + kind.word_count + blob_words;
  std::uint64_t* out = log.begin(trace::EventKind::kCall, api_id(kind.row), all_words, stamp,
                                 static_cast<std::uint16_t>(flags), duration);
  if (out != nullptr) {
    out[0] = trace::pack(api_id(kind.row), static_cast<std::uint32_t>(result));
    out[1] = trace::pack(position.frame, position.native_frame);
    out[2] = trace::pack(kind.word_count, blob_words * 8);
    out = std::copy_n(words, kind.word_count, out + 3);
    for (const BlobEntry* entry = entries; entry != entries_end; ++entry) {
      out = write_bytes(out, entry->argument, entry->data, entry->bytes);
      const record::PackedParameters& packed = parameters[entry - entries];
      if (packed.bytes == 0) continue;
      *out++ = trace::pack(entry->argument, packed.bytes);
      packed.copy_to(reinterpret_cast<std::uint8_t*>(out));
      out += trace::words_for(packed.bytes);
    }
    log.commit();
  }
  errno = saved_errno;
}

}  // namespace grape::interpose
