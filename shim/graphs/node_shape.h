// Converts a program's nodes to kernel nodes of the driver, all but their parameters. Copies and memsets become kernels
// of our own. One thread at a time per object; the program's context is current.
#pragma once

#include <cuda.h>

#include <string>
#include <vector>

#include "compressor/program/program.h"
#include "compressor/refusal/refusal.h"
#include "shim/device/own_kernels.h"

namespace grape::graphs {

class NodeShapes {
 public:
  // Looks up what the nodes of `segment` need in the current context. False: one line in `error`. Throws
  // std::bad_alloc.
  bool look_up(const program::Program& program, program::Segment segment, refusal::Refusal& error);
  // Of a node of that segment. False: one line in `error`.
  bool shape(const program::Program& program, const program::RecordedNode& node, CUDA_KERNEL_NODE_PARAMS& shape,
             refusal::Refusal& error) const;

 private:
  CUcontext context_ = nullptr;
  device::OwnKernels* own_ = nullptr;
  std::vector<bool> kernel_handles_;  // per function of the program: a CUkernel, not a CUfunction
};

// " at node 7 (the kernel's name)"
std::string name_of_node(const program::Program& program, std::uint32_t index);

}  // namespace grape::graphs
