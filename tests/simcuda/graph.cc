#include "graph.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "capture.h"
#include "faults.h"
#include "handles.h"
#include "stream.h"

namespace simcuda {

namespace {

// Is `to` reachable from `from`?
bool reaches(const Node& from, const Node& to, std::set<const Node*>* seen) {
  if (&from == &to) return true;
  if (!seen->insert(&from).second) return false;
  return std::any_of(from.dependents.begin(), from.dependents.end(),
                     [&](const Node* next) { return reaches(*next, to, seen); });
}

Work clone_work(const Work& work) {
  Work copy = work;
  if (auto* child = std::get_if<ChildWork>(&copy)) {
    child->graph = clone_graph(*child->graph);
    child->graph->owned_by_node = true;
    child->graph->handle = child->handle = create_handle<CUgraph>(child->graph);
  }
  return copy;
}

// The nodes in topological order, the earlier created first where both may go.
std::vector<const Node*> topological_order(const Graph& graph) {
  std::unordered_map<const Node*, std::size_t> index;
  std::unordered_map<const Node*, std::size_t> waiting;
  std::set<std::size_t> ready;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node* node = graph.nodes[i].get();
    index[node] = i;
    waiting[node] = node->dependencies.size();
    if (node->dependencies.empty()) ready.insert(i);
  }
  std::vector<const Node*> order;
  while (!ready.empty()) {
    const Node* node = graph.nodes[*ready.begin()].get();
    ready.erase(ready.begin());
    order.push_back(node);
    for (const Node* next : node->dependents) {
      if (--waiting[next] == 0) ready.insert(index[next]);
    }
  }
  return order;
}

template <typename Visit>
void for_each_event(const ExecImage& image, const Visit& visit) {
  for (const ExecNode& node : image.nodes) {
    if (!node.enabled) continue;
    if (const auto* child = std::get_if<GraphWork>(&node.work)) for_each_event(*child->image, visit);
    visit(node);
  }
}

}  // namespace

std::mutex& graph_mutex() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}

Graph::~Graph() {
  for (const auto& node : nodes) {
    if (auto* child = std::get_if<ChildWork>(&node->work)) destroy_handle<Graph>(child->handle);
    destroy_handle<Node>(node->handle);
  }
  for (const CUuserObject object : user_objects) api::cuUserObjectRelease(object, 1);
}

CUgraphNodeType type_of(const Work& work) {
  struct Type {
    CUgraphNodeType operator()(const EmptyWork&) { return CU_GRAPH_NODE_TYPE_EMPTY; }
    CUgraphNodeType operator()(const KernelWork&) { return CU_GRAPH_NODE_TYPE_KERNEL; }
    CUgraphNodeType operator()(const CopyWork&) { return CU_GRAPH_NODE_TYPE_MEMCPY; }
    CUgraphNodeType operator()(const MemsetWork&) { return CU_GRAPH_NODE_TYPE_MEMSET; }
    CUgraphNodeType operator()(const HostWork&) { return CU_GRAPH_NODE_TYPE_HOST; }
    CUgraphNodeType operator()(const ChildWork&) { return CU_GRAPH_NODE_TYPE_GRAPH; }
    CUgraphNodeType operator()(const EventRecordWork&) { return CU_GRAPH_NODE_TYPE_EVENT_RECORD; }
    CUgraphNodeType operator()(const EventWaitWork&) { return CU_GRAPH_NODE_TYPE_WAIT_EVENT; }
    CUgraphNodeType operator()(const BatchWork&) { return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP; }
    CUgraphNodeType operator()(const AllocWork&) { return CU_GRAPH_NODE_TYPE_MEM_ALLOC; }
    CUgraphNodeType operator()(const FreeWork&) { return CU_GRAPH_NODE_TYPE_MEM_FREE; }
    CUgraphNodeType operator()(const GraphWork&) { return CU_GRAPH_NODE_TYPE_GRAPH; }
  };
  return std::visit(Type{}, work);
}

