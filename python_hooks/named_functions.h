// The functions that GRAPE_REGIONS names, among the modules that are imported.
#pragma once

#include "python_hooks/cpython.h"

namespace grape::python {

// Calls `found` for each Python function (methods, static and class methods too) in sys.modules whose
// "package.module:Qualified.name" matches `patterns`. Looks only when modules were imported since the last time, but
// for __main__. With the GIL; imports nothing, leaves no exception.
void find_named_functions(const char* patterns, void (*found)(Object* function, const char* name)) noexcept;

}  // namespace grape::python
