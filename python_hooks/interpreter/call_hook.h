// Reports each frame of Python code on a thread, when it begins or resumes (generators). Uses the interpreter's frame
// evaluation (PEP 523), which Python code does not see. With the GIL.
#pragma once

namespace grape::python {

using OnFrame = void (*)(void* context, const void* frame);  // frame: for frame_code() and the like of cpython.h

// Reports this thread's frames from now on. False: somebody else evaluates frames, or this interpreter does not work as
// expected (then with one notice).
bool hook_calls(OnFrame on_frame, void* context) noexcept;
// False: frames may be missing. Somebody else has taken over their evaluation meanwhile, or calls were nested so deeply
// that reports would have needed too much of the stack.
bool unhook_calls() noexcept;
// The program has set a profile function of its own on this thread; it stays.
void leave_profile() noexcept;

}  // namespace grape::python
