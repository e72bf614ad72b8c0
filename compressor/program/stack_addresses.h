// Addresses of the host's stack in structs that kernels get by value. Functions that have returned left them there.
// No kernel can use them. They change with the place that an operator is called from.
#pragma once

#include <vector>

#include "compressor/program/record.h"

namespace grape::program {

// Zeroes addresses in `stacks`, at multiples of four bytes. Each lies within one parameter of more than eight bytes.
// Kernels without a known layout are left alone. The shadow replay shows whether a kernel used one.
void clear_stack_addresses(RegionRecord& record, const std::vector<Extent>& stacks);

}  // namespace grape::program
