#include "shim/interpose/recording.h"

#include <errno.h>

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
  static record::ApiRow rows[kRowCount];
  static char text[48 * 1024];
  std::size_t used = 0;
  for (std::uint32_t row = 0; row < kRowCount; ++row) {
    // The arguments without the suffixes that are for the wrappers only: one letter behind each colon.
    const char* begin = text + used;
    for (const char* at = kRows[row].arguments; *at != '\0' && used + 2 < sizeof(text); ++at) {
      text[used++] = *at;
      if (*at != ':') continue;
      text[used++] = *++at;
      while (at[1] != '\0' && at[1] != ',') ++at;
    }
    text[used++] = '\0';
    rows[row] = {kRows[row].symbol, static_cast<std::uint8_t>(kRows[row].api_class), begin};
  }
  record::set_api_table(rows, kRowCount);
  record::set_unhandled_source(driver::unhandled_calls);
}

std::atomic<bool> g_version_noted{false};

struct Blob {
  std::uint32_t words = 0;
  std::uint16_t flags = 0;
};

constexpr std::uint32_t kEntryHeaderWords = 1;

// Words that an entry takes, with the parameters of the kernel it names.
std::uint32_t entry_words(const BlobEntry& entry, const record::PackedParameters& parameters) noexcept {
  std::uint32_t words = 0;
  if (entry.data != nullptr) words += kEntryHeaderWords + static_cast<std::uint32_t>(trace::words_for(entry.bytes));
  if (parameters.bytes != 0)
    words += kEntryHeaderWords + static_cast<std::uint32_t>(trace::words_for(parameters.bytes));
  return words;
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
    auto* version_of = driver::real::get_cuDriverGetVersion();
    int version = 0;
    if (version_of != nullptr && version_of(&version) == CUDA_SUCCESS) record::set_driver_version(version);
    g_version_noted.store(true, std::memory_order_relaxed);
  }
  if (api_class == trace::ApiClass::kAlloc) check_allocator();
}

bool ask_if_captured(CUstream stream, bool per_thread) noexcept {
  // The legacy default stream cannot be captured, and asking about it while another stream is, is an error.
  if (stream == CU_STREAM_LEGACY || (stream == nullptr && !per_thread)) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const int saved_errno = errno;
  auto* ask = per_thread ? driver::real::get_cuStreamIsCapturing_ptsz() : driver::real::get_cuStreamIsCapturing();
  const bool answered = ask != nullptr && ask(stream, &status) == CUDA_SUCCESS;
  errno = saved_errno;
  return answered && status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

void record_call(record::ThreadLog& log, const CallRecord& call) noexcept {
  note_environment(call.api_class);
  Position position;
  // Whoever collects a call's events names the line of what it refuses, whichever driver call that is.
  const bool collected = record::t_thread.sink != nullptr && call.api_class != trace::ApiClass::kQuery;
  if (has_position(call.api_class) || collected) {
    position = current_position(log);
  } else {
    python::on_driver_call();
  }
  constexpr std::uint32_t kMostArguments = 16;
  const std::uint32_t count = call.word_count < kMostArguments ? call.word_count : kMostArguments;
  record::PackedParameters parameters[kMostArguments];
  std::uint32_t blob_words = 0;
  std::uint16_t flags = call.flags;
  if (call.entries != nullptr) {
    for (std::uint32_t i = 0; i < count; ++i) {
      const BlobEntry& entry = call.entries[i];
      if (entry.kernel.function != nullptr) {
        parameters[i] = record::packed_parameters(record::find_function(log, entry.kernel.function),
                                                  entry.kernel.parameters, entry.kernel.extra);
        flags = static_cast<std::uint16_t>(flags | parameters[i].flags);
      }
      if (entry.cut) flags |= trace::kFlagTruncated;
      blob_words += entry_words(entry, parameters[i]);
    }
  }
  const std::uint32_t words = 3 + count + blob_words;
  std::uint64_t* out = log.begin(trace::EventKind::kCall, api_id(call.row), words, call.stamp, flags, call.duration);
  if (out == nullptr) return;
  out[0] = trace::pack(api_id(call.row), static_cast<std::uint32_t>(call.result));
  out[1] = trace::pack(position.frame, position.native_frame);
  out[2] = trace::pack(count, blob_words * 8);
  out += 3;
  for (std::uint32_t i = 0; i < count; ++i) *out++ = call.words[i];
  if (blob_words != 0) {
    for (std::uint32_t i = 0; i < count; ++i) {
      const BlobEntry& entry = call.entries[i];
      if (entry.data != nullptr) out = write_bytes(out, i, entry.data, entry.bytes);
      if (parameters[i].bytes == 0) continue;
      *out++ = trace::pack(i, parameters[i].bytes);
      parameters[i].copy_to(reinterpret_cast<std::uint8_t*>(out));
      out += trace::words_for(parameters[i].bytes);
    }
  }
  log.commit();
}

}  // namespace grape::interpose
