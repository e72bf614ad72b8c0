// What became of each region, in words for the user: at exit to GRAPE_REPORT (JSON), and in a few lines on stderr where
// GRAPE_LOG=info asks for them.
#pragma once

#include <string>

#include "python_hooks/replay/region.h"

namespace grape::python::replay {

// With the GIL; once, when the interpreter goes.
void write_report() noexcept;

// One region as a JSON object.
std::string report_of(const Region& region);

// Calls `visit` for each region.
void for_each_region(void (*visit)(const Region& region, void* context), void* context);

}  // namespace grape::python::replay
