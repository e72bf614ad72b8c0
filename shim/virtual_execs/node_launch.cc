#include "shim/virtual_execs/node_launch.h"

#include <algorithm>
#include <new>

#include "shim/interpose/real_driver.h"
#include "shim/replay/node_parameters.h"
#include "shim/virtual_execs/node_words.h"

namespace grape::virtual_execs {
namespace {

namespace real = interpose::real;
using program::Program;

enum class Use { kPass, kDrop, kUnknown };

// What a node's attribute is to a launch into a stream. Launches there follow each other in full: what would let the
// next one begin earlier is left out.
Use use_of(CUlaunchAttributeID id, cuuint64_t flags) noexcept {
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return Use::kPass;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      return (flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) != 0 ? Use::kPass : Use::kDrop;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
      return Use::kDrop;
    default:
      return Use::kUnknown;
  }
}

bool fits(const Shape& shape, const NodeShape& node) noexcept {
  if (node.context != nullptr && node.context != shape.context) return false;
  for (std::uint32_t i = 0; i < node.attribute_count; ++i) {
    if (use_of(shape.attributes[node.attributes_at + i].id, shape.flags) == Use::kUnknown) return false;
  }
  return true;
}

bool does_work(const NodeShape& node) noexcept { return node.type != CU_GRAPH_NODE_TYPE_EMPTY; }

// In an order in which each comes behind those that it depends on; `longest`: nodes of the longest path through them.
std::vector<std::uint32_t> in_topological_order(const Shape& shape, std::size_t& longest) {
  const std::size_t count = shape.nodes.size();
  std::vector<std::uint32_t> missing(count), first(count + 1), order;
  for (const EdgeShape& edge : shape.edges) {
    ++missing[edge.to];
    ++first[edge.from + 1];
  }
  for (std::size_t i = 0; i < count; ++i) first[i + 1] += first[i];
  std::vector<std::uint32_t> next(shape.edges.size()), filled = first;
  for (const EdgeShape& edge : shape.edges) next[filled[edge.from]++] = edge.to;
  std::vector<std::size_t> path(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    path[i] = does_work(shape.nodes[i]) ? 1 : 0;
    if (missing[i] == 0) order.push_back(i);
  }
  longest = 0;
  for (std::size_t at = 0; at < order.size(); ++at) {
    const std::uint32_t node = order[at];
    longest = std::max(longest, path[node]);
    for (std::uint32_t i = first[node]; i < first[node + 1]; ++i) {
      const std::size_t own = does_work(shape.nodes[next[i]]) ? 1 : 0;
      path[next[i]] = std::max(path[next[i]], path[node] + own);
      if (--missing[next[i]] == 0) order.push_back(next[i]);
    }
  }
  return order;
}

bool on_device(CUmemorytype type, CUdeviceptr address) noexcept {
  if (type == CU_MEMORYTYPE_DEVICE) return true;
  auto* get = real::get_cuPointerGetAttribute();
  unsigned told = 0;
  return type == CU_MEMORYTYPE_UNIFIED && get != nullptr &&
         get(&told, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_SUCCESS && told == CU_MEMORYTYPE_DEVICE;
}

class Launcher {
 public:
  Launcher(const Shape& shape, const Program& program, CUstream stream)
      : shape_(shape), program_(program), stream_(stream) {}
  CUresult launch(std::size_t index) {
    const NodeShape& node = shape_.nodes[index];
    if (node.type == CU_GRAPH_NODE_TYPE_KERNEL) return kernel(node, program_.nodes[index]);
    if (node.type == CU_GRAPH_NODE_TYPE_MEMCPY) return copy(program_.nodes[index]);
    if (node.type == CU_GRAPH_NODE_TYPE_MEMSET) return memset(program_.nodes[index]);
    return CUDA_SUCCESS;
  }

 private:
  CUresult kernel(const NodeShape& node, const program::RecordedNode& recorded) {
    auto* launch = real::get_cuLaunchKernelEx();
    if (launch == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    const CUDA_KERNEL_NODE_PARAMS_v2 params = kernel_of(node, program_, recorded, parameters_);
    attributes_.clear();
    for (std::uint32_t i = 0; i < node.attribute_count; ++i) {
      const CUlaunchAttribute& attribute = shape_.attributes[node.attributes_at + i];
      if (use_of(attribute.id, shape_.flags) == Use::kPass) attributes_.push_back(attribute);
    }
    CUlaunchConfig config{};
    config.gridDimX = params.gridDimX;
    config.gridDimY = params.gridDimY;
    config.gridDimZ = params.gridDimZ;
    config.blockDimX = params.blockDimX;
    config.blockDimY = params.blockDimY;
    config.blockDimZ = params.blockDimZ;
    config.sharedMemBytes = params.sharedMemBytes;
    config.hStream = stream_;
    config.attrs = attributes_.data();
    config.numAttrs = static_cast<unsigned>(attributes_.size());
    // The driver takes a CUkernel for a function, too.
    CUfunction function = params.func != nullptr ? params.func : reinterpret_cast<CUfunction>(params.kern);
    return launch(&config, function, params.kernelParams, params.extra);
  }

  CUresult copy(const program::RecordedNode& recorded) {
    auto* start = real::get_cuMemcpy3DAsync_v2();
    const CUDA_MEMCPY3D_v2 params = copy_of(program_, recorded);
    return start != nullptr ? start(&params, stream_) : CUDA_ERROR_NOT_SUPPORTED;
  }

  CUresult memset(const program::RecordedNode& recorded) {
    const CUDA_MEMSET_NODE_PARAMS_v1 params = memset_of(program_, recorded);
    auto* bytes = real::get_cuMemsetD8Async();
    auto* halves = real::get_cuMemsetD16Async();
    auto* words = real::get_cuMemsetD32Async();
    if (bytes == nullptr || halves == nullptr || words == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    if (params.elementSize == 1)
      return bytes(params.dst, static_cast<unsigned char>(params.value), params.width, stream_);
    if (params.elementSize == 2) {
      return halves(params.dst, static_cast<unsigned short>(params.value), params.width, stream_);
    }
    return words(params.dst, params.value, params.width, stream_);
  }

  const Shape& shape_;
  const Program& program_;
  CUstream stream_;
  replay::NodeParameters parameters_;
  std::vector<CUlaunchAttribute> attributes_;
};

}  // namespace

std::vector<std::uint32_t> sequence_of(const Shape& shape) {
  if (!std::all_of(shape.nodes.begin(), shape.nodes.end(), [&](const NodeShape& node) { return fits(shape, node); })) {
    return {};
  }
  std::size_t longest = 0;
  std::vector<std::uint32_t> order = in_topological_order(shape, longest);
  const auto working = static_cast<std::size_t>(std::count_if(shape.nodes.begin(), shape.nodes.end(), does_work));
  // What runs side by side in a graph would take longer (Wav2Vec2's convolution in 16 groups: four times).
  if (order.size() != shape.nodes.size() || longest != working) return {};
  return order;
}

bool can_be_launched(const Shape& shape, const Program& program) noexcept {
  if (program.nodes.size() != shape.nodes.size()) return false;
  for (std::size_t i = 0; i < shape.nodes.size(); ++i) {
    if (shape.nodes[i].type == CU_GRAPH_NODE_TYPE_MEMCPY) {
      const CUDA_MEMCPY3D_v2 copy = copy_of(program, program.nodes[i]);
      if (!on_device(copy.srcMemoryType, copy.srcDevice) || !on_device(copy.dstMemoryType, copy.dstDevice))
        return false;
    }
    if (shape.nodes[i].type == CU_GRAPH_NODE_TYPE_MEMSET && memset_of(program, program.nodes[i]).height > 1)
      return false;
  }
  return true;
}

CUresult launch_nodes(const Shape& shape, const Program& program, const std::vector<std::uint32_t>& sequence,
                      const std::vector<std::uint32_t>& disabled, CUstream stream, std::size_t& done) noexcept {
  Launcher launcher(shape, program, stream);
  try {
    for (done = 0; done < sequence.size(); ++done) {
      if (std::binary_search(disabled.begin(), disabled.end(), sequence[done])) continue;
      const CUresult result = launcher.launch(sequence[done]);
      if (result != CUDA_SUCCESS) return result;
    }
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_SUCCESS;
}

}  // namespace grape::virtual_execs
