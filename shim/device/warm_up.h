// Proofs need some things once in a process. A thread makes them beside the program's own start. The driver compiles
// the own kernels (64 ms on an H200 without its cache) and maps harmless memory (4 ms; docs/BENCHMARKS.md). A proof
// that needs one earlier waits for it, or makes it.
#pragma once

namespace grape::device {

// Begins once in a process, for this thread's current context if that is a device's primary one. Does not wait. Without
// a context nothing happens, and after an error all is made at its first use. Any thread.
void warm_up() noexcept;

// Returns when the thread has ended: before a context goes, and at the process's end. Any thread but that one.
void end_warm_up() noexcept;

}  // namespace grape::device
