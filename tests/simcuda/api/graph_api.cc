// The structure of graphs: nodes, edges, clones; and user objects.
#include <algorithm>
#include <atomic>
#include <cstdio>

#include "context.h"
#include "graph.h"
#include "handles.h"
#include "module.h"

namespace simcuda {

namespace {

struct UserObject {
  void* data;
  CUhostFn destroy;
  std::atomic<unsigned> references;
};

// The CUDA convention for lists: null asks for the count; else at most *count are given, the rest is filled with null.
template <typename Item, typename Value>
void give(Item* out, std::size_t room, const std::vector<Value>& all) {
  if (out == nullptr) return;
  for (std::size_t i = 0; i < room; ++i) out[i] = i < all.size() ? all[i] : Item{};
}

CUresult give_nodes(CUgraphNode* out, size_t* count, const std::vector<CUgraphNode>& all) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  give(out, *count, all);
  *count = out == nullptr ? all.size() : std::min(*count, all.size());
  return CUDA_SUCCESS;
}

CUresult get_edges(CUgraph handle, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data, size_t* count) {
  std::lock_guard<std::mutex> lock(graph_mutex());
  const Graph* graph = find_handle<Graph>(handle);
  if (graph == nullptr || count == nullptr || (from == nullptr) != (to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUgraphNode> all_from;
  std::vector<CUgraphNode> all_to;
  std::vector<CUgraphEdgeData> all_data;
  bool has_data = false;
  for (const auto& node : graph->nodes) {
    for (const Edge& edge : node->dependencies) {
      all_from.push_back(edge.from->handle);
      all_to.push_back(node->handle);
      all_data.push_back(edge.data);
      has_data = has_data || edge.data.type != 0 || edge.data.from_port != 0;
    }
  }
  if (has_data && data == nullptr && from != nullptr) return CUDA_ERROR_LOSSY_QUERY;
  give(from, *count, all_from);
  give(to, *count, all_to);
  give(data, *count, all_data);
  *count = from == nullptr ? all_from.size() : std::min(*count, all_from.size());
  return CUDA_SUCCESS;
}

CUresult get_dependencies(CUgraphNode handle, CUgraphNode* nodes, CUgraphEdgeData* data, size_t* count) {
  std::lock_guard<std::mutex> lock(graph_mutex());
  const Node* node = find_handle<Node>(handle);
  if (node == nullptr || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUgraphNode> all;
  std::vector<CUgraphEdgeData> all_data;
  for (const Edge& edge : node->dependencies) {
    all.push_back(edge.from->handle);
    all_data.push_back(edge.data);
  }
  give(data, *count, all_data);
  return give_nodes(nodes, count, all);
}

CUresult get_dependents(CUgraphNode handle, CUgraphNode* nodes, CUgraphEdgeData* data, size_t* count) {
  std::lock_guard<std::mutex> lock(graph_mutex());
  const Node* node = find_handle<Node>(handle);
  if (node == nullptr || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUgraphNode> all;
  std::vector<CUgraphEdgeData> all_data;
  for (const Node* next : node->dependents) {
    all.push_back(next->handle);
    for (const Edge& edge : next->dependencies) {
      if (edge.from == node) all_data.push_back(edge.data);
    }
  }
  give(data, *count, all_data);
  return give_nodes(nodes, count, all);
}

CUresult add_dependencies(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to, const CUgraphEdgeData* data,
                          size_t count) {
  std::lock_guard<std::mutex> lock(graph_mutex());
  const Graph* graph = find_handle<Graph>(handle);
  if (graph == nullptr || (count > 0 && (from == nullptr || to == nullptr))) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    Node* first = find_handle<Node>(from[i]);
    Node* second = find_handle<Node>(to[i]);
    if (first == nullptr || second == nullptr || first->graph != graph) return CUDA_ERROR_INVALID_VALUE;
    // As NVIDIA's driver 580.159 does: the first edge's data is that of all.
    SIM_TRY(add_edge(*first, *second, data != nullptr ? data[0] : CUgraphEdgeData{}));
  }
  return CUDA_SUCCESS;
}

void remove_edge(Node& from, Node& to) {
  auto& in = to.dependencies;
  in.erase(std::remove_if(in.begin(), in.end(), [&](const Edge& edge) { return edge.from == &from; }), in.end());
  auto& out = from.dependents;
  out.erase(std::remove(out.begin(), out.end(), &to), out.end());
}

CUresult remove_dependencies(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to, size_t count) {
  std::lock_guard<std::mutex> lock(graph_mutex());
  if (find_handle<Graph>(handle) == nullptr || (count > 0 && (from == nullptr || to == nullptr))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < count; ++i) {
    Node* first = find_handle<Node>(from[i]);
    Node* second = find_handle<Node>(to[i]);
    if (first == nullptr || second == nullptr) return CUDA_ERROR_INVALID_VALUE;
    remove_edge(*first, *second);
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuGraphCreate(CUgraph* handle, unsigned flags) {
  if (!initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  if (handle == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  auto graph = std::make_shared<Graph>();
  *handle = graph->handle = create_handle<CUgraph>(graph);
  return CUDA_SUCCESS;
}

CUresult api::cuGraphDestroy(CUgraph handle) {
  std::lock_guard<std::mutex> lock(graph_mutex());
  const Graph* graph = find_handle<Graph>(handle);
  if (graph == nullptr || graph->owned_by_node) return CUDA_ERROR_INVALID_VALUE;
  destroy_handle<Graph>(handle);
  return CUDA_SUCCESS;
}

CUresult api::cuGraphDestroyNode(CUgraphNode handle) {
  std::lock_guard<std::mutex> lock(graph_mutex());
  const std::shared_ptr<Node> node = destroy_handle<Node>(handle);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  while (!node->dependencies.empty()) remove_edge(*node->dependencies.back().from, *node);
  while (!node->dependents.empty()) remove_edge(*node, *node->dependents.back());
  auto& nodes = node->graph->nodes;
  nodes.erase(std::remove(nodes.begin(), nodes.end(), node), nodes.end());
  if (auto* child = std::get_if<ChildWork>(&node->work)) destroy_handle<Graph>(child->handle);
  return CUDA_SUCCESS;
}

CUresult api::cuGraphClone(CUgraph* clone, CUgraph original) {
  std::lock_guard<std::mutex> lock(graph_mutex());
  const Graph* graph = find_handle<Graph>(original);
  if (graph == nullptr || clone == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Graph> made = clone_graph(*graph);
  *clone = made->handle = create_handle<CUgraph>(made);
  return CUDA_SUCCESS;
}

CUresult api::cuGraphNodeFindInClone(CUgraphNode* result, CUgraphNode original, CUgraph clone) {
  std::lock_guard<std::mutex> lock(graph_mutex());
  const Graph* graph = find_handle<Graph>(clone);
  if (graph == nullptr || result == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& node : graph->nodes) {
    if (node->original != original || original == nullptr) continue;
    *result = node->handle;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult api::cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* type) {
  std::lock_guard<std::mutex> lock(graph_mutex());
  const Node* node = find_handle<Node>(handle);
  if (node == nullptr || type == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *type = type_of(node->work);
  return CUDA_SUCCESS;
}

CUresult api::cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
  std::lock_guard<std::mutex> lock(graph_mutex());
  const Graph* graph = find_handle<Graph>(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUgraphNode> all;
  for (const auto& node : graph->nodes) all.push_back(node->handle);
  return give_nodes(nodes, count, all);
}

CUresult api::cuGraphGetRootNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
  std::lock_guard<std::mutex> lock(graph_mutex());
  const Graph* graph = find_handle<Graph>(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUgraphNode> all;
  for (const auto& node : graph->nodes) {
    if (node->dependencies.empty()) all.push_back(node->handle);
  }
  return give_nodes(nodes, count, all);
}

CUresult api::cuGraphGetEdges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, size_t* count) {
  return get_edges(graph, from, to, nullptr, count);
}
CUresult api::cuGraphGetEdges_v2(CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
                                 size_t* count) {
  return get_edges(graph, from, to, data, count);
}
CUresult api::cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode* nodes, size_t* count) {
  return get_dependencies(node, nodes, nullptr, count);
}
CUresult api::cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode* nodes, CUgraphEdgeData* data,
                                            size_t* count) {
  return get_dependencies(node, nodes, data, count);
}
CUresult api::cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode* nodes, size_t* count) {
  return get_dependents(node, nodes, nullptr, count);
}
CUresult api::cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode* nodes, CUgraphEdgeData* data,
                                              size_t* count) {
  return get_dependents(node, nodes, data, count);
}
CUresult api::cuGraphAddDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count) {
  return add_dependencies(graph, from, to, nullptr, count);
}
CUresult api::cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                        const CUgraphEdgeData* data, size_t count) {
  return add_dependencies(graph, from, to, data, count);
}
CUresult api::cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count) {
  return remove_dependencies(graph, from, to, count);
}
CUresult api::cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                           const CUgraphEdgeData*, size_t count) {
  return remove_dependencies(graph, from, to, count);
}

CUresult api::cuGraphDebugDotPrint(CUgraph handle, const char* path, unsigned) {
  std::lock_guard<std::mutex> lock(graph_mutex());
  const Graph* graph = find_handle<Graph>(handle);
  if (graph == nullptr || path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::FILE* file = std::fopen(path, "we");
  if (file == nullptr) return CUDA_ERROR_OPERATING_SYSTEM;
  std::fprintf(file, "digraph simcuda {\n");
  for (const auto& node : graph->nodes) {
    const auto* kernel = std::get_if<KernelWork>(&node->work);
    std::fprintf(file, "  \"%p\" [label=\"%d %s\"];\n", static_cast<void*>(node->handle), type_of(node->work),
                 kernel != nullptr ? kernel->kernel->builtin->name : "");
    for (const Edge& edge : node->dependencies) {
      std::fprintf(file, "  \"%p\" -> \"%p\";\n", static_cast<void*>(edge.from->handle),
                   static_cast<void*>(node->handle));
    }
  }
  std::fprintf(file, "}\n");
  return std::fclose(file) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult api::cuUserObjectCreate(CUuserObject* handle, void* data, CUhostFn destroy, unsigned references, unsigned) {
  if (handle == nullptr || destroy == nullptr || references == 0) return CUDA_ERROR_INVALID_VALUE;
  auto object = std::make_shared<UserObject>();
  object->data = data;
  object->destroy = destroy;
  object->references = references;
  *handle = create_handle<CUuserObject>(object);
  return CUDA_SUCCESS;
}

CUresult api::cuUserObjectRetain(CUuserObject handle, unsigned count) {
  UserObject* object = find_handle<UserObject>(handle);
  if (object == nullptr) return CUDA_ERROR_INVALID_VALUE;
  object->references.fetch_add(count);
  return CUDA_SUCCESS;
}

CUresult api::cuUserObjectRelease(CUuserObject handle, unsigned count) {
  const std::shared_ptr<UserObject> object = share_handle<UserObject>(handle);
  if (object == nullptr || object->references.load() < count) return CUDA_ERROR_INVALID_VALUE;
  if (object->references.fetch_sub(count) == count) {
    destroy_handle<UserObject>(handle);
    object->destroy(object->data);
  }
  return CUDA_SUCCESS;
}

CUresult api::cuGraphRetainUserObject(CUgraph handle, CUuserObject object, unsigned count, unsigned flags) {
  std::lock_guard<std::mutex> lock(graph_mutex());
  Graph* graph = find_handle<Graph>(handle);
  if (graph == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  if (flags != CU_GRAPH_USER_OBJECT_MOVE) SIM_TRY(api::cuUserObjectRetain(object, count));
  graph->user_objects.insert(graph->user_objects.end(), count, object);
  return CUDA_SUCCESS;
}

CUresult api::cuGraphReleaseUserObject(CUgraph handle, CUuserObject object, unsigned count) {
  std::lock_guard<std::mutex> lock(graph_mutex());
  Graph* graph = find_handle<Graph>(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    const auto found = std::find(graph->user_objects.begin(), graph->user_objects.end(), object);
    if (found == graph->user_objects.end()) return CUDA_ERROR_INVALID_VALUE;
    graph->user_objects.erase(found);
    SIM_TRY(api::cuUserObjectRelease(object, 1));
  }
  return CUDA_SUCCESS;
}

}  // namespace simcuda
