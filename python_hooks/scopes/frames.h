// Reading this thread's Python frames without the GIL.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "python_hooks/scopes/stack_tree.h"

namespace grape::python::scopes {

// Set once the layout was checked against the public API: frames may be read from now on.
extern std::atomic<bool> g_frames_checked;
void allow_frames() noexcept;

// The offsets that the fast way to a stack needs (straight_stack() in frames.cc); all other cases take the careful way.
struct Straight {
  std::atomic<bool> open{false};  // frames are read, whole stacks wanted, and the frames are no objects (from 3.11 on)
  bool through_cframe;
  std::uint8_t code, previous, instruction, owner, cframe_frame;  // in bytes from the start of a frame or cframe
  std::uint16_t thread_frame;
  int (*is_finalizing)();
};
extern Straight g_straight;

// The innermost frame of a thread's state, where g_straight is open.
inline const char* straight_innermost(const ThreadState* state) noexcept {
  const char* frame = field<const char*>(state, g_straight.thread_frame);
  if (!g_straight.through_cframe || frame == nullptr) return frame;
  return field<const char*>(frame, g_straight.cframe_frame);
}

// Reads up to `most` frames of the calling thread, innermost first, shims left out. 0: no Python runs here.
// Precondition: load_api() succeeded, the interpreter is not shutting down.
std::size_t read_frames(RawFrame* out, std::size_t most) noexcept;

// The frame that is calling out of Python now, in a hook; null: not known. As in WaitingFrame.
const char* waiting_frame() noexcept;

// Walks the frames as read_frames() does, but asks whether each address is mapped before it follows it. False: a frame
// lies outside of mapped memory or has no code object, so the layout is not this interpreter's.
bool frames_are_sensible() noexcept;

enum class FrameCheck {
  kPassed,
  kDiffers,  // the layout is not what the table says
  kLater,    // not now: somebody watches how code is evaluated, or memory or stack is short
  kRaised,   // a signal handler of the program raised its exception in between; it is set
};

// Compares the results of read_frames() and the line tables with the public API, on the current stack and in code that
// it runs (generators, comprehensions, lambdas, class bodies). With the GIL, no exception set.
FrameCheck check_frames() noexcept;

}  // namespace grape::python::scopes
