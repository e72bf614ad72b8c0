// Names of torch's constants (dtypes, layouts, memory formats) that hold in other processes. With the GIL.
#pragma once

#include <cstdint>

#include "python_hooks/interpreter/cpython.h"

namespace grape::python::torch {

// A hash of the constant's class and of the least name that `torch` has for it. Throws std::bad_alloc.
std::uint64_t portable_constant(Object* constant);

}  // namespace grape::python::torch
