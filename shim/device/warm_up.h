// What proofs need once in each context, made by a thread beside the program's own start: the driver compiles the own
// kernels (65 ms on an H200 where its cache has none) and maps harmless memory (4 ms), see docs/BENCHMARKS.md. Who
// needs one of them earlier waits until it is made, or makes it.
#pragma once

namespace grape::device {

// Begins for the context that is current on this thread, if it is a device's primary one; once in a process. Does not
// wait. Without a context, or after an error, nothing happens, and all is made at its first use. Any thread.
void warm_up() noexcept;

// Returns when the thread has ended. A context goes, or the process ends. Any thread but that one.
void end_warm_up() noexcept;

}  // namespace grape::device
