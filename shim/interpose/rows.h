// The rows of hooks.def at run time: names, wrappers, and the addresses of the real functions.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "shim/record/thread_log.h"

namespace grape::interpose {

// What a wrapper does besides recording the call.
enum class Action : std::uint8_t {
  kMake,        // nothing; the event's sequence is taken after the real call
  kUnmake,      // the sequence is taken before: the name may be reused at once
  kUnmakeCode,  // and the per-thread function caches are void
  kLaunchKernel,
  kLaunchKernelEx,
  kLaunchCooperativeKernel,
  kLaunchCooperativeKernelMultiDevice,
  kInstantiate,  // a graph became executable: its contents are recorded
  kCaptureBegin,
  kCaptureEnd,
  kRangeBegin,  // recording begins, where GRAPE_TRACE_RANGE=profiler, and ends
  kRangeEnd,
  kGetProcAddress,
};

enum RowIndex : std::uint32_t {
#define GRAPE_HOOK(base, symbol, ...) kRow_##symbol,
#include "shim/driver/hooks.def"
  kRowCount
};

extern const record::ApiRow kRows[kRowCount];

// By row. Defined with the wrappers.
extern "C" {
extern void* const grape_wrappers[kRowCount] __attribute__((visibility("hidden")));
// Where the exported symbol jumps: the wrapper, or what another library put below us.
extern void* grape_linked[kRowCount] __attribute__((visibility("hidden")));
}

constexpr std::uint32_t api_id(std::uint32_t row) { return row + 1; }

// The row with exactly this symbol; kRowCount: none.
std::uint32_t find_symbol(const char* symbol) noexcept;

// The rows with this name, with their version and stream suffixes or without, ascending; kRowCount: no more.
std::uint32_t first_named(std::string_view name) noexcept;
std::uint32_t next_named(std::uint32_t row, std::string_view name) noexcept;

// Is the name, without its version and stream suffixes, one of GRAPE_QUERIES (unwrapped.def)?
bool is_query(const char* name) noexcept;

// The real functions, by row; null where not yet known.
extern std::atomic<void*> g_real[kRowCount];

// Looks for the real function behind an exported symbol that was called before any door gave it out. Null: the process
// has no driver.
void* find_real(std::uint32_t row) noexcept;

inline void* real_function(std::uint32_t row) noexcept {
  void* real = g_real[row].load(std::memory_order_relaxed);
  return __builtin_expect(real != nullptr, 1) ? real : find_real(row);
}

// Takes `real`, a function of the driver, as the one behind the row's wrapper. False: the wrapper already stands before
// another library's function, so this one must be handed out as it is.
bool adopt(std::uint32_t row, void* real) noexcept;

// Does the address lie in a loaded libcuda?
bool in_driver(const void* address) noexcept;

// Is it one of the functions that this library exports in the driver's place?
bool is_export(const void* address) noexcept;

}  // namespace grape::interpose
