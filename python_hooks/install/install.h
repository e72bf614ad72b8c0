// Installs the hooks into Python: from the first driver call on, by a pending call in the interpreter's main thread. If
// the main thread runs no Python for a while (it waits for the thread that trains), a thread of Grape's installs them.
#pragma once

#include <atomic>

namespace grape::python::install {

// Called from the driver's wrappers on the way (cheap when there is nothing to do): asks the interpreter for a pending
// call that installs the hooks, once there is an interpreter and torch is imported. errno is kept.
extern std::atomic<bool> g_settled;  // nothing is left to do
__attribute__((cold)) void look_if_due() noexcept;
inline void on_driver_call() noexcept {
  if (__builtin_expect(!g_settled.load(std::memory_order_relaxed), 0)) look_if_due();
}

// With the GIL, in the main interpreter: hooks what is there by now (torch.nn.Module's call, autograd's backward,
// optimizers' steps, the functions of GRAPE_REGIONS). Imports nothing. Python code sees nothing of it: no object is
// replaced, only how functions are called. True: there is nothing left to wait for.
bool install_regions() noexcept;

}  // namespace grape::python::install
