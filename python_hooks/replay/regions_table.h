// The regions of this process, by the addresses of modules and functions. The end of a region is that of tensors,
// during which other threads run and call modules: none ends while the table is looked at. With the GIL.
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
void add_regions(RunReport& report);

}  // namespace grape::python::replay
