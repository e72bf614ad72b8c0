#include "tools/inputs/graph_index.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/inputs/filter.h"
#include "tools/text/escape.h"
#include "tools/text/failure.h"

namespace grape::tools {

using record::NodeKind;
using trace::EventKind;

namespace {

// A launch that the graph builder takes: it ran, and was not captured into a graph of the application.
bool ran(const trace::EventView& event) {
  return event.header->kind == EventKind::kLaunch && (event.header->flags & trace::kFlagCaptured) == 0 &&
         trace::LaunchView(event).result() == 0;
}

}  // namespace

std::unique_ptr<record::GraphBuilder> CallGraphs::make() {
  if (!idle_.empty()) {
    auto builder = std::move(idle_.back());
    idle_.pop_back();
    return builder;
  }
  return std::make_unique<record::GraphBuilder>(input_.apis(), &TraceInput::function_name, &input_, &modes_, detail_);
}

bool CallGraphs::see(const Step& step, record::Graph& done) {
  const EventKind kind = step.event.header->kind;
  if (kind == EventKind::kCall) {
    const record::CallView call(step.event);
    modes_.add(input_.apis()[call.api()], call);
  }
  if (step.call == 0) return false;
  if (RegionNumbers::closes_region(step)) {
    const auto found = open_.find(step.call);
    if (found == open_.end()) return false;
    done = found->second->finish();
    idle_.push_back(std::move(found->second));
    open_.erase(found);
    return true;
  }
  if (kind != EventKind::kLaunch && kind != EventKind::kCall && kind != EventKind::kBlockAlloc &&
      kind != EventKind::kBlockFree && !RegionNumbers::opens_region(step)) {
    return false;
  }
  auto& builder = open_[step.call];
  if (builder == nullptr) builder = make();
  builder->add(step.event, step.thread, step.scope);
  return false;
}

bool CallGraphs::next_open(record::Graph& done, std::uint64_t& call) {
  if (open_.empty()) return false;
  call = open_.begin()->first;
  done = open_.begin()->second->finish();
  open_.erase(open_.begin());
  return true;
}

GraphIndex::GraphIndex(TraceInput& input) : input_(input) {
  CallGraphs graphs(input, record::GraphDetail::kShape);
  ExecGraphs execs(input.apis());
  RegionNumbers numbers;
  std::map<std::uint64_t, std::size_t> open;
  record::Graph done;
  Step step;
  input.rewind();
  while (input.next(step)) {
    execs.see(step.event);
    if (step.call == 0 && ran(step.event)) ++outside_launches_;
    if (RegionNumbers::opens_region(step)) {
      CallEntry call;
      call.number = step.call;
      call.region = step.region;
      call.region_number = numbers.begin(step, call.ordinal);
      open[step.call] = calls_.size();
      calls_.push_back(call);
    }
    if (!graphs.see(step, done)) continue;
    const auto found = open.find(step.call);
    if (found == open.end()) continue;
    add(done, calls_[found->second], true);
    open.erase(found);
  }
  for (std::uint64_t call = 0; graphs.next_open(done, call);) {
    const auto found = open.find(call);
    if (found != open.end()) add(done, calls_[found->second], false);
  }
  add_execs(execs);
  std::stable_sort(entries_.begin(), entries_.end(),
                   [](const GraphEntry& a, const GraphEntry& b) { return a.sequence < b.sequence; });
  for (std::size_t i = 0; i < entries_.size(); ++i) entries_[i].id = static_cast<std::uint32_t>(i + 1);
}

void GraphIndex::add(const record::Graph& graph, const CallEntry& call, bool ended) {
  const auto [found, fresh] = by_shape_.emplace(std::make_pair(call.region, graph.shape_hash), entries_.size());
  if (fresh) {
    GraphEntry entry;
    entry.region = call.region;
    entry.region_number = call.region_number;
    entry.shape_hash = graph.shape_hash;
    entry.first_call = call.number;
    entry.sequence = graph.nodes.empty() ? UINT64_MAX : graph.nodes.front().sequence;
    entry.nodes = graph.nodes.size();
    entry.edges = graph.after.size();
    entry.streams = graph.streams;
    entry.host_reads = graph.host_reads;
    entry.syncs = graph.syncs;
    for (const record::Node& node : graph.nodes) {
      entry.kernels += node.kind == NodeKind::kKernel ? 1 : 0;
      entry.copies += node.kind == NodeKind::kCopy ? 1 : 0;
      entry.memsets += node.kind == NodeKind::kMemset ? 1 : 0;
      entry.host_functions += node.kind == NodeKind::kHostFunction ? 1 : 0;
      entry.graph_launches += node.kind == NodeKind::kGraph ? 1 : 0;
      entry.parameter_bytes += node.kind == NodeKind::kKernel ? node.bytes : 0;
    }
    entries_.push_back(entry);
  }
  ++entries_[found->second].calls;
  if (!ended) ++entries_[found->second].incomplete_calls;
}

void GraphIndex::add_execs(const ExecGraphs& execs) {
  for (std::size_t i = 0; i < execs.graphs().size(); ++i) {
    const ExecGraph& graph = execs.graphs()[i];
    GraphEntry entry;
    static_cast<GraphCounts&>(entry) = graph;
    entry.application = true;
    entry.exec = i;
    entry.exec_handle = graph.handle;
    entry.sequence = graph.sequence;
    entry.launches = graph.launches;
    entries_.push_back(entry);
  }
}

const GraphEntry* GraphIndex::find(std::uint64_t id) const {
  return id == 0 || id > entries_.size() ? nullptr : &entries_[id - 1];
}

CallEntry GraphIndex::call(const std::string& text) const {
  std::uint64_t number = 0;
  const std::string shown = escape_text(text);
  if (text.compare(0, 5, "call:") == 0) {
    if (!parse_number(text.substr(5), number)) throw Failure(fmt::format("{}: no number of a region call", shown));
    if (number == 0) return {};
    for (const CallEntry& call : calls_) {
      if (call.number == number) return call;
    }
    throw Failure(fmt::format("{}: the trace has no such region call; it has {}", shown, calls_.size()));
  }
  const std::size_t hash = text.rfind('#');
  if (hash == std::string::npos || !parse_number(text.substr(hash + 1), number) || number == 0) {
    throw Failure(fmt::format("{}: not a graph; write a graph's number, call:N, or REGION#N", shown));
  }
  const std::string region = text.substr(0, hash);
  std::uint64_t region_number = 0;
  const bool by_number = parse_number(region, region_number);
  std::uint64_t found = 0;
  for (const CallEntry& call : calls_) {
    const trace::Scope& scope = input_.scope(call.region);
    const bool same =
        by_number ? call.region_number == region_number : matches(region, scope.name) || matches(region, scope.type);
    if (same && ++found == number) return call;
  }
  throw Failure(fmt::format("{}: the region has {} calls in this trace", shown, found));
}

}  // namespace grape::tools
