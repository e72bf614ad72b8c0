// Driver functions that Grape does not wrap: handed out behind a thunk that counts their calls.
#pragma once

#include <cstdint>

#include "shim/driver/unhandled_slots.h"

namespace grape::driver {

// A function that counts and then jumps to `real`; `real` itself where the slots have run out. `name` is copied.
void* counted(const char* name, void* real) noexcept;

// From now on `real_handle` gives what stands for a handle in the range of GRAPE_HANDLE_RANGE_BYTES that begins there,
// where one is the first or second argument of such a function. Once.
void exchange_handles(char* range, void* (*real_handle)(void* handle)) noexcept;

// The functions that were called, by name, for record::set_unhandled_source.
std::uint32_t unhandled_calls(const char** names, std::uint64_t* counts, std::uint32_t room) noexcept;

// How often each was called until now, by any thread.
struct UnhandledCounts {
  std::uint64_t of[GRAPE_UNHANDLED_SLOTS];  // beyond `used` not set
  std::uint32_t used;
};
void count_unhandled(UnhandledCounts& counts) noexcept;
// The name of one that was called since then, valid for ever; null: none was.
const char* unhandled_since(const UnhandledCounts& before) noexcept;

}  // namespace grape::driver
