// The views "regions" and "threads".
#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "tools/inputs/graph_index.h"
#include "tools/text/escape.h"
#include "tools/views/views.h"

namespace grape::tools {
namespace {

using trace::EventKind;

struct Call {
  std::uint64_t number = 0;
  std::uint32_t ordinal = 0, thread = 0;
  std::uint64_t launches = 0, host_reads = 0, syncs = 0, begin_ticks = 0, ticks = 0, shape = 0;
  bool ended = false, raised = false;
};

struct Region {
  std::uint32_t scope = 0;
  std::vector<std::size_t> calls;
  std::uint32_t first_frame = 0;
};

// A module inside a region: launches whose innermost scope it is, and how often it was called.
struct Module {
  std::uint64_t launches = 0, calls = 0;
};

// Not trusted: it stands in the trace.
const char* kind_name(trace::ScopeKind kind) {
  constexpr const char* kNames[] = {"unknown", "module", "backward", "optimizer", "function"};
  return static_cast<std::size_t>(kind) < std::size(kNames) ? kNames[static_cast<std::size_t>(kind)] : "unknown";
}

class RegionPass {
 public:
  RegionPass(TraceInput& input, const DumpOptions& options)
      : input_(input), filter_(options.filter, input), shapes_(input, record::GraphDetail::kShape) {}

  void run() {
    Step step;
    record::Graph graph;
    input_.rewind();
    while (input_.next(step)) {
      filter_.see(step);
      if (RegionNumbers::opens_region(step)) begin(step);
      const bool done = shapes_.see(step, graph);
      if (step.call != 0) count(step);
      if (RegionNumbers::closes_region(step)) end(step, done ? graph.shape_hash : 0);
    }
    // Calls of regions that the filter leaves out were needed for the regions' numbers only.
    for (auto region = regions_.begin(); region != regions_.end();) {
      region = filter_.region(region->second.scope) ? std::next(region) : regions_.erase(region);
    }
  }

  const std::map<std::uint32_t, Region>& regions() const { return regions_; }
  const Call& call(std::size_t index) const { return calls_[index]; }
  const std::map<std::uint32_t, Module>& modules(std::uint32_t region) { return modules_[region]; }

 private:
  void begin(const Step& step) {
    Call call;
    call.number = step.call;
    const std::uint32_t number = numbers_.begin(step, call.ordinal);
    call.thread = step.thread;
    call.begin_ticks = step.event.header->ticks;
    Region& region = regions_[number];
    region.scope = step.region;
    if (region.calls.empty()) region.first_frame = trace::high(step.event.words()[0]);
    region.calls.push_back(calls_.size());
    open_[step.call] = calls_.size();
    calls_.push_back(call);
  }

  void count(const Step& step) {
    const auto found = open_.find(step.call);
    if (found == open_.end()) return;
    Call& call = calls_[found->second];
    const EventKind kind = step.event.header->kind;
    if (kind == EventKind::kScopeBegin) ++modules_[step.region][step.scope].calls;
    if ((kind != EventKind::kLaunch && kind != EventKind::kCall) || !filter_.event(step)) return;
    if ((step.event.header->flags & trace::kFlagCaptured) != 0) return;
    if (kind == EventKind::kLaunch) {
      if (trace::LaunchView(step.event).result() != 0) return;
      ++call.launches;
      ++modules_[step.region][step.scope].launches;
      return;
    }
    const record::CallView driver_call(step.event);
    const record::ApiLayout& layout = input_.apis()[driver_call.api()];
    if (driver_call.result() != 0) return;
    if (layout.api_class == trace::ApiClass::kStreamSync) ++call.syncs;
    const bool copies = layout.api_class == trace::ApiClass::kCopy || layout.api_class == trace::ApiClass::kCopyToHost;
    if (copies && copy_direction(layout, driver_call) == record::CopyDirection::kToHost) ++call.host_reads;
  }

  void end(const Step& step, std::uint64_t shape) {
    const auto found = open_.find(step.call);
    if (found == open_.end()) return;
    Call& call = calls_[found->second];
    call.ended = true;
    call.raised = trace::high(step.event.words()[0]) != 0;
    call.ticks = step.event.header->ticks - std::min(step.event.header->ticks, call.begin_ticks);
    call.shape = shape;
    open_.erase(found);
  }

