// Recognises objects that a program may put in the place of a library's function, and that have state of their own.
// With the GIL.
#pragma once

#include "python_hooks/interpreter/cpython.h"

namespace grape::python::walk {

// A function of C's, not of a module's or a class's, but of an object: "get = TABLE.get".
bool is_bound_builtin(Object* value) noexcept;

// A bound method or another callable object of the user's classes or code. A library that holds it may act otherwise
// when its state changes. Not plain functions: a guard knows those that run.
bool is_users_callable(Object* value) noexcept;
// That, or a function of C's that is bound to a container or an iterator.
bool is_callable_with_state(Object* value) noexcept;
// That, or what may hold such: a partial, a staticmethod, a classmethod.
bool may_hold_state(Object* value) noexcept;

}  // namespace grape::python::walk
