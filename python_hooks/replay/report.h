// What became of each region, in words for the user: at exit to GRAPE_REPORT (JSON), and in a few lines on stderr where
// GRAPE_LOG=info asks for them.
#pragma once

#include "python_hooks/replay/region.h"
#include "python_hooks/replay/report_text.h"

namespace grape::python::replay {

// And what GRAPE_CACHE is to have, which the report tells of. With the GIL; once, when the interpreter goes.
void write_report() noexcept;

// One region's. May throw std::bad_alloc.
RegionReport report_of(const Region& region);

// All regions', those of modules that are gone included. May throw std::bad_alloc.
void add_regions(RunReport& report);

}  // namespace grape::python::replay
