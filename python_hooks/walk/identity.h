// Numbers for objects that count by identity (classes, functions, code, modules). An address is no identity: it is used
// again when the object has died. A number stands for one object for good. With the GIL.
#pragma once

#include <cstdint>

#include "python_hooks/interpreter/cpython.h"

namespace grape::python::walk {

// The number of an object that can be referred to weakly; 0: it cannot, or there is no memory. Never the same for two
// objects, dead ones included. Keeps a weak reference, nothing more. Call under NoCollection.
std::uint64_t identity_of(Object* object) noexcept;

}  // namespace grape::python::walk
