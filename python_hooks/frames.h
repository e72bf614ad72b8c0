// Reading this thread's Python frames without the GIL.
#pragma once

#include <atomic>
#include <cstddef>

#include "python_hooks/stack_tree.h"

namespace grape::python {

// Set once the layout was checked against the public API.
extern std::atomic<bool> g_frames_checked;

// Reads up to `most` frames of the calling thread, innermost first, shims left out. 0: no Python runs here.
// Precondition: load_api() succeeded, the interpreter is not shutting down.
std::size_t read_frames(RawFrame* out, std::size_t most) noexcept;

// The frame that is calling out of Python now, in a hook; null: not known. As in WaitingFrame.
const char* waiting_frame() noexcept;

// The same way through the frames as read_frames(), but every address is asked for before it is followed. False: the
// way leads out of mapped memory or to something that is no code, so the layout is not this interpreter's.
bool frames_are_sensible() noexcept;

enum class FrameCheck {
  kPassed,
  kDiffers,  // the layout is not what the table says
  kLater,    // not now: somebody watches how code is evaluated, or memory or stack is short
  kRaised,   // a signal handler of the program raised its exception in between; it is set
};

// With the GIL, no exception set: compares what read_frames() and the line tables give with the public API, on the
// current stack and in code that is run for it (generators, comprehensions, lambdas, class bodies).
FrameCheck check_frames() noexcept;

}  // namespace grape::python
