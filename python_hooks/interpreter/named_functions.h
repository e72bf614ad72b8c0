// The functions that GRAPE_REGIONS names, among the modules that are imported.
#pragma once

#include <functional>

#include "python_hooks/interpreter/cpython.h"

namespace grape::python {

using FoundFunction = std::function<void(Object* function, const char* name)>;

// Calls `found` for each Python function (methods, static and class methods too) in sys.modules whose
// "package.module:Qualified.name" matches `patterns`. Looks only when modules were imported since the last time, but
// for __main__. With the GIL; imports nothing, leaves no exception.
void find_named_functions(const char* patterns, const FoundFunction& found) noexcept;

// Calls `found` for each Python function of this module, whatever its name. Runs no code of the program's; throws what
// `found` throws. Precondition: check_objects().
void each_function(const char* name, Object* module, const FoundFunction& found);

// Is it a name as "package:Class.__init__"? The interpreter calls such functions at times of its own, and a pattern may
// match them among others.
bool is_special(const char* name) noexcept;

}  // namespace grape::python
