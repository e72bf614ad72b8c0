// A graph's nodes launched one by one, into one stream: as long as the device takes longer for a node than the host for
// its launch, that is as quick as a graph launch, and needs no exec. Calls the driver's real functions.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compressor/program/program.h"
#include "shim/virtual_execs/shape.h"

namespace grape::virtual_execs {

// The order in which the nodes of such graphs can follow each other. Empty: they are not to be launched one by one:
// some may run side by side, are another context's, or have a launch attribute that only graphs know. Throws
// std::bad_alloc.
std::vector<std::uint32_t> sequence_of(const Shape& shape);

// Can copies and memsets be done on a stream as they are done in a graph? Those of host memory cannot: there they are
// read when they are launched.
bool can_be_launched(const Shape& shape, const program::Program& program) noexcept;

// Launches them in that order, but for `disabled` ones (ascending). The shape's context is current. The driver's first
// error ends it, or CUDA_ERROR_OUT_OF_MEMORY of the host's. `done`: how many of the sequence have been launched, or
// need not be.
CUresult launch_nodes(const Shape& shape, const program::Program& program, const std::vector<std::uint32_t>& sequence,
                      const std::vector<std::uint32_t>& disabled, CUstream stream, std::size_t& done) noexcept;

}  // namespace grape::virtual_execs
