// The numbers that functions of PyTorch's optimizers hand their kernels (torch/optimizer_functions.h). The rate may be
// another one in each call, and the number of steps always is. So the signature leaves them out. Observed calls with
// other numbers show which words they are in (compressor/program/numbers.h), and a replay puts this call's numbers
// there. With the GIL.
#pragma once

#include "python_hooks/replay/call.h"

namespace grape::python::replay {

// Finds the call's numbers, and what its signature leaves out. None: the function is no such one, or its rate is no
// float, or the tensors that count steps are not all equal. Throws std::bad_alloc.
void take_numbers(const Region& region, Call& call);

}  // namespace grape::python::replay
