// Whose code is it? With the GIL.
#pragma once

#include "python_hooks/cpython.h"

namespace grape::python::state {

enum class CodeOrigin {
  kUser,       // everything else
  kInstalled,  // below a site-packages or dist-packages folder, or where PyTorch lies
  kStandard,   // the standard library, frozen modules too
};

// By the file of `code`; where that is no file ("<string>"), by the module that `globals` (may be null) are of.
CodeOrigin origin_of(Object* code, Object* globals) noexcept;
// A module's, a class's or a plain function's; anything else is the user's.
CodeOrigin origin_of_globals(Object* globals) noexcept;
// Of a module's dictionary: may anybody set its names, as settings and counts?
bool is_users_module(Object* dict) noexcept;

}  // namespace grape::python::state
