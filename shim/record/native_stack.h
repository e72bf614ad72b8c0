// Native stacks, on request (GRAPE_STACKS=native), by the unwinder of libgcc, which is linked statically and stops
// where code has no unwind information. libunwind 1.6.2 is some 70 times as fast, but no guest of other people's
// processes: there it guesses, and probes what it guessed by writes to a pipe, whose descriptors it closes and opens
// anew where they do not answer as its own (src/x86_64/Ginit.c); after a program's closefrom() they are the program's
// files. Built without these probes it follows the guesses. (And Debian's static library is not position-independent.)
#pragma once

#include <cstdint>

#include "shim/record/thread_log.h"

namespace grape::record {

// The calling thread's native stack above this library as a frame id in `log`'s definitions; 0: none, or not asked for.
std::uint32_t current_native_stack(ThreadLog& log) noexcept;

}  // namespace grape::record
