#include "shim/virtual_execs/read_graph.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "shim/driver/current_context.h"
#include "shim/driver/graph_edges.h"
#include "shim/driver/kernel_node.h"
#include "shim/driver/real_driver.h"

namespace grape::virtual_execs {
namespace {
namespace real = driver::real;
using program::NodeKind;
using program::RecordedNode;

constexpr std::uint32_t kMostExtraBytes = 64 << 10;

// Is the memory not another device's? What is no device memory is.
bool on_device(CUdeviceptr address, int device) noexcept {
  int ordinal = device;
  if (real::get_cuPointerGetAttribute() == nullptr) return false;
  return real::call_cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) != CUDA_SUCCESS ||
         ordinal < 0 || ordinal == device;
}

class Reader {
 public:
  Reader(Functions& functions, GraphReading& reading) : functions_(functions), reading_(reading) {}

  refusal::Form<0> read(CUgraph graph) {
    std::size_t count = 0;
    if (real::call_cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS ||
        real::call_cuCtxGetDevice(&device_) != CUDA_SUCCESS ||
        driver::current_context(reading_.shape.context) != CUDA_SUCCESS || reading_.shape.context == nullptr) {
      return refusal::graph_not_told;
    }
    if (count == 0 || count > kMostNodes) return refusal::graph_size;
    reading_.nodes.resize(count);
    if (real::call_cuGraphGetNodes(graph, reading_.nodes.data(), &count) != CUDA_SUCCESS)
      return refusal::graph_not_told;
    for (const CUgraphNode node : reading_.nodes) {
      const refusal::Form<0> refusal = read_node(node);
      if (refusal) return refusal;
    }
    return read_edges(graph);
  }

 private:
  refusal::Form<0> read_node(CUgraphNode handle) {
    NodeShape shape;
    RecordedNode node;
    node.kind = NodeKind::kCopy;
    node.words_at = static_cast<std::uint32_t>(reading_.program.words.size());
    if (real::call_cuGraphNodeGetType(handle, &shape.type) != CUDA_SUCCESS) return refusal::graph_not_told;
    refusal::Form<0> refusal;
    switch (shape.type) {
      case CU_GRAPH_NODE_TYPE_KERNEL:
        refusal = read_kernel(handle, shape, node);
        break;
      case CU_GRAPH_NODE_TYPE_MEMCPY:
        refusal = read_copy(handle, node);
        break;
      case CU_GRAPH_NODE_TYPE_MEMSET:
        refusal = read_memset(handle, node);
        break;
      case CU_GRAPH_NODE_TYPE_EMPTY:
        break;
      default:
        return refusal::graph_node_kind;
    }
    reading_.shape.nodes.push_back(shape);
    reading_.program.nodes.push_back(node);
    return refusal;
  }

  refusal::Form<0> read_kernel(CUgraphNode handle, NodeShape& shape, RecordedNode& node) {
    CUDA_KERNEL_NODE_PARAMS_v2 params;
    std::memset(&params, 0, sizeof params);
    if (real::call_cuGraphKernelNodeGetParams_v2(handle, &params) != CUDA_SUCCESS) return refusal::graph_not_told;
    const driver::KernelNode kernel = driver::kernel_node(params);
    if (kernel.function == nullptr) return refusal::graph_not_told;
    shape.kernel_handle = params.func == nullptr;
    shape.context = params.ctx;
    node.kind = NodeKind::kKernel;
    node.function = function_of(reinterpret_cast<std::uint64_t>(kernel.function));
    node.grid = {params.gridDimX, params.gridDimY, params.gridDimZ};
    node.block = {params.blockDimX, params.blockDimY, params.blockDimZ};
    node.shared_bytes = params.sharedMemBytes;
    const KernelFunction& function = functions_[reading_.functions[node.function]];
    if (function.owner == 0) return refusal::graph_not_told;  // its unloading could not be told
    if (!pack_parameters(function, kernel.parameters, kernel.extra, node, reading_.program.words)) {
      return refusal::graph_unknown_layout;
    }
    return read_attributes(handle, shape);
  }

  refusal::Form<0> read_attributes(CUgraphNode handle, NodeShape& shape) {
    shape.attributes_at = static_cast<std::uint32_t>(reading_.shape.attributes.size());
    CUlaunchAttribute attribute;
    const CUlaunchAttributeValue zeros{};
    for (unsigned id = 1; id < kAttributes; ++id) {
      if (!read_attribute(handle, id, attribute)) continue;
      if (id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE &&
          attribute.value.deviceUpdatableKernelNode.deviceUpdatable != 0) {
        return refusal::graph_changed_by_device;
      }
      if (same_value(attribute.value, zeros)) continue;
      reading_.shape.attributes.push_back(attribute);
      ++shape.attribute_count;
    }
    return {};
  }

