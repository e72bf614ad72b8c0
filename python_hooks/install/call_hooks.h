// Hooks into what Python calls, invisible to Python code: no object is replaced, only how functions are called.
#pragma once

#include "python_hooks/interpreter/cpython.h"

namespace grape::python {

// With the GIL, in the main interpreter: hooks what is there by now (torch.nn.Module's call, autograd's backward,
// optimizers' steps, the functions of GRAPE_REGIONS). Imports nothing. True: there is nothing left to wait for.
bool install_regions() noexcept;

}  // namespace grape::python
