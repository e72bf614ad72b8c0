// What a shadow run needs to know of the call beside which it runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "python_hooks/replay/call.h"
#include "shim/replay/shadow.h"

namespace grape::python::replay {

// All that the call can reach and that stays alive: arguments, the module's and the globals' tensors, and what the
// program's kernels are given besides. Disjoint, ascending. `globals` may be null.
std::vector<grape::replay::Shadow::Watched> reachable_memory(const Region& region, const program::Program& program,
                                                             const state::GlobalsGuard* globals, const Call& call);

// What the call has left otherwise than it found it: PyTorch's switches, its module, what its code names. In words for
// the user. `globals` may be null.
refusal::Refusal changed_by_call(const Region& region, state::GlobalsGuard* globals, const Call& call);

// What the call moved of what autograd notes of tensors that only globals hold, while these hold.
refusal::Refusal moved_in_globals(const std::vector<state::TensorVersion>& before);

// Of the program's outputs at `addresses`, in the order of the recipes: the bytes that the outcome's tensors have.
std::vector<grape::replay::Shadow::Range> output_ranges(const program::Program& program,
                                                        const std::vector<std::uint64_t>& addresses,
                                                        const std::vector<OutputRecipe>& recipes,
                                                        const state::Outcome& outcome);

}  // namespace grape::python::replay
