// A backward pass that an observed call runs itself, as torch.autograd.grad does. The thread of autograd that runs its
// nodes is attached to the call's scope meanwhile. With the GIL.
#pragma once

#include "python_hooks/interpreter/cpython.h"

namespace grape::python::observation {

// Does the calling thread work for an observed call?
bool works_for_observed_call() noexcept;

// Runs the pass with `run`, torch._C's own method. It is followed if all that it does is known to be the call's;
// ExecutedCode refuses the call otherwise. May be unwound.
Object* run_inner_pass(MethodWithKeywords run, Object* engine, Object* arguments, Object* keywords);

}  // namespace grape::python::observation
