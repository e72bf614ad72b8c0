// Proofs of earlier processes (GRAPE_CACHE). A proof needs two observed calls; the other one may be of an earlier
// process. With the GIL.
#pragma once

#include <memory>

#include "python_hooks/proof/observe.h"
#include "python_hooks/proof/proof.h"

namespace grape::python::replay {

// Did an earlier process prove such a call? After proven_earlier().
bool known_earlier(const Region& region, const Signature& signature);

// The name by which other processes know the call; asked once for each `seen`.
const cache::Call& name_of(const Region& region, const Signature& signature, const Observation& observation,
                           Seen& seen);

// Proves this call's program if an earlier process proved the same program for the same call. Runs none of the earlier
// bytes. Null: it did not, or `seen.refusal` says why not. Throws std::bad_alloc.
std::unique_ptr<Proven> prove_by_earlier(Region& region, const Signature& signature, const Call& call,
                                         Observation& observation, std::unique_ptr<Trial>& trial, Seen& seen);
// Compares a call, which was compared with one of this process already, with the earlier process's as well, to learn
// about padding. Throws std::bad_alloc.
void note_earlier(const Region& region, const Signature& signature, const Observation& observation, Seen& seen);

}  // namespace grape::python::replay
