// Converts a program's kernel nodes to the driver's parameter structs. Makes no driver calls; one thread at a time per
// object.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compressor/program/program.h"

namespace grape::graphs {

// All but the parameters. `kernel_handle`: the function's handle is a CUkernel's. `context`: may be null for others.
inline CUDA_KERNEL_NODE_PARAMS_v2 kernel_shape(const program::Program& program, const program::RecordedNode& node,
                                               bool kernel_handle, CUcontext context) noexcept {
  CUDA_KERNEL_NODE_PARAMS_v2 shape = {};
  const std::uint64_t handle = program.functions[node.function].handle;
  shape.gridDimX = node.grid.x;
  shape.gridDimY = node.grid.y;
  shape.gridDimZ = node.grid.z;
  shape.blockDimX = node.block.x;
  shape.blockDimY = node.block.y;
  shape.blockDimZ = node.block.z;
  shape.sharedMemBytes = node.shared_bytes;
  shape.ctx = context;
  if (kernel_handle) {
    shape.kern = reinterpret_cast<CUkernel>(handle);
  } else {
    shape.func = reinterpret_cast<CUfunction>(handle);
  }
  return shape;
}

// A node's parameters, pointing into one buffer of words. Valid until the next fill().
class NodeParameters {
 public:
  // `words`: the program's, with addresses in them. What is no kernel of the program's is one of ours, and takes a word
  // for each parameter. Throws std::bad_alloc.
  CUDA_KERNEL_NODE_PARAMS_v2 fill(CUDA_KERNEL_NODE_PARAMS_v2 shape, const program::Program& program,
                                  const program::RecordedNode& node, const std::uint64_t* words) {
    // The driver reads them, and says so by no `const`.
    auto* bytes = reinterpret_cast<std::uint8_t*>(const_cast<std::uint64_t*>(words + node.words_at));
    pointers_.clear();
    if (node.kind != program::NodeKind::kKernel) {
      for (std::uint32_t i = 0; i < node.word_count; ++i) pointers_.push_back(bytes + std::size_t{i} * 8);
    } else if (node.packed || !program.functions[node.function].has_layout) {
      size_ = node.parameter_bytes;
      extra_[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
      extra_[1] = bytes;
      extra_[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
      extra_[3] = &size_;
      extra_[4] = CU_LAUNCH_PARAM_END;
      shape.extra = extra_;
      return shape;
    } else {
      for (const program::Parameter& parameter : program.functions[node.function].parameters) {
        pointers_.push_back(bytes + parameter.offset);
      }
    }
    pointers_.push_back(nullptr);  // some address for kernels without parameters
    shape.kernelParams = pointers_.data();
    return shape;
  }

 private:
  std::vector<void*> pointers_;
  void* extra_[5] = {};
  std::size_t size_ = 0;
};

}  // namespace grape::graphs
