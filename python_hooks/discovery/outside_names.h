// What GRAPE_REGIONS calls the functions whose launches were sampled. With the GIL.
#pragma once

#include <vector>

#include "python_hooks/discovery/outside_stacks.h"

namespace grape::python::replay {

// Finds out which of them are candidates, and which train. A candidate is only a function that is found by its name, as
// those in GRAPE_REGIONS are; none is PyTorch's or the standard library's, cannot be replayed, or is a region. Runs no
// code of the program's, leaves no exception; may throw std::bad_alloc.
void name_codes(std::vector<SampledCode>& codes);

}  // namespace grape::python::replay
