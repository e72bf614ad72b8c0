// What code may reach for that no state shows, and by what it is recognised: C functions by their definitions
// (traps.h), functions of the standard library and of PyTorch by their code objects, never by name alone. With the GIL.
#pragma once

#include "python_hooks/interpreter/cpython.h"
#include "python_hooks/observation/traps.h"

namespace grape::python::state {

// Finds what is listed among the modules that are imported by now. Imports nothing; cheap when nothing is new.
// False: something that is there could not be watched.
bool find_effects() noexcept;

// Does running this code have an effect? Null: none of its own.
const HostEffect* effect_of(Object* code) noexcept;

}  // namespace grape::python::state
