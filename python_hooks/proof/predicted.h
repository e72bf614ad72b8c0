// Proves calls by what similar calls foretell (docs/FAMILIES.md). A proof needs two observed calls; the other one may
// be what the members of a family foretell. With the GIL; all throw std::bad_alloc.
#pragma once

#include <memory>

#include "python_hooks/proof/proof.h"

namespace grape::python::proof {

// Of which family is the call? Before it runs. No family: such calls are in none.
MemberCall find_family(replay::Region& region, const replay::Call& call);

// Puts the observed call into its family. True: it is what the others foretell, and that may prove it. Where it shows
// that the family's calls depend on more than their numbers, what was proven by a family begins anew.
bool note_member(replay::Region& region, const replay::Observation& observation, ObservedCall& observed);

// Proves this call's program, after note_member(). Null: `observed.refusal` says why not.
std::unique_ptr<replay::Proven> prove_by_family(replay::Region& region, const replay::Call& call,
                                                replay::Observation& observation,
                                                std::unique_ptr<replay::PaddingTrial>& trial, ObservedCall& observed);

}  // namespace grape::python::proof