CUresult check_dependencies(const Graph& graph, const CUgraphNode* dependencies, size_t count) {
  if (count > 0 && dependencies == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::set<CUgraphNode> seen;
  for (size_t i = 0; i < count; ++i) {
    const Node* node = find_handle<Node>(dependencies[i]);
    if (node == nullptr || node->graph != &graph || !seen.insert(dependencies[i]).second) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

Node* add_node(Graph& graph, Work&& work, const CUgraphNode* dependencies, const CUgraphEdgeData* data, size_t count) {
  auto node = std::make_shared<Node>();
  node->work = std::move(work);
  node->graph = &graph;
  node->handle = create_handle<CUgraphNode>(node);
  for (size_t i = 0; i < count; ++i) {
    Node* from = find_handle<Node>(dependencies[i]);
    node->dependencies.push_back({from, data != nullptr ? data[i] : CUgraphEdgeData{}});
    from->dependents.push_back(node.get());
  }
  graph.nodes.push_back(node);
  return node.get();
}

CUresult add_edge(Node& from, Node& to, const CUgraphEdgeData& data) {
  std::set<const Node*> seen;
  if (from.graph != to.graph || reaches(to, from, &seen)) return CUDA_ERROR_INVALID_VALUE;
  for (const Edge& edge : to.dependencies) {
    if (edge.from == &from) return CUDA_ERROR_INVALID_VALUE;
  }
  to.dependencies.push_back({&from, data});
  from.dependents.push_back(&to);
  return CUDA_SUCCESS;
}

std::shared_ptr<Graph> clone_graph(const Graph& graph) {
  auto clone = std::make_shared<Graph>();
  std::unordered_map<const Node*, Node*> twin;
  for (const auto& node : graph.nodes) {
    Node* made = add_node(*clone, clone_work(node->work), nullptr, nullptr, 0);
    made->original = node->handle;
    twin[node.get()] = made;
  }
  for (const auto& node : graph.nodes) {
    for (const Edge& edge : node->dependencies) twin[node.get()]->dependencies.push_back({twin[edge.from], edge.data});
    for (const Node* next : node->dependents) twin[node.get()]->dependents.push_back(twin[next]);
  }
  return clone;
}

std::shared_ptr<ExecImage> make_image(const Graph& graph) {
  const std::vector<const Node*> order = topological_order(graph);
  if (order.size() != graph.nodes.size()) return nullptr;
  auto image = std::make_shared<ExecImage>();
  std::unordered_map<const Node*, std::size_t> place;
  for (const Node* node : order) {
    place[node] = image->nodes.size();
    ExecNode made;
    made.source = node->handle;
    made.type = type_of(node->work);
    if (const auto* child = std::get_if<ChildWork>(&node->work)) {
      GraphWork nested;
      nested.image = make_image(*child->graph);
      if (nested.image == nullptr) return nullptr;
      made.work = std::move(nested);
    } else if (std::holds_alternative<FreeWork>(node->work)) {
      made.work = EmptyWork{};  // the memory stays for the next launch
    } else {
      made.work = node->work;
    }
    image->nodes.push_back(std::move(made));
    std::vector<std::size_t> dependencies;
    for (const Edge& edge : node->dependencies) dependencies.push_back(place[edge.from]);
    std::sort(dependencies.begin(), dependencies.end());
    image->dependencies.push_back(std::move(dependencies));
  }
  return image;
}

CUresult launch_exec(CUgraphExec handle, Stream& stream) {
  const std::shared_ptr<Exec> exec = share_handle<Exec>(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  busy_wait();
  if (captures_active()) SIM_TRY(check_implicit_synchronization(stream));
  std::lock_guard<std::mutex> lock(exec->mutex);
  GraphWork work;
  work.image = exec->image;
  std::vector<Dependency> dependencies;
  for_each_event(*exec->image, [&](const ExecNode& node) {
    if (const auto* recorded = std::get_if<EventRecordWork>(&node.work)) {
      auto record = std::make_shared<EventRecord>();
      record->stream = stream.shared_from_this();
      work.records.emplace_back(recorded->event, std::move(record));
    } else if (const auto* waited = std::get_if<EventWaitWork>(&node.work)) {
      std::lock_guard<std::mutex> event_lock(waited->event->mutex);
      const auto& record = waited->event->record;
      if (record != nullptr && !record->done()) dependencies.push_back({record->stream, record->ticket});
    }
  });
  if (exec->last_stream != nullptr && exec->last_stream.get() != &stream &&
      !exec->last_stream->done(exec->last_ticket)) {
    dependencies.push_back({exec->last_stream, exec->last_ticket});
  }
  const auto records = work.records;
  exec->last_ticket = stream.enqueue(std::move(work), std::move(dependencies));
  exec->last_stream = stream.shared_from_this();
  for (const auto& [event, record] : records) {
    std::lock_guard<std::mutex> event_lock(event->mutex);
    event->record = record;
    event->captured = false;
  }
  return CUDA_SUCCESS;
}

}  // namespace simcuda