  refusal::Form<0> read_copy(CUgraphNode handle, RecordedNode& node) {
    CUDA_MEMCPY3D_v2 copy;
    std::memset(&copy, 0, sizeof copy);
    if (real::call_cuGraphMemcpyNodeGetParams(handle, &copy) != CUDA_SUCCESS) return refusal::graph_not_told;
    if (copy.srcMemoryType == CU_MEMORYTYPE_ARRAY || copy.dstMemoryType == CU_MEMORYTYPE_ARRAY)
      return refusal::graph_with_array;
    if ((copy.srcMemoryType != CU_MEMORYTYPE_HOST && !on_device(copy.srcDevice, device_)) ||
        (copy.dstMemoryType != CU_MEMORYTYPE_HOST && !on_device(copy.dstDevice, device_))) {
      return refusal::graph_of_other_device;
    }
    node.kind = NodeKind::kCopy;
    node.word_count = kCopyWords;
    std::vector<std::uint64_t>& words = reading_.program.words;
    words.resize(words.size() + kCopyWords);
    std::memcpy(words.data() + node.words_at, &copy, sizeof copy);
    // The driver takes other memory of the same kinds, and only for copies of one row.
    std::vector<std::uint64_t>& fixed = reading_.shape.fixed;
    const bool rows = copy.Height > 1 || copy.Depth > 1;
    fixed.push_back(std::uint64_t{copy.srcMemoryType} << 32 | copy.dstMemoryType << 1 | (rows ? 1 : 0));
    if (rows) {
      fixed.insert(fixed.end(), words.end() - static_cast<std::ptrdiff_t>(kCopyWords), words.end());
    }
    return {};
  }

  refusal::Form<0> read_memset(CUgraphNode handle, RecordedNode& node) {
    CUDA_MEMSET_NODE_PARAMS_v1 memset{};
    if (real::call_cuGraphMemsetNodeGetParams(handle, &memset) != CUDA_SUCCESS) return refusal::graph_not_told;
    if (!on_device(memset.dst, device_)) return refusal::graph_of_other_device;
    node.kind = NodeKind::kMemset;
    node.word_count = kMemsetWords;
    const std::uint64_t words[kMemsetWords] = {memset.dst,   memset.value,  memset.elementSize,
                                               memset.width, memset.height, memset.pitch};
    reading_.program.words.insert(reading_.program.words.end(), std::begin(words), std::end(words));
    std::vector<std::uint64_t>& fixed = reading_.shape.fixed;
    fixed.push_back(memset.height > 1 ? 1 : 0);
    if (memset.height > 1) fixed.insert(fixed.end(), std::begin(words), std::end(words));
    return {};
  }

  refusal::Form<0> read_edges(CUgraph graph) {
    std::unordered_map<CUgraphNode, std::uint32_t> index;
    for (std::size_t i = 0; i < reading_.nodes.size(); ++i) index[reading_.nodes[i]] = static_cast<std::uint32_t>(i);
    driver::GraphEdges edges;
    if (!driver::read_edges(graph, SIZE_MAX, edges)) return refusal::graph_not_told;
    for (std::size_t i = 0; i < edges.from.size(); ++i) {
      const auto source = index.find(edges.from[i]), target = index.find(edges.to[i]);
      if (source == index.end() || target == index.end()) return refusal::graph_not_told;
      reading_.shape.edges.push_back({source->second, target->second, edges.data[i]});
    }
    // In which order the driver lists them says nothing.
    std::sort(reading_.shape.edges.begin(), reading_.shape.edges.end(),
              [](const EdgeShape& a, const EdgeShape& b) { return a.to != b.to ? a.to < b.to : a.from < b.from; });
    return {};
  }

  std::uint32_t function_of(std::uint64_t handle) {
    const std::uint32_t number = functions_.find(handle);
    const auto [at, fresh] = used_.emplace(number, static_cast<std::uint32_t>(reading_.functions.size()));
    if (fresh) {
      reading_.functions.push_back(number);
      reading_.program.functions.push_back(functions_[number].info);
    }
    return at->second;
  }

  Functions& functions_;
  GraphReading& reading_;
  std::unordered_map<std::uint32_t, std::uint32_t> used_;  // number of a function: its index in the program
  int device_ = 0;
};

}  // namespace

refusal::Form<0> read_graph(CUgraph graph, Functions& functions, GraphReading& reading) {
  return Reader(functions, reading).read(graph);
}

bool read_attribute(CUgraphNode node, unsigned id, CUlaunchAttribute& attribute) noexcept {
  std::memset(&attribute, 0, sizeof attribute);
  attribute.id = static_cast<CUlaunchAttributeID>(id);
  return real::call_cuGraphKernelNodeGetAttribute(node, attribute.id, &attribute.value) == CUDA_SUCCESS;
}

bool same_value(const CUlaunchAttributeValue& a, const CUlaunchAttributeValue& b) noexcept {
  char x[sizeof a], y[sizeof b];
  std::memcpy(x, &a, sizeof x);
  std::memcpy(y, &b, sizeof y);
  return std::memcmp(x, y, sizeof x) == 0;
}

bool pack_parameters(const KernelFunction& function, void* const* parameters, void* const* extra, RecordedNode& node,
                     std::vector<std::uint64_t>& words) {
  const auto grow = [&](std::uint32_t bytes) {
    node.parameter_bytes = bytes;
    node.word_count = (bytes + 7) / 8;
    words.resize(node.words_at + node.word_count);
    return reinterpret_cast<std::uint8_t*>(words.data() + node.words_at);
  };
  if (parameters != nullptr && function.info.has_layout) {
    std::uint8_t* packed = grow(function.bytes);
    for (std::size_t i = 0; i < function.info.parameters.size(); ++i) {
      const program::Parameter& parameter = function.info.parameters[i];
      if (parameters[i] == nullptr) return false;
      std::memcpy(packed + parameter.offset, parameters[i], parameter.bytes);
    }
    return true;
  }
  if (extra == nullptr) return function.info.has_layout && function.bytes == 0;
  const driver::PackedBuffer buffer = driver::packed_buffer(extra);
  if (buffer.data == nullptr || buffer.bytes > kMostExtraBytes) return false;
  node.packed = true;
  std::memcpy(grow(static_cast<std::uint32_t>(buffer.bytes)), buffer.data, buffer.bytes);
  return true;
}

}  // namespace grape::virtual_execs
