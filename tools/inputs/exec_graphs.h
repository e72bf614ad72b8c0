// The graphs that the application instantiated, and how often it launched them.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tools/inputs/trace_input.h"

namespace grape::tools {

// CUgraphNodeType, cuda.h.
enum GraphNodeType : std::uint32_t {
  kKernelNode = 0,
  kMemcpyNode = 1,
  kMemsetNode = 2,
  kHostNode = 3,
  kChildGraphNode = 4,
  kEmptyNode = 5,
};
const char* graph_node_type_name(std::uint32_t type);

struct GraphCounts {
  std::uint64_t nodes = 0, kernels = 0, copies = 0, memsets = 0, edges = 0, parameter_bytes = 0;
};

// One instantiation. A handle may be used again after its graph was destroyed.
struct ExecGraph : GraphCounts {
  std::uint64_t handle = 0;
  std::uint64_t sequence = 0;                                      // of its first event
  std::uint64_t launches = 0;                                      // that succeeded and were not captured themselves
  std::vector<std::pair<std::uint32_t, std::uint64_t>> functions;  // function id → kernel nodes
};

class ExecGraphs {
 public:
  explicit ExecGraphs(const record::ApiTable& apis) : apis_(apis) {}
  void see(const trace::EventView& event);
  const std::vector<ExecGraph>& graphs() const { return graphs_; }
  std::uint64_t unknown_launches() const { return unknown_launches_; }  // of graphs whose nodes the trace lacks
  static constexpr std::size_t kNone = SIZE_MAX;
  std::size_t current(std::uint64_t handle) const;  // index of the handle's graph at this moment

 private:
  void add_node(const trace::EventView& event);
  void add_edges(const trace::EventView& event);
  void add_call(const trace::EventView& event);

  struct Current {
    std::size_t graph = 0;
    std::uint32_t last_index = 0;
    bool whole = false;  // its edges have begun, or it was launched
  };
  const record::ApiTable& apis_;
  std::vector<ExecGraph> graphs_;
  std::unordered_map<std::uint64_t, Current> current_;
  std::uint64_t unknown_launches_ = 0;
};

}  // namespace grape::tools
