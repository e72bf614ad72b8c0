// Observes a call: it runs as always, and its work and its effects are recorded.
#pragma once

#include "python_hooks/replay/call.h"

namespace grape::python::proof {

// Runs and records the call, and moves its signature to the next stage if the record allows that. Returns the call's
// result; null with the program's exception.
Object* observe(replay::Region& region, replay::Signature& signature, const replay::Call& call);

// The signature is proven, but not all of its backward passes are: the next call is compared with what was proven.
void observe_again(replay::Signature& signature);

// Did an earlier process prove such a call (GRAPE_CACHE)? Then one observed call may be enough. After write_sharing().
bool proven_in_cache(const replay::Region& region, replay::Signature& signature, const replay::Call& call);

}  // namespace grape::python::proof
