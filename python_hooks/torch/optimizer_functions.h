// The functions of PyTorch that compute an optimizer's step, or the norm of all gradients, from lists of tensors. Where
// Grape finds functions by itself, they are regions as soon as the program trains. Named by the rule that torch.optim's
// modules follow in PyTorch 2.8 to 2.11: one function for each way to compute, called by the module's functional form.
#pragma once

#include "python_hooks/interpreter/named_functions.h"

namespace grape::python::torch {

// Is it one of them? `name`: "package.module:Qualified.name". Any thread.
bool is_optimizer_function(const char* name) noexcept;

// Functions whose source is known. They hand kernels numbers that follow from their rate, or from the number of steps.
// Nothing branches on either.
enum class KnownOptimizer : std::uint8_t {
  kNone,    // another function, or other source than that of PyTorch 2.8 to 2.11
  kByRate,  // numbers follow from the rate
  kAdam,    // from the rate, and from the number of steps where that is on the CPU
};
// By the function's name, and by a digest of the file that its code is from. With the GIL. Reads the file.
KnownOptimizer known_optimizer(Object* function, const char* name) noexcept;

// Calls `found` for each one in the modules that are imported. With the GIL; imports nothing, leaves no exception.
// Throws std::bad_alloc.
void find_optimizer_functions(const FoundFunction& found);

}  // namespace grape::python::torch
