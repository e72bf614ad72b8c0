// What is in a graph that the application instantiated: its nodes and edges, children flattened. A child-graph node
// stands as a node of its own before its contents; what followed it follows the contents' last nodes.
#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

#include "shim/driver/graph_edges.h"
#include "shim/driver/real_driver.h"
#include "shim/interpose/recording.h"
#include "shim/record/function_cache.h"

// Handles are pointers, and lists of them are lists of pointers.
// NOLINTBEGIN(bugprone-sizeof-expression)

namespace grape::interpose {
namespace {

constexpr std::uint32_t kMaxNodes = 4u << 20;
constexpr int kMaxDepth = 16;
constexpr std::uint32_t kEdgesPerEvent = 8192;

struct Edge {
  std::uint32_t from;
  std::uint32_t to;
};

// Where edges into a node end and those out of it begin: [first_exit, last_exit) of Walk::exits for a child graph.
struct Place {
  CUgraphNode handle;
  std::uint32_t index;
  std::uint32_t first_exit;
  std::uint32_t last_exit;
};

bool by_handle(const Place& a, const Place& b) noexcept { return a.handle < b.handle; }

class Walk {
 public:
  Walk(record::ThreadLog& log, CUgraphExec exec) noexcept : log_(log), exec_(reinterpret_cast<std::uint64_t>(exec)) {}

  // Emits the graph's nodes; `after`: a node that those without predecessors follow, kNone for none. Appends the
  // nodes that nothing in the graph follows to exits_. False: the driver does not tell. Throws std::bad_alloc.
  static constexpr std::uint32_t kNone = UINT32_MAX;

  bool graph(CUgraph graph, std::uint32_t after, int depth) {
    std::size_t count = 0;
    if (driver::real::call_cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS || count > kMaxNodes) return false;
    if (count == 0) return true;
    std::vector<CUgraphNode> handles(count);
    std::vector<Place> places(count);
    if (driver::real::call_cuGraphGetNodes(graph, handles.data(), &count) != CUDA_SUCCESS) return false;
    for (std::size_t i = 0; i < count; ++i) {
      if (!node(handles[i], depth, &places[i])) return false;
    }
    return edges(graph, places, after);
  }

  void emit_edges() noexcept {
    for (std::size_t first = 0; first < edges_.size(); first += kEdgesPerEvent) {
      const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(kEdgesPerEvent, edges_.size() - first));
      std::uint64_t* out = log_.begin(trace::EventKind::kExecEdges, 0, 2 + count, {record::ticks(), 0});
      if (out == nullptr) return;
      out[0] = exec_;
      out[1] = trace::pack(count, 0);
      for (std::uint32_t i = 0; i < count; ++i) out[2 + i] = trace::pack(edges_[first + i].from, edges_[first + i].to);
      log_.commit();
    }
  }

 private:
  bool node(CUgraphNode handle, int depth, Place* place) {
    if (next_index_ >= kMaxNodes) return false;
    const std::uint32_t index = next_index_++;
    *place = {handle, index, 0, 0};
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    if (driver::real::call_cuGraphNodeGetType(handle, &type) != CUDA_SUCCESS) return false;
    if (type != CU_GRAPH_NODE_TYPE_GRAPH) {
      emit_content(handle, index, type);
      return true;
    }
    CUgraph child = nullptr;
    const bool known = driver::real::call_cuGraphChildGraphNodeGetGraph(handle, &child) == CUDA_SUCCESS;
    emit(index, type, &child, known ? sizeof(child) : 0);
    place->first_exit = static_cast<std::uint32_t>(exits_.size());
    if (known && depth < kMaxDepth && !graph(child, index, depth + 1)) return false;
    place->last_exit = static_cast<std::uint32_t>(exits_.size());
    return true;
  }

  // Of a node that is no child graph.
  void emit_content(CUgraphNode handle, std::uint32_t index, CUgraphNodeType type) noexcept {
    namespace real = driver::real;
    switch (type) {
      case CU_GRAPH_NODE_TYPE_KERNEL:
        return emit_kernel(handle, index);
      case CU_GRAPH_NODE_TYPE_MEMCPY:
        return emit_params<CUDA_MEMCPY3D_v2>(real::get_cuGraphMemcpyNodeGetParams(), handle, index, type);
      case CU_GRAPH_NODE_TYPE_MEMSET:
        return emit_params<CUDA_MEMSET_NODE_PARAMS_v1>(real::get_cuGraphMemsetNodeGetParams(), handle, index, type);
      case CU_GRAPH_NODE_TYPE_HOST:
        return emit_params<CUDA_HOST_NODE_PARAMS_v1>(real::get_cuGraphHostNodeGetParams(), handle, index, type);
      case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return emit_params<CUevent>(real::get_cuGraphEventWaitNodeGetEvent(), handle, index, type);
      case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return emit_params<CUevent>(real::get_cuGraphEventRecordNodeGetEvent(), handle, index, type);
      case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return emit_params<CUDA_MEM_ALLOC_NODE_PARAMS_v1>(real::get_cuGraphMemAllocNodeGetParams(), handle, index,
                                                          type);
      case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return emit_params<CUdeviceptr>(real::get_cuGraphMemFreeNodeGetParams(), handle, index, type);
      default:
        return emit(index, type, nullptr, 0);
    }
  }

