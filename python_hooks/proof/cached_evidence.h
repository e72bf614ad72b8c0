// Proves calls with evidence of earlier processes (GRAPE_CACHE). A proof needs two observed calls; one of them may be
// an earlier process's. With the GIL.
#pragma once

#include <memory>

#include "python_hooks/proof/observe.h"
#include "python_hooks/proof/proof.h"

namespace grape::python::proof {

// Did an earlier process prove such a call? After proven_in_cache().
bool known_in_cache(const replay::Region& region, const replay::Signature& signature);

// Could one observed call be proven, had it evidence from elsewhere? Null: it could; else why not.
const char* why_not_alone(const replay::Observation& observation, const ObservedCall& observed);

// The name by which other processes know the call; asked once for each `observed`.
const cache::Call& name_of(const replay::Region& region, const replay::Signature& signature,
                           const replay::Observation& observation, ObservedCall& observed);

// Proves this call's program if an earlier process proved the same program for the same call. Runs none of the earlier
// bytes. Null: it did not, or `observed.refusal` says why not. Throws std::bad_alloc.
std::unique_ptr<replay::Proven> prove_by_cache(replay::Region& region, const replay::Signature& signature,
                                               const replay::Call& call, replay::Observation& observation,
                                               std::unique_ptr<replay::PaddingTrial>& trial, ObservedCall& observed);
// Compares a call, which was compared with one of this process already, with the earlier process's as well, to learn
// about padding. Throws std::bad_alloc.
void note_cached(const replay::Region& region, const replay::Signature& signature, replay::Observation& observation,
                 ObservedCall& observed);

}  // namespace grape::python::proof
