// The state of a region's module (or function), which its proofs stand on. A few that it was in before are kept with
// what was proven in them. With the GIL.
#pragma once

#include <cstdint>

#include "python_hooks/replay/region.h"

namespace grape::python::replay {

struct Call;

enum class Guarded : std::uint8_t {
  kHolds,
  kAnew,     // it holds, but proofs are void that stood on another state
  kNotNow,   // it cannot be guarded in the state that it is in now: the next calls tell whether that lasts
  kRefused,  // the same for good: the region is given up
};

// Before a call of it is looked up. `refusal`: what changed, or is refused. Throws std::bad_alloc.
Guarded ensure_guard(Region& region, const Call& call, refusal::Refusal& refusal);

bool has_proofs(const Signatures& signatures);

}  // namespace grape::python::replay
