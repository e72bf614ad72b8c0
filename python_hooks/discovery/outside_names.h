// What GRAPE_REGIONS calls the functions whose launches were sampled. With the GIL.
#pragma once

#include <string>
#include <vector>

#include "python_hooks/discovery/outside_choice.h"
#include "python_hooks/discovery/outside_stacks.h"

namespace grape::python::replay {

struct NamedCode {
  CalledCode called;
  std::string region;          // "package.module:Qualified.name" of a candidate
  Object* function = nullptr;  // of that name, borrowed from its module or class
};

// For each code, in the same order. A name is given only where looking for it, as for those in GRAPE_REGIONS, finds the
// very function; PyTorch's and the standard library's have none, nor has what cannot be replayed or is a region. Runs
// no code of the program's, leaves no exception; may throw std::bad_alloc.
std::vector<NamedCode> name_codes(const std::vector<SampledCode>& codes);

}  // namespace grape::python::replay
