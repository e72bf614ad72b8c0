// Native stacks, on request (GRAPE_STACKS=native), by the unwinder of libgcc, which is linked statically. (libunwind's
// static library cannot go into a shared one: Debian builds it without -fPIC.)
#pragma once

#include <cstdint>

#include "shim/record/thread_log.h"

namespace grape::record {

// The calling thread's native stack above this library as a frame id in `log`'s definitions; 0: none, or not asked for.
std::uint32_t current_native_stack(ThreadLog& log) noexcept;

}  // namespace grape::record
