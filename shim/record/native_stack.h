// Native stacks, on request (GRAPE_STACKS=native). libgcc's unwinder walks them; it is linked statically, and stops
// where code has no unwind information. libunwind 1.6.2 is some 70 times as fast, but unsafe in other people's
// processes. It guesses, and probes each guess by a write to a pipe. If the pipe's descriptors do not answer, it closes
// them and opens new ones (src/x86_64/Ginit.c); after a program's closefrom() these descriptors are files of the
// program. Built without the probes it follows the guesses. Debian's static library is not position-independent either.
#pragma once

#include <cstdint>

#include "shim/record/thread_log.h"

namespace grape::record {

// The calling thread's native stack above this library as a frame id in `log`'s definitions; 0: none, or not asked for.
std::uint32_t current_native_stack(ThreadLog& log) noexcept;

}  // namespace grape::record
