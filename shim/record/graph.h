// Kernel streams become graphs: the events of one region call as a DAG. Core: no CUDA, no Python, no preloading.
//
// Nodes are the operations that the device executes, in the order of their sequence. Edges: each node follows the
// last node of its stream; a wait for an event makes the stream's next node follow what that event had recorded; the
// legacy default stream (handle 0 or 1) orders with every blocking stream. Edges that others imply are left out.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "compressor/trace/event.h"
#include "compressor/trace/meta.h"

namespace grape::record {

enum class NodeKind : std::uint8_t { kKernel, kCopy, kMemset, kHostFunction, kGraph, kMemoryOp };

struct Node {
  NodeKind kind = NodeKind::kKernel;
  std::uint64_t stream = 0;
  std::uint64_t sequence = 0;
  std::uint32_t function = 0;        // file-wide id; 0 where not a kernel
  std::uint32_t api = 0;             // id of the driver call
  std::uint32_t frame = 0;           // Python frame id
  std::uint32_t scope = 0;           // innermost scope id
  std::vector<std::uint64_t> words;  // the event's payload, whole: launch or call
  std::vector<std::uint32_t> after;  // nodes that it directly follows, ascending
};

// Things of the host's side that stand between nodes, in the same order: allocator events and host reads.
struct HostEvent {
  trace::EventKind kind;
  std::uint32_t api = 0;          // kCall: synchronisations and copies to the host
  std::uint32_t before_node = 0;  // index of the first node that came later
  std::vector<std::uint64_t> words;
};

struct Graph {
  std::vector<Node> nodes;
  std::vector<HostEvent> host_events;
  // Same for graphs with the same nodes (kind, function name, dimensions, parameter size) and edges; addresses,
  // streams' handles and parameter values do not count.
  std::uint64_t shape_hash = 0;
};

class GraphBuilder {
 public:
  // `apis`: the trace's call table; api id N is apis[N - 1]. `function_name` gives a name per function id. Both must
  // outlive the builder.
  GraphBuilder(const std::vector<trace::ApiInfo>& apis, const std::string& (*function_name)(std::uint32_t, void*),
               void* context);

  // Feed events in sequence order: those of the region call, from all of its threads. Captured launches are skipped:
  // they do not execute. `scope`: the innermost scope of the event's thread.
  void add(const trace::EventView& event, std::uint32_t scope);
  Graph finish();  // and starts anew

 private:
  const std::vector<trace::ApiInfo>& apis_;
  const std::string& (*function_name_)(std::uint32_t, void*);
  void* context_;
  Graph graph_;
  std::vector<std::pair<std::uint64_t, std::vector<std::uint32_t>>> streams_;  // stream → nodes the next one follows
  std::vector<std::pair<std::uint64_t, std::vector<std::uint32_t>>> events_;   // event → nodes it recorded
};

}  // namespace grape::record
