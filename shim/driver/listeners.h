// What the wrappers tell other rooms: that a context is gone, and that device memory is short. Listeners are added
// while the library is loaded, at most eight of each kind, and stay. Telling: any thread.
#pragma once

#include <cuda.h>

namespace grape::driver {

// Called after the context is gone: none of its handles may be used.
using ContextListener = void (*)(CUcontext context) noexcept;
void add_context_listener(ContextListener listener) noexcept;
void tell_context_gone(CUcontext context) noexcept;

// Gives back device memory that Grape keeps in the current context for later. False: it keeps none.
using MemoryKeeper = bool (*)() noexcept;
void add_memory_keeper(MemoryKeeper keeper) noexcept;
// A call was refused for want of device memory. True: some was given back, the call may do better now.
bool give_memory_back() noexcept;

}  // namespace grape::driver
