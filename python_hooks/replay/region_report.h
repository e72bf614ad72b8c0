// What became of a region, for the report.
#pragma once

#include "python_hooks/replay/region.h"
#include "python_hooks/report/report_text.h"

namespace grape::python::replay {

// With the GIL. May throw std::bad_alloc.
RegionReport report_of(const Region& region);

}  // namespace grape::python::replay
