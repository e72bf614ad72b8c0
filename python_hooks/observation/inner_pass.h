// A backward pass that an observed call runs itself, as torch.autograd.grad does. The thread of autograd that runs its
// nodes is attached to the call's scope meanwhile. With the GIL.
#pragma once

#include "python_hooks/interpreter/cpython.h"

namespace grape::python::observation {

// Is the Python code of the calling thread that of an observed call?
bool code_is_followed() noexcept;

// On such a thread: runs the pass with `run`, torch._C's own method. It is followed if all that it does is known to be
// the call's; ExecutedCode refuses the call otherwise. May be unwound.
Object* run_inner_pass(MethodWithKeywords run, Object* engine, Object* arguments, Object* keywords);

}  // namespace grape::python::observation
