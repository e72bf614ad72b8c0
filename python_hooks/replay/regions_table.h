// Finds the region of a module or function, and reports all regions. Destroying a region ends tensors, during which
// other threads run and call modules: so no region is destroyed while the table is being read or changed. With the GIL.
#pragma once

#include "python_hooks/replay/region.h"
#include "python_hooks/report/report_text.h"

namespace grape::python::replay {

// The region of a module, or of a function and the module that is its first argument (null: it is none); null: no
// memory, or one that is never replayed.
Region* region_of(Object* root, Object* self) noexcept;
// Was any region's call that of a module?
bool module_was_called() noexcept;

// The reports of all regions, those of modules that are gone included. May throw std::bad_alloc.
void add_regions(report::RunReport& report);

}  // namespace grape::python::replay
