// A call that runs as always while everything about it is written down.
#pragma once

#include "python_hooks/replay/call.h"

namespace grape::python::replay {

// Runs the call eagerly, observed; moves the signature on as far as what was seen allows. Returns the call's result;
// null with the program's exception.
Object* observe(Region& region, Signature& signature, const Call& call);

// Did an earlier process prove such a call (GRAPE_CACHE)? Then one observed call may be enough. After write_sharing().
bool proven_earlier(const Region& region, Signature& signature, const Call& call);

}  // namespace grape::python::replay
