// A call as a member of a family, as far as it is known before it runs.
#pragma once

#include <cstdint>
#include <memory>

#include "compressor/families/family.h"

namespace grape::python::proof {

struct MemberCall {
  bool may_be_proven() const { return family != nullptr && family->may_prove(); }

  std::shared_ptr<families::Family> family;  // the region's as well; null: it is of none
  families::Numbers numbers;                 // of its signature
  std::uint64_t call = 0;                    // its number among the region's
};

}  // namespace grape::python::proof
