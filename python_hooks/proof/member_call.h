// A call as a member of a family, as far as it is known before it runs.
#pragma once

#include <cstdint>

#include "compressor/families/family.h"

namespace grape::python::proof {

struct MemberCall {
  families::Family* family = nullptr;  // the region's; null: it is of none
  families::Numbers numbers;           // of its signature
  std::uint64_t call = 0;              // its number among the region's
};

}  // namespace grape::python::proof
