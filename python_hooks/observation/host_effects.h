// Functions with effects that no guarded state shows (host_effects.def). C functions are recognised by their
// definitions (traps.h), functions of the standard library and of PyTorch by their code objects, never by name alone.
// With the GIL.
#pragma once

#include "python_hooks/interpreter/cpython.h"
#include "python_hooks/observation/traps.h"

namespace grape::python::observation {

// Finds the listed functions in the modules that are imported by now. Imports nothing; cheap when nothing is new.
// False: one of them could not be watched.
bool find_effects() noexcept;

// The effect of running this code; null: it has none of its own.
const HostEffect* effect_of(Object* code) noexcept;

}  // namespace grape::python::observation
