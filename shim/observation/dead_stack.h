// What functions that have returned left below the frames that live. Kernels get structs by value in which nobody sets
// some bytes (unused dimensions, padding). These have what lay on the stack before: addresses of the host, other calls'
// sizes. It differs between equal calls, and it may look like an address of the device. Nobody can rely on such bytes,
// so they are zeroed while a call is observed. What operators themselves leave there has addresses of the stack, so an
// observed call always begins at the same height.
#pragma once

#include <cstddef>
#include <cstdint>

namespace grape::observation {

// Bytes: from where PyTorch calls Grape down to the structs of its launches.
constexpr std::size_t kDeadStack = std::size_t{16} << 10;

// Zeroes kDeadStack bytes below the caller's frame. Does nothing near the end of the stack, nor on a stack that is not
// the thread's own, as a coroutine's. Any thread. 0.15 microseconds.
void clear_dead_stack() noexcept;

// Of the calling thread: where its stack begins, and its bytes; at most the upper 16 MiB. Zeroes: nobody knows.
struct OwnStack {
  std::uint64_t begin = 0, bytes = 0;
};
OwnStack own_stack() noexcept;

constexpr std::size_t kStackStep = std::size_t{256} << 10;  // bytes

// work(of), with the stack at a multiple of kStackStep: calls from places that are not much deeper than each other have
// the same addresses of the stack. As it is where clear_dead_stack() does nothing, or little of the stack is left.
void call_at_step(void (*work)(void* of), void* of);

}  // namespace grape::observation
