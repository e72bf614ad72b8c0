// Proofs of earlier processes (GRAPE_CACHE): one of them may be the other observed call of a proof. With the GIL.
#pragma once

#include <memory>

#include "python_hooks/proof/observe.h"
#include "python_hooks/proof/proof.h"

namespace grape::python::replay {

// Did one prove such a call? After proven_earlier().
bool known_earlier(const Region& region, const Signature& signature);

// What other processes can know of the call.
const cache::Call& name_of(const Region& region, const Signature& signature, const Observation& observation,
                           Seen& seen);

// An observed call of an earlier process, which proved the program, and this one; none of that one's bytes is run.
// Null: it is none, or `seen.refusal` says why not. Throws std::bad_alloc.
std::unique_ptr<Proven> prove_by_earlier(Region& region, const Signature& signature, const Call& call,
                                         Observation& observation, std::unique_ptr<Trial>& trial, Seen& seen);
// Of a call that was compared with one of this process: what it tells of bytes that an earlier process had otherwise.
// Throws std::bad_alloc.
void note_earlier(const Region& region, const Signature& signature, const Observation& observation, Seen& seen);

}  // namespace grape::python::replay
