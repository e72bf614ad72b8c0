// Behind an observed call: what it was, for Python and on the device.
#pragma once

#include <memory>

#include "python_hooks/proof/proof.h"

namespace grape::python::proof {

// Ends what `observed` records. `result`: the call's; null: it raised. Null: `observed.refusal` says why this call is
// of no use. With the GIL. Throws std::bad_alloc.
std::unique_ptr<replay::Observation> conclude(replay::Region& region, const replay::Signature& signature,
                                              const replay::Call& call, Object* result, ObservedCall& observed);

}  // namespace grape::python::proof
