// Finds the memory that a call can reach, and the changes that the call made. A shadow run needs both.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "python_hooks/proof/look_room.h"
#include "python_hooks/replay/call.h"
#include "shim/replay/shadow.h"

namespace grape::python::proof {

using program::overlap;

// All that the call can reach and that stays alive: arguments, the module's and the globals' tensors, and what the
// program's kernels are given besides. Disjoint, ascending. `globals` may be null.
std::vector<grape::replay::Shadow::Watched> reachable_memory(const replay::Region& region,
                                                             const program::Program& program,
                                                             const guards::GlobalsGuard* globals,
                                                             const replay::Call& call);

// Claims room for copies of this memory, before the call and behind it. An optimizer's call has weights, gradients and
// state; true for all others. False: too little is free.
bool claim_copies(const replay::Region& region, const replay::Call& call,
                  const std::vector<grape::replay::Shadow::Watched>& memory, LookRoom& room, refusal::Refusal& refusal);

// Did the call change PyTorch's switches, its module, or what its code names? The refusal says which; none: it did not.
// `globals` may be null.
refusal::Refusal changed_by_call(const replay::Region& region, guards::GlobalsGuard* globals, const replay::Call& call);

// Did the call change autograd's notes of tensors that only globals hold? The globals hold. None: it did not.
refusal::Refusal moved_in_globals(const std::vector<walk::TensorVersion>& before);

// The memory of the program's outputs at `addresses`, in the order of the recipes, as far as the outcome's tensors use
// it.
std::vector<grape::replay::Shadow::Range> output_ranges(const program::Program& program,
                                                        const std::vector<std::uint64_t>& addresses,
                                                        const std::vector<replay::OutputRecipe>& recipes,
                                                        const effects::CallOutcome& outcome);
// What these hold.
std::vector<device::Element> output_elements(const std::vector<replay::OutputRecipe>& recipes,
                                             const effects::CallOutcome& outcome);
// What a tensor of this c10::ScalarType holds.
device::Element element_of(std::int32_t type) noexcept;

// May a graph stand in that gave `found` in the shadow? With the GIL.
bool is_good(grape::replay::Shadow::Found found) noexcept;

}  // namespace grape::python::proof
