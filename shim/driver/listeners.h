// Events that the wrappers report to other rooms: a context goes or is gone, or device memory is short. Listeners are
// added while the library is loaded, at most eight of each kind, and stay. Any thread may report.
#pragma once

#include <cuda.h>

namespace grape::driver {

// Is called after the context is gone: none of its handles may be used.
using ContextListener = void (*)(CUcontext context) noexcept;
void add_context_listener(ContextListener listener) noexcept;
void tell_context_gone(CUcontext context) noexcept;

// Is called before a context goes, or may go. Threads of Grape's that work in it are to end in the call.
using LeaveListener = void (*)() noexcept;
void add_leave_listener(LeaveListener listener) noexcept;
void tell_context_goes() noexcept;

// Gives back device memory that Grape keeps in the current context for later. False: it keeps none.
using MemoryKeeper = bool (*)() noexcept;
void add_memory_keeper(MemoryKeeper keeper) noexcept;
// A call was refused for want of device memory. True: some memory was given back, so a second try may succeed.
bool give_memory_back() noexcept;

}  // namespace grape::driver
