// Addresses become symbols. A word that points into a block which is alive at that node is (block, offset); words are
// looked at where they are 8-byte aligned in the packed parameters. Inputs win over statics where both hold. A pointer
// one past a block's end belongs to no block, unless another one begins there.
#pragma once

#include "compressor/program/program.h"

namespace grape::program {

// Never fails on a consistent record; `record` may be moved from. O(words * log(blocks)).
Program symbolise(RegionRecord record);

}  // namespace grape::program
