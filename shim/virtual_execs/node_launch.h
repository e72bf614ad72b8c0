// Launches a graph's nodes one by one, into one stream or several. This is as quick as a graph launch while the device
// takes longer for a node than the host for its launch, and it needs no exec. Calls the driver's real functions.
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

// Can the nodes be launched into streams? No if a node has another context, or a launch attribute that only graphs
// know.
bool can_be_launched(const Shape& shape) noexcept;

// Do the copies and memsets have the same effect on a stream? A graph reads host memory at its launch, so a copy of
// host memory does not.
bool can_be_launched(const Shape& shape, const program::Program& program) noexcept;

// Launches the nodes in the sequence's order. Nodes in `disabled` (ascending) are left out; their edges hold all the
// same. `lanes`: for a sequence with more than one. The shape's context is current. The driver's first error ends the
// launch, and so does the host's lack of memory (CUDA_ERROR_OUT_OF_MEMORY); later work of the stream then follows the
// launched nodes. `done`: the number of steps that need no other launch; 0: no node was launched.
CUresult launch_nodes(const Shape& shape, const program::Program& program, const Sequence& sequence,
                      const std::vector<std::uint32_t>& disabled, CUstream stream, const Lanes* lanes,
                      std::size_t& done) noexcept;

}  // namespace grape::virtual_execs