  // `places` of one graph. Adds its edges, and to exits_ the nodes that nothing follows.
  bool edges(CUgraph graph, std::vector<Place>& places, std::uint32_t after) {
    driver::GraphEdges read;
    if (!driver::read_edges(graph, kMaxNodes, read)) return false;
    std::vector<std::uint8_t> links(places.size());  // bit 0: something precedes it; bit 1: something follows it
    std::sort(places.begin(), places.end(), by_handle);
    const auto find = [&](CUgraphNode handle) -> const Place* {
      const auto at = std::lower_bound(places.begin(), places.end(), Place{handle, 0, 0, 0}, by_handle);
      return at != places.end() && at->handle == handle ? &*at : nullptr;
    };
    for (std::size_t i = 0; i < read.from.size(); ++i) {
      const Place* source = find(read.from[i]);
      const Place* target = find(read.to[i]);
      if (source == nullptr || target == nullptr) continue;
      links[static_cast<std::size_t>(target - places.data())] |= 1;
      links[static_cast<std::size_t>(source - places.data())] |= 2;
      if (source->first_exit == source->last_exit) edges_.push_back({source->index, target->index});
      for (std::uint32_t exit = source->first_exit; exit < source->last_exit; ++exit) {
        edges_.push_back({exits_[exit], target->index});
      }
    }
    // Only this graph's own exits are of interest from here on: they take the place of its children's.
    std::vector<std::uint32_t> own;
    std::size_t begin = exits_.size();
    for (std::size_t i = 0; i < places.size(); ++i) {
      const Place& place = places[i];
      const bool child = place.first_exit != place.last_exit;
      if (child) begin = std::min<std::size_t>(begin, place.first_exit);
      if ((links[i] & 1) == 0 && after != kNone) edges_.push_back({after, place.index});
      if ((links[i] & 2) != 0) continue;
      if (!child) own.push_back(place.index);
      own.insert(own.end(), exits_.begin() + place.first_exit, exits_.begin() + place.last_exit);
    }
    exits_.resize(begin);
    exits_.insert(exits_.end(), own.begin(), own.end());
    return true;
  }

  void emit_kernel(CUgraphNode handle, std::uint32_t index) noexcept {
    CUDA_KERNEL_NODE_PARAMS_v2 params;
    std::memset(&params, 0, sizeof(params));
    CUDA_KERNEL_NODE_PARAMS_v1 older;
    std::memset(&older, 0, sizeof(older));
    if (driver::real::call_cuGraphKernelNodeGetParams_v2(handle, &params) != CUDA_SUCCESS) {
      if (driver::real::call_cuGraphKernelNodeGetParams(handle, &older) != CUDA_SUCCESS) {
        return emit(index, CU_GRAPH_NODE_TYPE_KERNEL, nullptr, 0);
      }
      params = driver::newer_params(older);
    }
    const driver::KernelNode kernel = driver::kernel_node(params);
    const record::Function* function = record::find_function(log_, kernel.function);
    const record::PackedParameters parameters = record::packed_parameters(function, kernel.parameters, kernel.extra);
    std::uint64_t* out = begin_node(index, CU_GRAPH_NODE_TYPE_KERNEL, function != nullptr ? function->id : 0,
                                    parameters.bytes, function != nullptr ? function->key : 0, parameters.flags);
    if (out == nullptr) return;
    out[3] = trace::pack(params.gridDimX, params.gridDimY);
    out[4] = trace::pack(params.gridDimZ, params.blockDimX);
    out[5] = trace::pack(params.blockDimY, params.blockDimZ);
    out[6] = trace::pack(params.sharedMemBytes, 0);
    parameters.copy_to(reinterpret_cast<std::uint8_t*>(out + 7));
    log_.commit();
  }

  void emit(std::uint32_t index, CUgraphNodeType type, const void* bytes, std::uint32_t size) noexcept {
    std::uint64_t* out = begin_node(index, type, 0, size, static_cast<std::uint32_t>(type), 0);
    if (out == nullptr) return;
    if (size != 0) std::memcpy(out + 7, bytes, size);
    log_.commit();
  }

  std::uint64_t* begin_node(std::uint32_t index, CUgraphNodeType type, std::uint32_t function, std::uint32_t bytes,
                            std::uint32_t key, std::uint16_t flags) noexcept {
    const auto words = static_cast<std::uint32_t>(7 + trace::words_for(bytes));
    std::uint64_t* out = log_.begin(trace::EventKind::kExecNode, key, words, {record::ticks(), 0}, flags);
    if (out == nullptr) return nullptr;
    out[words - 1] = 0;
    out[0] = exec_;
    out[1] = trace::pack(index, static_cast<std::uint32_t>(type));
    out[2] = trace::pack(function, bytes);
    out[3] = out[4] = out[5] = out[6] = 0;
    return out;
  }

  template <class Params, class Get>
  void emit_params(Get get, CUgraphNode handle, std::uint32_t index, CUgraphNodeType type) noexcept {
    Params params;
    std::memset(&params, 0, sizeof(params));
    const bool known = get != nullptr && get(handle, &params) == CUDA_SUCCESS;
    emit(index, type, &params, known ? sizeof(params) : 0);
  }

  record::ThreadLog& log_;
  std::uint64_t exec_;
  std::uint32_t next_index_ = 0;
  std::vector<Edge> edges_;
  std::vector<std::uint32_t> exits_;
};

}  // namespace

void record_graph_contents(record::ThreadLog& log, CUgraphExec exec, CUgraph graph) noexcept {
  Walk walk(log, exec);
  // Where the walk is given up, the nodes seen so far stand in the trace with the edges between them.
  try {
    (void)walk.graph(graph, Walk::kNone, 0);
  } catch (const std::bad_alloc&) {
  }
  walk.emit_edges();
}

}  // namespace grape::interpose

// NOLINTEND(bugprone-sizeof-expression)
