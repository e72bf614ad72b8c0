// Converts the words of a stored node to the driver's parameter structs.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <cstring>

#include "compressor/program/program.h"
#include "shim/graphs/node_parameters.h"
#include "shim/virtual_execs/shape.h"

namespace grape::virtual_execs {

// Its parameters lie in `parameters` until the next one's.
inline CUDA_KERNEL_NODE_PARAMS_v2 kernel_of(const NodeShape& shape, const program::Program& program,
                                            const program::RecordedNode& node, graphs::NodeParameters& parameters) {
  return parameters.fill(graphs::kernel_shape(program, node, shape.kernel_handle, shape.context), program, node,
                         program.words.data());
}

inline CUDA_MEMCPY3D_v2 copy_of(const program::Program& program, const program::RecordedNode& node) noexcept {
  CUDA_MEMCPY3D_v2 copy;
  std::memcpy(&copy, program.words.data() + node.words_at, sizeof copy);
  return copy;
}

inline CUDA_MEMSET_NODE_PARAMS_v1 memset_of(const program::Program& program,
                                            const program::RecordedNode& node) noexcept {
  const std::uint64_t* w = program.words.data() + node.words_at;
  CUDA_MEMSET_NODE_PARAMS_v1 memset{};
  memset.dst = w[0];
  memset.value = static_cast<unsigned>(w[1]);
  memset.elementSize = static_cast<unsigned>(w[2]);
  memset.width = w[3];
  memset.height = w[4];
  memset.pitch = w[5];
  return memset;
}

}  // namespace grape::virtual_execs
