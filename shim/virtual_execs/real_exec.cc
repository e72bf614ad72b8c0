#include "shim/virtual_execs/real_exec.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>

#include "shim/driver/captures.h"
#include "shim/driver/real_driver.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/virtual_execs/node_words.h"

namespace grape::virtual_execs {
namespace {

namespace real = driver::real;
using program::Program;
using program::RecordedNode;

CUresult set_attributes(const Shape& shape, const NodeShape& node, CUgraphNode handle) {
  CUlaunchAttribute has, wanted;
  for (unsigned id = 1; id < kAttributes; ++id) {
    if (!read_attribute(handle, id, has)) continue;
    std::memset(&wanted, 0, sizeof wanted);
    wanted.id = has.id;
    for (std::uint32_t i = 0; i < node.attribute_count; ++i) {
      const CUlaunchAttribute& known = shape.attributes[node.attributes_at + i];
      if (known.id == wanted.id) wanted = known;
    }
    if (same_value(has.value, wanted.value)) continue;
    const CUresult result = real::call_cuGraphKernelNodeSetAttribute(handle, wanted.id, &wanted.value);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult add_node(const Shape& shape, const Program& program, std::size_t index, CUgraph graph,
                  graphs::NodeParameters& parameters, CUgraphNode& handle) {
  const NodeShape& node = shape.nodes[index];
  const RecordedNode& recorded = program.nodes[index];
  if (node.type == CU_GRAPH_NODE_TYPE_KERNEL) {
    const CUDA_KERNEL_NODE_PARAMS_v2 kernel = kernel_of(node, program, recorded, parameters);
    const CUresult result = real::call_cuGraphAddKernelNode_v2(&handle, graph, nullptr, 0, &kernel);
    return result == CUDA_SUCCESS ? set_attributes(shape, node, handle) : result;
  }
  if (node.type == CU_GRAPH_NODE_TYPE_MEMCPY) {
    const CUDA_MEMCPY3D_v2 copy = copy_of(program, recorded);
    return real::call_cuGraphAddMemcpyNode(&handle, graph, nullptr, 0, &copy, shape.context);
  }
  if (node.type == CU_GRAPH_NODE_TYPE_MEMSET) {
    const CUDA_MEMSET_NODE_PARAMS_v1 memset = memset_of(program, recorded);
    return real::call_cuGraphAddMemsetNode(&handle, graph, nullptr, 0, &memset, shape.context);
  }
  return real::call_cuGraphAddEmptyNode(&handle, graph, nullptr, 0);
}

// Edges with data one by one: of several in one call the driver (580.159) gives each the data of the first.
CUresult add_edges(const Shape& shape, const BuiltGraph& built) {
  std::vector<CUgraphNode> from, to;
  const CUgraphEdgeData none{};
  for (const EdgeShape& edge : shape.edges) {
    CUgraphNode source = built.nodes[edge.from], target = built.nodes[edge.to];
    if (std::memcmp(&edge.data, &none, sizeof none) == 0) {
      from.push_back(source);
      to.push_back(target);
      continue;
    }
    const CUresult result = real::call_cuGraphAddDependencies_v2(built.graph, &source, &target, &edge.data, 1);
    if (result != CUDA_SUCCESS) return result;
  }
  if (from.empty()) return CUDA_SUCCESS;
  return real::call_cuGraphAddDependencies(built.graph, from.data(), to.data(), from.size());
}

bool same_node(const Program& a, const RecordedNode& x, const Program& b, const RecordedNode& y) {
  if (x.kind != y.kind || x.word_count != y.word_count) return false;
  if (x.kind == program::NodeKind::kKernel &&
      !(a.functions[x.function].handle == b.functions[y.function].handle && x.packed == y.packed && x.grid == y.grid &&
        x.block == y.block && x.shared_bytes == y.shared_bytes && x.parameter_bytes == y.parameter_bytes)) {
    return false;
  }
  return x.word_count == 0 || std::memcmp(a.words.data() + x.words_at, b.words.data() + y.words_at,
                                          std::size_t{x.word_count} * sizeof(std::uint64_t)) == 0;
}

bool one_row(const CUDA_MEMCPY3D_v2& copy) {
  return copy.Height <= 1 && copy.Depth <= 1 && copy.srcY == 0 && copy.srcZ == 0 && copy.dstY == 0 && copy.dstZ == 0;
}

// Where a row comes from, or goes to.
std::uint64_t address(CUmemorytype type, const void* host, CUdeviceptr device, std::size_t x) {
  return (type == CU_MEMORYTYPE_HOST ? reinterpret_cast<std::uint64_t>(host) : device) + x;
}

// The same up to what has no meaning: a driver may fill that in.
bool same_meaning(const Program& a, const RecordedNode& x, const Program& b, const RecordedNode& y,
                  CUgraphNodeType type) {
  if (same_node(a, x, b, y)) return true;
  if (x.word_count != y.word_count) return false;
  if (type == CU_GRAPH_NODE_TYPE_MEMSET) {
    const CUDA_MEMSET_NODE_PARAMS_v1 m = memset_of(a, x), n = memset_of(b, y);
    return m.dst == n.dst && m.value == n.value && m.elementSize == n.elementSize && m.width == n.width &&
           m.height <= 1 && n.height <= 1;
  }
  if (type != CU_GRAPH_NODE_TYPE_MEMCPY) return false;
  const CUDA_MEMCPY3D_v2 m = copy_of(a, x), n = copy_of(b, y);
  return one_row(m) && one_row(n) && m.WidthInBytes == n.WidthInBytes && m.Height == n.Height && m.Depth == n.Depth &&
         m.srcMemoryType == n.srcMemoryType && m.dstMemoryType == n.dstMemoryType &&
         address(m.srcMemoryType, m.srcHost, m.srcDevice, m.srcXInBytes) ==
             address(n.srcMemoryType, n.srcHost, n.srcDevice, n.srcXInBytes) &&
         address(m.dstMemoryType, m.dstHost, m.dstDevice, m.dstXInBytes) ==
             address(n.dstMemoryType, n.dstHost, n.dstDevice, n.dstXInBytes);
}

// Does the driver say of our graph what it said of the application's?
refusal::Form<0> read_back(const Shape& shape, const Program& program, Functions& functions, const BuiltGraph& built) {
  GraphReading back;
  const refusal::Form<0> refusal = read_graph(built.graph, functions, back);
  if (refusal) return refusal;
  if (back.nodes != built.nodes || content_of(shape) != content_of(back.shape)) return refusal::graph_not_the_same;
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    if (!same_meaning(program, program.nodes[i], back.program, back.program.nodes[i], shape.nodes[i].type)) {
      return refusal::graph_not_the_same;
    }
  }
  for (const std::uint32_t function : back.functions) functions[function].can_be_rebuilt = true;
  return {};
}

}  // namespace

Place place_of(CUstream stream, bool per_thread) noexcept {
  static std::atomic<std::uint64_t> threads{0};
  static thread_local const std::uint64_t this_thread = ++threads;
  if (stream == nullptr) stream = per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
  return {stream, stream == CU_STREAM_PER_THREAD ? this_thread : 0};
}

void destroy_graph(BuiltGraph& built) noexcept {
  if (built.graph != nullptr) real::call_cuGraphDestroy(built.graph);
  built.graph = nullptr;
}

CUresult build_graph(const Shape& shape, const Program& program, Functions& functions, BuiltGraph& built,
                     refusal::Form<0>& refusal) {
  refusal = refusal::graph_not_told;
  if (program.nodes.size() != shape.nodes.size()) return CUDA_ERROR_UNKNOWN;
  graphs::NodeParameters parameters;
  built.nodes.resize(shape.nodes.size());
  CUresult result = real::call_cuGraphCreate(&built.graph, 0);
  if (result != CUDA_SUCCESS) return result;
  for (std::size_t i = 0; result == CUDA_SUCCESS && i < shape.nodes.size(); ++i) {
    result = add_node(shape, program, i, built.graph, parameters, built.nodes[i]);
  }
  if (result == CUDA_SUCCESS) result = add_edges(shape, built);
  if (result == CUDA_SUCCESS) {
    refusal = read_back(shape, program, functions, built);
    if (refusal) result = CUDA_ERROR_UNKNOWN;
  }
  if (result != CUDA_SUCCESS) destroy_graph(built);
  return result;
}

RealExec::RealExec(std::shared_ptr<Shape> shape) : shape_(std::move(shape)) {}

std::unique_ptr<RealExec> RealExec::build(const std::shared_ptr<Shape>& shape, Program& program,
                                          const std::vector<std::uint32_t>& disabled, Functions& functions,
                                          CUresult& result) {
  auto made = std::make_unique<RealExec>(shape);
  refusal::Form<0> refusal;
  result = build_graph(*shape, program, functions, made->built_, refusal);
  if (result != CUDA_SUCCESS) return nullptr;
  result = real::call_cuGraphInstantiateWithFlags(&made->exec_, made->built_.graph, shape->flags);
  if (result != CUDA_SUCCESS) {
    made->exec_ = nullptr;
    return nullptr;
  }
  result = made->disable(disabled);
  if (result != CUDA_SUCCESS) return nullptr;
  std::swap(made->held_, program);
  return made;
}

RealExec::~RealExec() {
  if (exec_ != nullptr) real::call_cuGraphExecDestroy(exec_);
  if (event_ != nullptr) real::call_cuEventDestroy_v2(event_);
  destroy_graph(built_);
}

void RealExec::abandon() noexcept {
  upload_.abandon();
  exec_ = nullptr;
  event_ = nullptr;
  // Graphs are the host's: they outlive contexts.
}

CUresult RealExec::set_node(const Program& program, std::size_t index) noexcept {
  const NodeShape& shape = shape_->nodes[index];
  const RecordedNode& node = program.nodes[index];
  if (shape.type == CU_GRAPH_NODE_TYPE_KERNEL) {
    const CUDA_KERNEL_NODE_PARAMS_v2 kernel = kernel_of(shape, program, node, parameters_);
    return real::call_cuGraphExecKernelNodeSetParams_v2(exec_, built_.nodes[index], &kernel);
  }
  if (shape.type == CU_GRAPH_NODE_TYPE_MEMCPY) {
    const CUDA_MEMCPY3D_v2 copy = copy_of(program, node);
    return real::call_cuGraphExecMemcpyNodeSetParams(exec_, built_.nodes[index], &copy, shape_->context);
  }
  if (shape.type == CU_GRAPH_NODE_TYPE_MEMSET) {
    const CUDA_MEMSET_NODE_PARAMS_v1 memset = memset_of(program, node);
    return real::call_cuGraphExecMemsetNodeSetParams(exec_, built_.nodes[index], &memset, shape_->context);
  }
  return CUDA_SUCCESS;
}

// Of own ones: those nodes are disabled, and no others.
CUresult RealExec::disable(const std::vector<std::uint32_t>& disabled) {
  if (disabled == disabled_) return CUDA_SUCCESS;
  std::vector<std::uint32_t> other;
  std::set_symmetric_difference(disabled.begin(), disabled.end(), disabled_.begin(), disabled_.end(),
                                std::back_inserter(other));
  pristine_ = false;
  for (const std::uint32_t index : other) {
    const bool enabled = !std::binary_search(disabled.begin(), disabled.end(), index);
    const CUresult result = real::call_cuGraphNodeSetEnabled(exec_, built_.nodes[index], enabled ? 1 : 0);
    if (result != CUDA_SUCCESS) return result;
  }
  disabled_ = disabled;
  return CUDA_SUCCESS;
}

CUresult RealExec::take_over(Program& program, const std::vector<std::uint32_t>& disabled) noexcept {
  if (program.nodes.size() != held_.nodes.size()) return CUDA_ERROR_UNKNOWN;
  try {
    for (std::size_t i = 0; i < program.nodes.size(); ++i) {
      if (same_node(held_, held_.nodes[i], program, program.nodes[i])) continue;
      pristine_ = false;
      const CUresult result = set_node(program, i);
      if (result != CUDA_SUCCESS) return result;
    }
    const CUresult result = disable(disabled);
    if (result != CUDA_SUCCESS) return result;
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  std::swap(held_, program);
  return CUDA_SUCCESS;
}

void RealExec::launching(const Place& place) noexcept {
  upload_.order(place.stream);
  place_ = place;
  launched_ = true;
  marked_ = false;
}

// Records the event behind its last launch. Not on the legacy default stream, where other streams would wait for it.
bool RealExec::mark() noexcept {
  if (place_.stream == CU_STREAM_LEGACY || !(place_ == place_of(place_.stream, false))) return false;
  if (event_ == nullptr && real::call_cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
    event_ = nullptr;
    return false;
  }
  marked_ = real::call_cuEventRecord(event_, place_.stream) == CUDA_SUCCESS;
  return marked_;
}

bool RealExec::finished() noexcept {
  if (!launched_) return true;
  if (!marked_) {
    // Another thread's default stream cannot be asked.
    if (!(place_ == place_of(place_.stream, false))) return false;
    if (place_.stream == CU_STREAM_LEGACY) {
      // To ask about it is an error while a stream is captured; where nobody counts captures there may be one.
      if (!lifecycle::active() || driver::g_captures.load(std::memory_order_relaxed) > 0) return false;
    } else {
      CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
      if (real::call_cuStreamIsCapturing(place_.stream, &status) != CUDA_SUCCESS ||
          status != CU_STREAM_CAPTURE_STATUS_NONE) {
        return false;
      }
    }
    const CUresult result = real::call_cuStreamQuery(place_.stream);
    if (result == CUDA_ERROR_NOT_READY) mark();
    if (result == CUDA_SUCCESS) launched_ = false;
    return result == CUDA_SUCCESS;
  }
  if (real::call_cuEventQuery(event_) != CUDA_SUCCESS) return false;
  launched_ = false;
  return true;
}

void RealExec::stream_goes(CUstream stream) noexcept {
  if (!launched_ || place_.stream != stream) return;
  mark();       // where that fails it counts as under way for as long as it is there
  place_ = {};  // the handle may come again, for another stream
}

}  // namespace grape::virtual_execs
