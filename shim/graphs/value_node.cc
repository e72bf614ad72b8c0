#include "shim/graphs/value_node.h"

#include <algorithm>
#include <string>

#include "shim/device/own_kernels.h"
#include "shim/driver/real_driver.h"

namespace grape::graphs {
namespace {

namespace real = driver::real;
using program::Program;
using program::Reference;
using program::Segment;

// The word that names where the value lies; null: a fixed address.
const Reference* source_of(const Program& program, const Segment& segment) noexcept {
  return program::reference_at(program, program.nodes[segment.read].words_at);
}

std::uint64_t bytes_of(const Program& program, const Segment& segment) noexcept {
  return program.words[program.nodes[segment.read].words_at + 1];
}

std::uint64_t address_of(const Program& program, const Segment& segment, const program::ArenaPlan& plan,
                         const program::Bindings& bindings) noexcept {
  const Reference* source = source_of(program, segment);
  return program.words[program.nodes[segment.read].words_at] +
         (source != nullptr ? program::base_of(program, plan, bindings, *source) : 0);
}

}  // namespace

bool ValueNode::possible(const Program& program, const Segment& segment) noexcept {
  if (segment.read == program::kNever || segment.count == 0) return false;
  const Reference* source = source_of(program, segment);
  return source != nullptr && (source->role == program::Role::kTemp || source->role == program::Role::kOutput) &&
         bytes_of(program, segment) <= HostBuffer::kBytes;
}

CUDA_KERNEL_NODE_PARAMS ValueNode::parameters() noexcept {
  pointers_[0] = &to_;
  pointers_[1] = &from_;
  pointers_[2] = &bytes_;
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = function_;
  params.gridDimX = params.gridDimY = params.gridDimZ = params.blockDimY = params.blockDimZ = 1;
  params.blockDimX = device::kOwnKernelBlock;  // which do with any number of bytes
  params.kernelParams = pointers_;
  return params;
}

bool ValueNode::add(CUgraph graph, const std::vector<CUgraphNode>& behind, const Program& program,
                    const Segment& segment, const program::ArenaPlan& plan, const program::Bindings& bindings) {
  refusal::Refusal ignored;
  const device::OwnKernels* own = device::own_kernels(ignored);
  if (own == nullptr) return false;
  const auto landing = std::make_shared<HostBuffer>(own->context);
  if (landing->data() == nullptr) return false;
  function_ = own->copy;
  to_ = reinterpret_cast<std::uint64_t>(landing->data());
  from_ = address_of(program, segment, plan, bindings);
  bytes_ = bytes_of(program, segment);
  const CUDA_KERNEL_NODE_PARAMS params = parameters();
  const CUresult result = real::get_cuGraphAddKernelNode_v2()(&handle_, graph, behind.data(), behind.size(), &params);
  if (result != CUDA_SUCCESS) {
    handle_ = nullptr;
    return false;
  }
  landing_ = landing;
  return true;
}

CUresult ValueNode::bind(CUgraphExec exec, const Program& program, const Segment& segment,
                         const program::ArenaPlan& plan, const program::Bindings& bindings, bool& set) noexcept {
  set = false;
  if (!added()) return CUDA_SUCCESS;
  const std::uint64_t from = address_of(program, segment, plan, bindings), bytes = bytes_of(program, segment);
  if (from == from_ && bytes == bytes_) return CUDA_SUCCESS;
  from_ = from;
  bytes_ = bytes;
  const CUDA_KERNEL_NODE_PARAMS params = parameters();
  set = true;
  return real::get_cuGraphExecKernelNodeSetParams_v2()(exec, handle_, &params);
}

}  // namespace grape::graphs
