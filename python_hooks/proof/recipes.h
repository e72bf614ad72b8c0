// Recipes for a call's outputs: which block that the call left alive holds which tensors that it made.
#pragma once

#include "compressor/program/record.h"
#include "python_hooks/replay/region.h"

namespace grape::python::proof {

// The births of the blocks that were born inside and outlive the record, in order: as program::symbolise() has outputs.
std::vector<program::BlockEvent> surviving_blocks(const program::RegionRecord& record);

// Addresses of the blocks that the call made and left alive, and that none of its results holds.
std::vector<std::uint64_t> blocks_without_result(const program::RegionRecord& record,
                                                 const effects::CallOutcome& outcome);

// Numbers the blocks born inside and alive at the end as program::symbolise() does. `saved`: addresses of those that
// the backward pass alone needs. False: a block outlives the call that none of these is, no result holds and autocast
// does not keep, or a result lies in memory that the call did not make; `refusal`
// says which.
bool make_recipes(const program::RegionRecord& record, const effects::CallOutcome& outcome,
                  const std::vector<replay::LeftCast>& casts, const std::vector<std::uint64_t>& saved,
                  std::vector<replay::OutputRecipe>& recipes, std::vector<std::uint64_t>& addresses,
                  refusal::Refusal& refusal);

}  // namespace grape::python::proof
