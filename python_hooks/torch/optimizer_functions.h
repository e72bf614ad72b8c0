// The functions of PyTorch that compute an optimizer's step, or the norm of all gradients, from lists of tensors. Where
// Grape finds functions by itself, they are regions as soon as the program trains. Named by the rule that torch.optim's
// modules follow in PyTorch 2.8 to 2.11: one function for each way to compute, called by the module's functional form.
#pragma once

#include "python_hooks/interpreter/named_functions.h"

namespace grape::python::torch {

// Is it one of them? `name`: "package.module:Qualified.name". Any thread.
bool is_optimizer_function(const char* name) noexcept;

// Functions whose source is known: the rate that they are given, and the number of steps so far, become numbers that
// they hand to kernels, and nothing branches on either.
enum class KnownOptimizer : std::uint8_t {
  kNone,       // another function, or other source than that of PyTorch 2.8 to 2.11
  kSgd,        // by the rate
  kFusedAdam,  // the same
  kAdam,       // by the rate and the number of steps, which is on the CPU; or by the rate, where it is on a GPU
};
// By the function's name, and by a digest of the file that its code is from. With the GIL. Reads the file.
KnownOptimizer known_optimizer(Object* function, const char* name) noexcept;

// Calls `found` for each one in the modules that are imported. With the GIL; imports nothing, leaves no exception.
// Throws std::bad_alloc.
void find_optimizer_functions(const FoundFunction& found);

}  // namespace grape::python::torch
