// A graph's nodes launched one by one, into one stream or several: as long as the device takes longer for a node than
// the host for its launch, that is as quick as a graph launch, and needs no exec. Calls the driver's real functions.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compressor/program/program.h"
#include "shim/virtual_execs/lanes.h"
#include "shim/virtual_execs/sequence.h"
#include "shim/virtual_execs/shape.h"

namespace grape::virtual_execs {

// Can such nodes be launched into streams? Not those of another context, or with a launch attribute that only graphs
// know.
bool can_be_launched(const Shape& shape) noexcept;

// Can copies and memsets be done on a stream as they are done in a graph? Those of host memory cannot: there they are
// read when they are launched.
bool can_be_launched(const Shape& shape, const program::Program& program) noexcept;

// Launches them in that order, but for `disabled` ones (ascending), whose edges hold all the same. `lanes`: for a
// sequence with more than one. The shape's context is current. The driver's first error ends it, or
// CUDA_ERROR_OUT_OF_MEMORY of the host's: then what comes into the stream comes behind what was launched. `done`: how
// many steps need not be launched any more; 0: no node was.
CUresult launch_nodes(const Shape& shape, const program::Program& program, const Sequence& sequence,
                      const std::vector<std::uint32_t>& disabled, CUstream stream, const Lanes* lanes,
                      std::size_t& done) noexcept;

}  // namespace grape::virtual_execs
