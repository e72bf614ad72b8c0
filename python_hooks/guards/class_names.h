// Finds the classes that define attributes with names of the program's own, like `__settings__`. With the GIL.
#pragma once

#include <vector>

#include "python_hooks/interpreter/cpython.h"

namespace grape::python::guards {

// "__settings__", but not "__init__": with two underscores on both sides, and none that the interpreter or the standard
// library gives a class or a module.
bool is_own_dunder(Object* name) noexcept;

// The heap types, of all that there are, in whose own dictionary one of these stands; borrowed. Goes through them all:
// for what is asked seldom. Throws std::bad_alloc.
std::vector<Object*> classes_that_define(const std::vector<Object*>& names);

}  // namespace grape::python::guards
