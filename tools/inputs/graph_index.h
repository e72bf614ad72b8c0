// All graphs of a trace under stable numbers: the distinct shapes that each region's calls have, and the graphs that
// the application instantiated, in the order in which they first appear.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "shim/record/graph.h"
#include "tools/inputs/exec_graphs.h"
#include "tools/inputs/trace_input.h"

namespace grape::tools {

struct GraphEntry : GraphCounts {
  std::uint32_t id = 0;
  bool application = false;
  std::uint64_t sequence = 0;  // of its first event
  // Of a region:
  std::uint32_t region = 0;         // scope id
  std::uint32_t region_number = 0;  // as in the view "regions"
  std::uint64_t shape_hash = 0;
  std::uint64_t first_call = 0, calls = 0, incomplete_calls = 0;
  std::uint64_t streams = 0, host_reads = 0, syncs = 0, host_functions = 0, graph_launches = 0;
  // Of the application:
  std::size_t exec = 0;  // index in ExecGraphs
  std::uint64_t exec_handle = 0, launches = 0;
};

struct CallEntry {
  std::uint64_t number = 0;
  std::uint32_t region = 0, region_number = 0, ordinal = 0;  // the ordinal-th call of its region, from 1
};

// Gathers the events of region calls, and hands each call's graph over when the call ends.
class CallGraphs {
 public:
  CallGraphs(TraceInput& input, record::GraphDetail detail) : input_(input), detail_(detail) {}
  // True: `done` is the graph of the call that this step ended.
  bool see(const Step& step, record::Graph& done);
  // Calls that are open at the end of the trace; false: there is none left.
  bool next_open(record::Graph& done, std::uint64_t& call);

 private:
  std::unique_ptr<record::GraphBuilder> make();
  TraceInput& input_;
  record::GraphDetail detail_;
  record::StreamModes modes_;
  std::map<std::uint64_t, std::unique_ptr<record::GraphBuilder>> open_;
  std::vector<std::unique_ptr<record::GraphBuilder>> idle_;
};

class GraphIndex {
 public:
  // Reads the whole trace.
  explicit GraphIndex(TraceInput& input);
  const std::vector<GraphEntry>& entries() const { return entries_; }
  const GraphEntry* find(std::uint64_t id) const;
  std::uint64_t outside_launches() const { return outside_launches_; }
  // The call that `text` means: "call:17", "REGION#2" (number or pattern of the region, its second call). Throws.
  CallEntry call(const std::string& text) const;

 private:
  void add(const record::Graph& graph, const CallEntry& call, bool ended);
  void add_execs(const ExecGraphs& execs);

  TraceInput& input_;
  std::vector<GraphEntry> entries_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::size_t> by_shape_;
  std::vector<CallEntry> calls_;
  std::uint64_t outside_launches_ = 0;
};

}  // namespace grape::tools
