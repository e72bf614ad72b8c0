// What a program may put in the place of a library's function, and that holds something of its own. With the GIL.
#pragma once

#include "python_hooks/interpreter/cpython.h"

namespace grape::python::walk {

// A function of C's, not of a module's or a class's, but of an object: "get = TABLE.get".
bool is_bound_builtin(Object* value) noexcept;

// The state of these may change what a library does that holds them, while it holds the same objects. Bound methods and
// objects that can be called, of the user's classes or code. Not plain functions: those that run are known.
bool is_users_callable(Object* value) noexcept;
// That, or a function of C's that is bound to a container or an iterator.
bool is_callable_with_state(Object* value) noexcept;
// That, or what may hold such: a partial, a staticmethod, a classmethod.
bool may_hold_state(Object* value) noexcept;

}  // namespace grape::python::walk
