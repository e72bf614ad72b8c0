// Observes the backward passes of an observed call. They run as always, on whatever thread runs the call's nodes; what
// these launch is recorded. Two that did the same work prove a pass that may stand in for others like it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "python_hooks/proof/border.h"
#include "python_hooks/proof/proof.h"

namespace grape::python::proof {

// What is known of an observed call when it has returned.
struct AwaitedCall {
  std::string name;  // the region's
  replay::WorkPlace work;
  program::RandomState random;
  std::uint32_t module_epoch = 0;
  std::vector<program::Extent> saved;    // as in Border::saved, where this call has them
  std::vector<program::Extent> guarded;  // the module's tensors
  // Memory of what is saved as a replay of this call in the shadow left it; owned. Null: none ran. `shadowed`: per
  // saved, the address there; 0: in the call's own memory alone. `saved_at`: of those that are, OutputRecipe::saved_at.
  Object* shadow = nullptr;
  std::vector<std::uint64_t> shadowed, saved_at;
  std::shared_ptr<replay::LookCosts> costs;  // of looks at calls of the region; null: it is a check
  LookRoom room;                             // for all that is kept and copied
  bool proves = false;                       // the call is proven: so its backward pass may be
  bool checks = false;  // it runs in place of a replay: its passes are compared with what is proven
};

// The call's backward passes are observed from here on, if it has any. `proven`: null, or the call's. Takes the border
// and what a shadow left for the pass.
void await_backward(const replay::Region& region, replay::Signature& signature, const replay::Call& call,
                    const replay::Observation& observation, const replay::Proven* proven, ObservedCall& observed);

// The backward passes of a checked call are compared with those that stand in for them. `memory`: of what is saved, as
// the shadow of the call left it; null: there is none. Takes both.
void check_backward(const replay::Region& region, const replay::Proven& proven, const replay::Call& call,
                    const program::RandomState& random, ObservedBorder& border, Object*& memory);

}  // namespace grape::python::proof
