// Addresses of the host's stack in structs that kernels get by value: functions that have returned left them where
// nobody set anything. No kernel can use them, and they change with the height at which an operator is called.
#pragma once

#include <vector>

#include "compressor/program/record.h"

namespace grape::program {

// Zeroes all that lie in one of `stacks`, at any multiple of four bytes, within one parameter of more than a pointer's
// size; of kernels with known layout. A kernel that used one would find zero there in its shadow replay.
void clear_stack_addresses(RegionRecord& record, const std::vector<Extent>& stacks);

}  // namespace grape::program
