// Blocks that an observed call made and kept, though its result does not show them: the workspace of a library, which
// makes it in its first call.
#pragma once

#include <cstdint>
#include <vector>

#include "compressor/program/record.h"

namespace grape::program {

// Has the record say of the blocks that lie at `addresses` as the call ends that they were there before it, as they are
// for the calls that follow. Blocks that were born and died in the call where one of them came to lie are told apart by
// when they lived (live_memory.h). False, and nothing is changed: one of them was not made in the call, or lies where
// there was another block as the call began. May throw std::bad_alloc.
bool count_as_before(RegionRecord& record, const std::vector<std::uint64_t>& addresses);

}  // namespace grape::program
