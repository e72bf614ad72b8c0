#include "shim/graphs/node_shape.h"

#include <algorithm>

#include "shim/driver/current_context.h"
#include "shim/driver/real_driver.h"
#include "shim/graphs/node_parameters.h"

namespace grape::graphs {
namespace {

namespace real = driver::real;
using program::NodeKind;
using program::Program;
using program::RecordedNode;

constexpr std::uint64_t kCopyBytesPerThread = 16;
constexpr std::size_t kCopyWords = 3, kFillWords = 6;
constexpr std::uint32_t kMostGridY = 65535;

// A CUkernel where a CUfunction is meant: launches take both, graph nodes want to know. Asked as the driver's own
// functions for each kind answer.
bool is_kernel_handle(std::uint64_t handle) noexcept {
  const char* name = nullptr;
  return real::get_cuFuncGetName() != nullptr &&
         real::call_cuFuncGetName(&name, reinterpret_cast<CUfunction>(handle)) != CUDA_SUCCESS &&
         real::call_cuKernelGetName(&name, reinterpret_cast<CUkernel>(handle)) == CUDA_SUCCESS;
}

bool shape_own(const Program& program, const RecordedNode& node, const device::OwnKernels& own,
               CUDA_KERNEL_NODE_PARAMS& shape) {
  const std::uint64_t* w = program.words.data() + node.words_at;
  shape.blockDimX = device::kOwnKernelBlock;
  if (node.kind == NodeKind::kCopy || node.kind == NodeKind::kHostCopy) {
    if (node.word_count != kCopyWords) return false;
    shape.func = own.copy;
    shape.gridDimX = device::own_kernel_blocks(w[2], kCopyBytesPerThread);
    return true;
  }
  if (node.word_count != kFillWords) return false;
  shape.func = own.fill;
  shape.gridDimX = device::own_kernel_blocks(w[2] * w[3], kCopyBytesPerThread);
  shape.gridDimY = static_cast<unsigned>(std::clamp<std::uint64_t>(w[4], 1, kMostGridY));
  return true;
}

}  // namespace

bool NodeShapes::look_up(const Program& program, program::Segment segment, refusal::Refusal& error) {
  if (driver::current_context(context_) != CUDA_SUCCESS) {
    error = refusal::make(refusal::no_current_context);
    return false;
  }
  const auto first = program.nodes.begin() + segment.first;
  const bool all_kernels = std::all_of(first, first + segment.count,
                                       [](const RecordedNode& node) { return node.kind == NodeKind::kKernel; });
  if (!all_kernels) {
    own_ = device::own_kernels(error);
    if (own_ == nullptr) return false;
  }
  kernel_handles_.clear();
  for (const program::FunctionInfo& function : program.functions) {
    kernel_handles_.push_back(is_kernel_handle(function.handle));
  }
  return true;
}

bool NodeShapes::shape(const Program& program, const RecordedNode& node, CUDA_KERNEL_NODE_PARAMS& shape,
                       refusal::Refusal& error) const {
  if (node.kind != NodeKind::kKernel) {
    shape = {};
    shape.gridDimX = shape.gridDimY = shape.gridDimZ = shape.blockDimX = shape.blockDimY = shape.blockDimZ = 1;
    if (own_ != nullptr && shape_own(program, node, *own_, shape)) return true;
    error = refusal::make(refusal::odd_copy);
    return false;
  }
  const bool kernel_handle = kernel_handles_[node.function];
  shape = kernel_shape(program, node, kernel_handle, kernel_handle ? context_ : nullptr);
  return true;
}

std::string name_of_node(const Program& program, std::uint32_t index) {
  const RecordedNode& node = program.nodes[index];
  std::string name = node.kind == NodeKind::kMemset ? "a memset" : "a copy";
  if (node.kind == NodeKind::kKernel) name = program.functions[node.function].name;
  return " at node " + std::to_string(index) + " (" + name + ")";
}

}  // namespace grape::graphs
