// Graphs, their nodes, and what they are instantiated to.
//
// One mutex guards the structure of all graphs and all captures; launches do not take it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "work.h"

namespace simcuda {

struct Graph;

struct Edge {
  struct Node* from;
  CUgraphEdgeData data;
};

struct Node {
  Work work;
  Graph* graph = nullptr;
  CUgraphNode handle = nullptr;
  CUgraphNode original = nullptr;  // in the graph that this one was cloned from
  std::vector<Edge> dependencies;
  std::vector<Node*> dependents;
  std::vector<void*> parameter_pointers;  // what a kernel node's getter pointed to
};

struct Graph {
  ~Graph();
  std::vector<std::shared_ptr<Node>> nodes;  // in the order of creation
  CUgraph handle = nullptr;
  bool owned_by_node = false;  // a child graph: ends with its node
  std::vector<CUuserObject> user_objects;
};

struct ExecNode {
  CUgraphNode source = nullptr;  // the node of the graph it came from
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  bool enabled = true;
  Work work;  // a child graph is a GraphWork
};

// What a launch runs: the nodes in an order that keeps all dependencies. Never changed while shared.
struct ExecImage {
  std::vector<ExecNode> nodes;
  std::vector<std::vector<std::size_t>> dependencies;  // by node, sorted: to compare topologies
};

struct Exec {
  std::mutex mutex;
  std::shared_ptr<ExecImage> image;
  std::shared_ptr<Graph> graph;  // as instantiated: for a launch that is captured
  Context* context = nullptr;
  cuuint64_t flags = 0;
  std::shared_ptr<Stream> last_stream;  // launches of one graph do not overlap
  std::uint64_t last_ticket = 0;
};

std::mutex& graph_mutex();

// All of these need graph_mutex held.
CUgraphNodeType type_of(const Work& work);
// CUDA_ERROR_INVALID_VALUE if a dependency is no node of this graph, or given twice.
CUresult check_dependencies(const Graph& graph, const CUgraphNode* dependencies, size_t count);
Node* add_node(Graph& graph, Work&& work, const CUgraphNode* dependencies, const CUgraphEdgeData* data, size_t count);
CUresult add_edge(Node& from, Node& to,
                  const CUgraphEdgeData& data);  // CUDA_ERROR_INVALID_VALUE: there already, circle
std::shared_ptr<Graph> clone_graph(const Graph& graph);
// Null for a graph with a circle.
std::shared_ptr<ExecImage> make_image(const Graph& graph);

CUresult launch_exec(CUgraphExec handle, Stream& stream);

}  // namespace simcuda