  TraceInput& input_;
  Filter filter_;
  CallGraphs shapes_;
  RegionNumbers numbers_;
  std::map<std::uint32_t, Region> regions_;  // by number
  std::vector<Call> calls_;
  std::map<std::uint64_t, std::size_t> open_;
  std::map<std::uint32_t, std::map<std::uint32_t, Module>> modules_;  // region → scope → counts
};

struct Spread {
  double least = 0, median = 0, most = 0;
};

Spread spread(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  return {values.front(), values[values.size() / 2], values.back()};
}

Cell spread_cell(const Spread& s, int digits) {
  const auto text = [digits](double value) { return fmt::format("{:.{}f}", value, digits); };
  const std::string shown =
      s.least == s.most ? text(s.median) : fmt::format("{}/{}/{}", text(s.least), text(s.median), text(s.most));
  return {Json{{"min", s.least}, {"median", s.median}, {"max", s.most}}, shown};
}

Table region_table(RegionPass& pass, TraceInput& input) {
  Table table({{"number", "region", true},
               {"kind", "kind"},
               {"name", "name", false, true},
               {"type", "", false},
               {"calls", "calls", true},
               {"raised", "", true},
               {"launches", "launches", true},
               {"launches_per_call", "per call", true},
               {"graphs", "graphs", true},
               {"host_reads", "host reads", true},
               {"syncs", "syncs", true},
               {"milliseconds_per_call", "ms per call", true},
               {"first_line", "called from", false, true}});
  for (const auto& [number, region] : pass.regions()) {
    std::vector<double> launches, times;
    std::set<std::uint64_t> shapes;
    std::uint64_t total = 0, reads = 0, syncs = 0, raised = 0;
    for (const std::size_t index : region.calls) {
      const Call& call = pass.call(index);
      total += call.launches;
      reads += call.host_reads;
      syncs += call.syncs;
      raised += call.raised ? 1 : 0;
      launches.push_back(static_cast<double>(call.launches));
      if (!call.ended) continue;
      times.push_back(input.seconds(call.ticks) * 1e3);
      shapes.insert(call.shape);
    }
    const trace::Scope& scope = input.scope(region.scope);
    table.add({number, kind_name(scope.kind), Cell(text_value(scope.name), input.scope_name(region.scope)),
               text_value(scope.type), region.calls.size(), raised, total, spread_cell(spread(launches), 0),
               shapes.size(), reads, syncs, spread_cell(spread(times), 3),
               text_value(input.position(region.first_frame))});
  }
  return table;
}

Table call_table(RegionPass& pass, TraceInput& input) {
  Table table({{"call", "call", true},
               {"region", "region", true},
               {"ordinal", "#", true},
               {"name", "name", false, true},
               {"thread", "thread", true},
               {"launches", "launches", true},
               {"host_reads", "host reads", true},
               {"syncs", "syncs", true},
               {"milliseconds", "ms", true},
               {"status", "status"},
               {"shape", "shape"}});
  std::map<std::uint64_t, std::vector<Cell>> rows;
  for (const auto& [number, region] : pass.regions()) {
    for (const std::size_t index : region.calls) {
      const Call& call = pass.call(index);
      const double milliseconds = input.seconds(call.ticks) * 1e3;
      rows[call.number] = {call.number,
                           number,
                           call.ordinal,
                           text_value(input.scope_name(region.scope)),
                           call.thread,
                           call.launches,
                           call.host_reads,
                           call.syncs,
                           Cell(milliseconds, fmt::format("{:.3f}", milliseconds)),
                           call.raised  ? "raised"
                           : call.ended ? "returned"
                                        : "open",
                           hex_value(call.shape)};
    }
  }
  for (auto& row : rows) table.add(std::move(row.second));
  return table;
}

// Modules by path; launches of a module include those of the modules in it.
Table tree_table(RegionPass& pass, TraceInput& input, std::size_t depth) {
  Table table({{"region", "region", true},
               {"launches", "launches", true},
               {"own", "own", true},
               {"calls", "calls", true},
               {"module", "module", false, true},
               {"type", "type", false, true}});
  for (const auto& [number, region] : pass.regions()) {
    struct Line {
      Module own;
      std::uint64_t launches = 0;
      std::string type;
    };
    std::map<std::vector<std::string>, Line> lines;
    for (const auto& [scope, counts] : pass.modules(region.scope)) {
      std::vector<std::string> path;
      const std::string& name = scope == region.scope ? std::string() : input.scope(scope).name;
      std::istringstream parts(name);
      for (std::string part; path.size() < 256 && std::getline(parts, part, '.');) path.push_back(part);
      Line& line = lines[path];
      line.own.launches += counts.launches;
      line.own.calls += counts.calls;
      line.type = input.scope(scope).type;
      for (std::size_t level = 0; level <= path.size(); ++level) {
        lines[std::vector<std::string>(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(level))].launches +=
            counts.launches;
      }
    }
    for (const auto& [path, line] : lines) {
      if (depth != 0 && path.size() >= depth) continue;
      std::string full;
      for (const std::string& part : path) full += (full.empty() ? "" : ".") + part;
      const std::string label = path.empty() ? input.scope_name(region.scope) : path.back();
      table.add({number, line.launches, line.own.launches, line.own.calls,
                 Cell(text_value(full), std::string(2 * path.size(), ' ') + label), text_value(line.type)});
    }
  }
  return table;
}

}  // namespace

int view_regions(TraceInput& input, const DumpOptions& options, Output& out) {
  RegionPass pass(input, options);
  pass.run();
  if (options.tree) {
    print_table(out, input, options, tree_table(pass, input, options.depth), "modules");
  } else if (options.calls) {
    print_table(out, input, options, call_table(pass, input), "calls");
  } else {
    print_table(out, input, options, region_table(pass, input), "regions");
  }
  return 0;
}

int view_threads(TraceInput& input, const DumpOptions& options, Output& out) {
  struct Counts {
    std::uint64_t events = 0, launches = 0, calls = 0, scopes = 0, blocks = 0, first = UINT64_MAX, last = 0;
  };
  std::map<std::uint32_t, Counts> threads;
  Filter filter(options.filter, input);
  Step step;
  input.rewind();
  while (input.next(step)) {
    filter.see(step);
    if (!filter.event(step)) continue;
    Counts& counts = threads[step.thread];
    ++counts.events;
    const EventKind kind = step.event.header->kind;
    counts.launches += kind == EventKind::kLaunch ? 1 : 0;
    counts.calls += kind == EventKind::kCall ? 1 : 0;
    counts.scopes += kind == EventKind::kScopeBegin ? 1 : 0;
    counts.blocks += kind == EventKind::kBlockAlloc || kind == EventKind::kBlockFree ? 1 : 0;
    if (kind != EventKind::kLaunch && kind != EventKind::kCall) continue;
    counts.first = std::min(counts.first, step.event.header->ticks);
    counts.last = std::max(counts.last, step.event.header->ticks);
  }
  std::map<std::uint32_t, std::uint32_t> os_threads;
  for (const trace::ThreadInfo& info : input.reader().threads()) os_threads[info.thread] = info.os_thread;
  Table table({{"thread", "thread", true},
               {"os_thread", "os thread", true},
               {"records", "records", true},
               {"launches", "launches", true},
               {"calls", "other calls", true},
               {"scopes", "scopes", true},
               {"blocks", "block events", true},
               {"first_second", "first at", true},
               {"last_second", "last at", true}});
  const auto time = [&input](std::uint64_t ticks) {
    const double seconds = ticks == UINT64_MAX ? 0 : input.seconds_since_start(ticks);
    return Cell(seconds, fmt::format("{:.3f} s", seconds));
  };
  for (const auto& [thread, counts] : threads) {
    table.add({thread, os_threads[thread], counts.events, counts.launches, counts.calls, counts.scopes, counts.blocks,
               time(counts.first), time(counts.last)});
  }
  print_table(out, input, options, table, "threads");
  return 0;
}

}  // namespace grape::tools
