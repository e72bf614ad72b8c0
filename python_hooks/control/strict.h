// GRAPE_STRICT=1: what would run as always, though it was proven or was given a chance to be, is an error instead.
#pragma once

#include "python_hooks/replay/region.h"

namespace grape::python::replay {

// Sets a RuntimeError that says why `region` is not replayed, with the place and what to change. Returns null, as the
// call does. With the GIL.
Object* raise_not_replayed(const Region& region, const refusal::Refusal& refusal) noexcept;

// Why the region's last call was not replayed; no refusal where that is not known.
refusal::Refusal last_refusal(const Region& region) noexcept;

}  // namespace grape::python::replay
