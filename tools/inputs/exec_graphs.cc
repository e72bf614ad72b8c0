#include "tools/inputs/exec_graphs.h"

namespace grape::tools {

using trace::EventKind;
using trace::high;
using trace::low;

const char* graph_node_type_name(std::uint32_t type) {
  constexpr const char* kNames[] = {"kernel",
                                    "memcpy",
                                    "memset",
                                    "host function",
                                    "child graph",
                                    "empty",
                                    "event wait",
                                    "event record",
                                    "semaphore signal",
                                    "semaphore wait",
                                    "memory allocation",
                                    "memory free",
                                    "memory operations",
                                    "conditional"};
  return type < sizeof kNames / sizeof *kNames ? kNames[type] : "unknown";
}

std::size_t ExecGraphs::current(std::uint64_t handle) const {
  const auto found = current_.find(handle);
  return found == current_.end() ? kNone : found->second.graph;
}

void ExecGraphs::see(const trace::EventView& event) {
  switch (event.header->kind) {
    case EventKind::kExecNode:
      return add_node(event);
    case EventKind::kExecEdges:
      return add_edges(event);
    case EventKind::kCall:
      return add_call(event);
    default:
      return;
  }
}

void ExecGraphs::add_node(const trace::EventView& event) {
  const std::uint64_t* words = event.words();
  const std::uint32_t index = low(words[1]), type = high(words[1]), function = low(words[2]);
  const auto [found, fresh] = current_.emplace(words[0], Current());
  Current& current = found->second;
  // Nodes come in ascending order, then the edges: what goes back to the start is another graph under this handle.
  if (fresh || current.whole || index <= current.last_index) {
    current = {graphs_.size(), index, false};
    graphs_.emplace_back();
    graphs_.back().handle = words[0];
    graphs_.back().sequence = event.header->sequence;
  }
  current.last_index = index;
  ExecGraph& graph = graphs_[current.graph];
  ++graph.nodes;
  if (type == kMemcpyNode) ++graph.copies;
  if (type == kMemsetNode) ++graph.memsets;
  if (type == kKernelNode) {
    ++graph.kernels;
    graph.parameter_bytes += high(words[2]);
    if (graph.functions.empty() || graph.functions.back().first != function) graph.functions.emplace_back(function, 0);
    ++graph.functions.back().second;
  }
}

void ExecGraphs::add_edges(const trace::EventView& event) {
  const std::uint64_t* words = event.words();
  const auto found = current_.find(words[0]);
  if (found == current_.end()) return;
  found->second.whole = true;
  graphs_[found->second.graph].edges += low(words[1]);
}

void ExecGraphs::add_call(const trace::EventView& event) {
  const record::CallView call(event);
  const record::ApiLayout& layout = apis_[call.api()];
  if (layout.exec < 0 || call.result() != 0) return;
  const std::uint64_t handle = call.argument(layout.exec);
  if (layout.api_class == trace::ApiClass::kGraph && layout.destroys) {
    current_.erase(handle);
    return;
  }
  if (layout.api_class != trace::ApiClass::kGraphLaunch || (event.header->flags & trace::kFlagCaptured) != 0) return;
  const auto found = current_.find(handle);
  if (found == current_.end()) {
    ++unknown_launches_;
    return;
  }
  found->second.whole = true;
  ++graphs_[found->second.graph].launches;
}

}  // namespace grape::tools
