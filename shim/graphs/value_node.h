// A graph node that brings a value to the host, which reads it behind this part of a program. The node costs the host
// nothing; a copy behind the graph costs nearly as much as a graph's launch. One thread at a time per object; the
// graph's context is current.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "compressor/program/plan.h"
#include "compressor/program/program.h"
#include "shim/graphs/host_buffer.h"

namespace grape::graphs {

class ValueNode {
 public:
  // Is there one, and may a kernel of the graph's device read it? Memory that the program's own nodes made it may; an
  // argument's, or a weight's, may be another device's or the host's.
  static bool possible(const program::Program& program, const program::Segment& segment) noexcept;

  // Adds it to `graph`, behind those nodes. False: it is left out, since the driver maps no memory of the host, or
  // refuses the node.
  bool add(CUgraph graph, const std::vector<CUgraphNode>& behind, const program::Program& program,
           const program::Segment& segment, const program::ArenaPlan& plan, const program::Bindings& bindings);
  // Sets it in `exec`, where the value lies elsewhere than it did or is of another size. `set`: whether it was.
  CUresult bind(CUgraphExec exec, const program::Program& program, const program::Segment& segment,
                const program::ArenaPlan& plan, const program::Bindings& bindings, bool& set) noexcept;

  bool added() const noexcept { return handle_ != nullptr; }
  // Where it is once the graph is done: has no data() where it is not in the graph, or its place was abandoned.
  const std::shared_ptr<HostBuffer>& landing() const noexcept { return landing_; }

 private:
  CUDA_KERNEL_NODE_PARAMS parameters() noexcept;

  std::shared_ptr<HostBuffer> landing_;
  CUgraphNode handle_ = nullptr;
  CUfunction function_ = nullptr;
  std::uint64_t to_ = 0, from_ = 0, bytes_ = 0;  // what the kernel's parameters are
  void* pointers_[3] = {};
};

}  // namespace grape::graphs
