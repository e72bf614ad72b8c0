// Driver functions that Grape does not wrap: handed out behind a thunk that counts their calls.
#pragma once

#include <cstdint>

namespace grape::interpose {

// A function that counts and then jumps to `real`; `real` itself where the slots have run out. `name` is copied.
void* counted(const char* name, void* real) noexcept;

// The functions that were called, by name, for record::set_unhandled_source.
std::uint32_t unhandled_calls(const char** names, std::uint64_t* counts, std::uint32_t room) noexcept;

// How often any of them was called, by any thread.
std::uint64_t unhandled_total() noexcept;

}  // namespace grape::interpose
