// Tells of each frame of Python code on a thread, as it begins or goes on (generators). By the interpreter's frame
// evaluation (PEP 523), so Python code sees nothing of it. With the GIL.
#pragma once

namespace grape::python::state {

using OnFrame = void (*)(void* context, const void* frame);  // frame: for frame_code() and the like of cpython.h

// From now on this thread's frames are told. False: not possible, since somebody else evaluates frames, or since this
// interpreter does not work as expected (then with one notice).
bool hook_calls(OnFrame on_frame, void* context) noexcept;
// False: somebody else has taken over the evaluation of frames meanwhile, or does so now and then.
bool unhook_calls() noexcept;
// The program has set a profile function of its own on this thread: it stays.
void leave_profile() noexcept;

}  // namespace grape::python::state
