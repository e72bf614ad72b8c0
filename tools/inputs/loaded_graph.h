// One graph with all that the trace knows of it: a region call's, or one that the application instantiated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/inputs/blocks.h"
#include "tools/inputs/graph_index.h"

namespace grape::tools {

// At most 8 bytes of a node's parameters, none across two parameters. Whole aligned words may be pointers.
struct Word {
  static constexpr std::uint32_t kNoParameter = UINT32_MAX;
  std::uint32_t parameter = 0;     // index, or kNoParameter: between parameters
  std::uint32_t in_parameter = 0;  // bytes from its begin
  std::uint32_t offset = 0;        // bytes from the begin of all parameters
  std::uint32_t bytes = 8;
  std::uint64_t value = 0;
  Block block;  // that it points into, as things stood when the node was issued
};

struct LoadedNode {
  record::NodeKind kind = record::NodeKind::kKernel;
  bool other = false;      // an application graph's node that no stream operation makes (empty, event, …)
  std::uint32_t type = 0;  // of an application graph's node
  std::uint32_t function = 0, api = 0, frame = 0, native_frame = 0, scope = 0, thread = 0;
  std::uint32_t grid[3] = {}, block[3] = {};
  std::uint32_t shared_bytes = 0;
  std::uint64_t stream = 0, bytes = 0, sequence = 0;
  std::vector<std::string> attributes;
  std::vector<Word> words;
  std::vector<std::uint32_t> after;
};

struct HostLine {
  std::uint32_t before_node = 0;
  bool allocator = false;
  std::optional<std::uint64_t> stream;  // where the call is about one
  std::uint32_t frame = 0;
  std::string text;
};

struct LoadedGraph {
  std::string title;
  bool application = false;
  CallEntry call;
  std::vector<LoadedNode> nodes;
  std::vector<HostLine> host_lines;
  std::uint64_t dropped_edges = 0;
  std::uint64_t edges = 0;
};

// `selector`: a graph's number (also "graph:N"; of a region's graph: its first call), "call:N", "REGION#N".
// `words`: keep the parameters. Reads the trace up to where the graph ends. Throws Failure.
LoadedGraph load_graph(TraceInput& input, const GraphIndex& index, const std::string& selector, bool words);

// The kernel's or call's name, mangled, by which nodes are alike.
std::string node_key(const TraceInput& input, const LoadedNode& node);
// As people read it.
std::string node_name(TraceInput& input, const LoadedNode& node);
// "2 +0x8": which parameter and where in it; an argument's name for calls.
std::string word_place(const TraceInput& input, const LoadedNode& node, const Word& word);

}  // namespace grape::tools
