// Tells of each frame of Python code on a thread, as it begins or goes on (generators). By the interpreter's frame
// evaluation (PEP 523), so Python code sees nothing of it. With the GIL.
#pragma once

namespace grape::python::state {

using OnFrame = void (*)(void* context, const void* frame);  // frame: for frame_code() and the like of cpython.h

// From now on this thread's frames are told. False: not possible, since somebody else evaluates frames, or since this
// interpreter does not work as expected (then with one notice).
bool hook_calls(OnFrame on_frame, void* context) noexcept;
// False: not all frames may have been told, since somebody else has taken over their evaluation meanwhile, or since
// calls were nested so deeply that hearing of them might have cost too much of the stack.
bool unhook_calls() noexcept;
// The program has set a profile function of its own on this thread: it stays.
void leave_profile() noexcept;

}  // namespace grape::python::state
