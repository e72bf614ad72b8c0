// The entry of each call of a module or a named function: it is replayed, observed, or run as always. And the report at
// the end of the process.
#pragma once

#include <cstdint>

#include "python_hooks/interpreter/cpython.h"

namespace grape::python::control {

// Is mode replay in force, and all that it needs there?
enum class Enabled : std::uint8_t { kNotYet, kNo, kYes };
Enabled enabled() noexcept;

// Spent in calls of regions so far, of all threads: in the outermost ones, so that no time counts twice. With the GIL.
double seconds_in_regions() noexcept;

// In place of Module.__call__: `eager` is what it ran before. Same arguments, same result, same exceptions.
Object* call(Vectorcall eager, Object* function, Object* const* arguments, std::size_t count, Object* names);
// In place of a function that GRAPE_REGIONS names.
Object* call_function(Vectorcall eager, Object* function, Object* const* arguments, std::size_t count, Object* names);

// What became of each region, in words for the user: to GRAPE_REPORT (JSON), and in a few lines on stderr where
// GRAPE_LOG=info asks for them; and to GRAPE_CACHE what that is to have. With the GIL; once, when the interpreter goes.
void write_report() noexcept;

}  // namespace grape::python::control
