// Kernel streams become graphs: the events of one region call as a DAG. Core: no CUDA, no Python, no preloading.
//
// Nodes are the operations that the device executes, in the order of their sequence. Edges: each node follows the
// last node of its stream; a wait for an event makes the stream's next node follow what that event had recorded; the
// legacy default stream (handle 0 or 1) orders with every blocking stream. Edges that others imply are left out.
//
// Calls that failed and calls on a stream under capture execute nothing: they are no nodes. What the host waits for
// (cuStreamSynchronize) makes no edge; it stands among the host events.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "compressor/trace/event.h"
#include "shim/record/api_table.h"

namespace grape::record {

enum class NodeKind : std::uint8_t { kKernel, kCopy, kMemset, kHostFunction, kGraph, kMemoryOp };

struct Node {
  NodeKind kind = NodeKind::kKernel;
  CopyDirection direction = CopyDirection::kUnknown;  // of a copy
  std::uint16_t flags = 0;                            // trace::EventFlags
  std::uint32_t thread = 0;
  std::uint64_t stream = 0;  // as normal_stream() gives it
  std::uint64_t sequence = 0;
  std::uint64_t bytes = 0;                      // parameter bytes of a kernel; bytes moved by a copy or memset
  std::uint32_t function = 0;                   // file-wide id; 0 where not a kernel
  std::uint32_t api = 0;                        // id of the driver call
  std::uint32_t frame = 0;                      // Python frame id
  std::uint32_t scope = 0;                      // innermost scope id
  std::uint32_t words_at = 0, word_count = 0;   // the event's payload in Graph::words
  std::uint32_t after_at = 0, after_count = 0;  // in Graph::after: the nodes that it directly follows, ascending
};

// Things of the host's side that stand between nodes, in the same order: allocator events and host reads.
struct HostEvent {
  trace::EventKind kind = trace::EventKind::kNone;
  std::uint32_t api = 0;          // kCall: synchronisations and copies to the host
  std::uint32_t before_node = 0;  // index of the first node that came later
  std::uint64_t sequence = 0;
  std::uint32_t words_at = 0, word_count = 0;
};

struct Graph {
  std::vector<Node> nodes;
  std::vector<HostEvent> host_events;
  std::vector<std::uint64_t> words;
  std::vector<std::uint32_t> after;
  // Same for graphs with the same nodes (kind, function name, dimensions, sizes) and edges; addresses, streams'
  // handles and parameter values do not count.
  std::uint64_t shape_hash = 0;
  std::uint64_t dropped_edges = 0;  // beyond what one stream may wait for at once; 0 in any sane program
  std::uint32_t streams = 0;        // distinct
  std::uint32_t host_reads = 0;     // copies to the host
  std::uint32_t syncs = 0;          // waits of the host

  const std::uint64_t* words_of(const Node& node) const { return words.data() + node.words_at; }
  const std::uint64_t* words_of(const HostEvent& event) const { return words.data() + event.words_at; }
};

// kShape keeps nodes and edges, but neither payloads nor host events: enough for counts and the hash.
enum class GraphDetail : std::uint8_t { kShape, kFull };

class GraphBuilder {
 public:
  // `function_name` gives a name per function id. All must outlive the builder; `modes` may be null: every stream is
  // then taken to be a blocking one.
  using FunctionName = const std::string& (*)(std::uint32_t function, void* context);
  GraphBuilder(const ApiTable& apis, FunctionName function_name, void* context, const StreamModes* modes,
               GraphDetail detail = GraphDetail::kFull);

  // Feed events in sequence order: those of the region call, from all of its threads; others than kLaunch, kCall,
  // kBlockAlloc and kBlockFree are ignored. `scope`: the innermost scope of the event's thread.
  void add(const trace::EventView& event, std::uint32_t thread, std::uint32_t scope);
  Graph finish();  // and starts anew
  // So far:
  std::size_t size() const { return graph_.nodes.size(); }
  std::uint32_t host_reads() const { return graph_.host_reads; }
  std::uint32_t syncs() const { return graph_.syncs; }

 private:
  using Nodes = std::vector<std::uint32_t>;  // ascending
  struct Lane {                              // one stream
    Nodes tail;                              // what its next node follows
    std::uint64_t legacy_epoch = 0;          // of the legacy stream's state that the tail implies
  };

  void add_launch(const trace::EventView& event, std::uint32_t thread, std::uint32_t scope);
  void add_call(const trace::EventView& event, std::uint32_t thread, std::uint32_t scope);
  void add_node(Node node, const trace::EventView& event, std::uint64_t shape);
  void add_host_event(const trace::EventView& event, std::uint32_t api);
  void keep_words(const trace::EventView& event, std::uint32_t& at, std::uint32_t& count);
  std::uint64_t lane_key(std::uint64_t stream, std::uint32_t thread) const;
  bool blocking(std::uint64_t stream) const;
  Nodes pending(std::uint64_t stream, std::uint32_t thread);
  void set_tail(std::uint64_t stream, std::uint32_t thread, Nodes tail, bool is_node);
  void wait(std::uint64_t stream, std::uint32_t thread, const Nodes& nodes);
  void reduce(Nodes& nodes);
  std::uint64_t name_hash(std::uint32_t function);

  const ApiTable& apis_;
  FunctionName function_name_;
  void* context_;
  const StreamModes* modes_;
  GraphDetail detail_;
  Graph graph_;
  std::unordered_map<std::uint64_t, Lane> blocking_lanes_;  // those with work since the legacy stream's last node
  std::unordered_map<std::uint64_t, Lane> free_lanes_;      // of non-blocking streams
  std::unordered_map<std::uint64_t, Nodes> events_;         // event → what it recorded
  std::unordered_map<std::uint64_t, bool> streams_seen_;
  Nodes legacy_;
  std::uint64_t legacy_epoch_ = 0;
  std::uint64_t search_budget_ = 0;
  std::vector<std::uint32_t> visited_;  // per node: the search that came by last
  std::uint32_t search_ = 0;
  std::vector<std::uint64_t> name_hashes_;  // by function id; 0: not known yet. Kept from graph to graph
};

}  // namespace grape::record
