// What functions that have returned left below the frames that live. Kernels get structs by value, with bytes that
// nobody sets (unused dimensions, padding). These have what lay on the stack before, such as addresses of the host.
// They differ between equal calls, and may look like addresses of the device. Nobody can rely on such bytes. So they
// are zeroed while a call is observed. Operators leave addresses of the stack themselves. So an observed call always
// begins at the same height.
#pragma once

#include <cstddef>

#include "compressor/program/record.h"

namespace grape::observation {

// Bytes. The structs of PyTorch's launches lie so near below its calls of Grape.
constexpr std::size_t kDeadStack = std::size_t{16} << 10;

// Zeroes kDeadStack bytes below the caller's frame. Any thread. Takes 0.15 microseconds. Does nothing near the end of
// the stack, nor on a stack that is not the thread's own, as a coroutine's.
void clear_dead_stack() noexcept;

// The calling thread's stack, at most its upper 16 MiB. No bytes: nobody knows.
program::Extent own_stack() noexcept;

constexpr std::size_t kStackStep = std::size_t{256} << 10;
// Calls work(of) with the stack at a multiple of kStackStep bytes. So calls from places of about the same depth have
// the same addresses of the stack. Where the stack is not the thread's own, or little of it is left, it stays there.
void call_at_step(void (*work)(void* of), void* of);

}  // namespace grape::observation
