#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "tools/inputs/exec_graphs.h"
#include "tools/text/escape.h"
#include "tools/views/views.h"

namespace grape::tools {
namespace {

using record::CopyDirection;
using trace::ApiClass;
using trace::EventKind;

constexpr std::size_t kTop = 5;

struct Amount {
  std::uint64_t count = 0, bytes = 0;
};

struct Summary {
  std::uint64_t launches = 0, captured = 0, failed_launches = 0, failed_calls = 0, with_line = 0, calls = 0;
  std::uint64_t outside_regions = 0;
  std::array<Amount, record::kCopyDirections> copies;
  Amount memsets, block_allocs, block_frees, driver_allocs;
  std::uint64_t syncs = 0, queries = 0, graph_launches = 0, host_functions = 0, region_calls = 0, raised = 0, lost = 0;
  std::uint64_t peak_blocks = 0, live_blocks = 0;
  std::uint64_t first_ticks = UINT64_MAX, last_ticks = 0;
  std::uint64_t ranges = 0, range_ticks = 0, range_begin = 0;  // of a trace recorded in ranges
  bool in_range = false;
  std::vector<std::uint64_t> by_function;                      // launches
  std::unordered_map<std::uint32_t, std::uint64_t> by_region;  // scope → launches
  std::map<std::uint32_t, std::uint64_t> region_call_counts;   // scope → calls
  std::unordered_set<std::uint64_t> streams;
};

void add_launch(Summary& sum, const Step& step, const record::ApiTable& apis) {
  const trace::LaunchView launch(step.event);
  if ((step.event.header->flags & trace::kFlagCaptured) != 0) {
    ++sum.captured;
    return;
  }
  if (launch.result() != 0) {
    ++sum.failed_launches;
    return;
  }
  ++sum.launches;
  if (launch.frame() != 0) ++sum.with_line;
  const std::uint32_t function = launch.function();
  if (function >= sum.by_function.size()) sum.by_function.resize(function + 1);
  ++sum.by_function[function];
  sum.streams.insert(record::normal_stream(apis[launch.api()], launch.stream()));
  if (step.region == 0) {
    ++sum.outside_regions;
  } else {
    ++sum.by_region[step.region];
  }
}

void see_range(Summary& sum, const Step& step, const record::ApiTable& apis) {
  if (step.event.header->kind != EventKind::kCall) return;
  const trace::EventHeader& header = *step.event.header;
  const record::ApiLayout& layout = apis[record::CallView(step.event).api()];
  if (layout.begins_range && !sum.in_range) {
    ++sum.ranges;
    sum.in_range = true;
    sum.range_begin = header.ticks;
  } else if (layout.ends_range && sum.in_range) {
    sum.in_range = false;
    sum.range_ticks += header.ticks + header.duration - sum.range_begin;
    sum.live_blocks = 0;  // what is freed from now on is not seen
  }
}

void add_call(Summary& sum, const Step& step, const record::ApiTable& apis) {
  const record::CallView call(step.event);
  const record::ApiLayout& layout = apis[call.api()];
  ++sum.calls;
  // CUDA_ERROR_NOT_READY (600) is a query's answer.
  if (call.result() != 0 && !(layout.api_class == ApiClass::kQuery && call.result() == 600)) {
    ++sum.failed_calls;
    return;
  }
  if ((step.event.header->flags & trace::kFlagCaptured) != 0) return;
  switch (layout.api_class) {
    case ApiClass::kCopy:
    case ApiClass::kCopyToDevice:
    case ApiClass::kCopyToHost: {
      Amount& amount = sum.copies[static_cast<std::size_t>(copy_direction(layout, call))];
      ++amount.count;
      amount.bytes += record::moved_bytes(layout, call);
      return;
    }
    case ApiClass::kMemset:
      ++sum.memsets.count;
      sum.memsets.bytes += record::moved_bytes(layout, call);
      return;
    case ApiClass::kStreamSync:
      ++sum.syncs;
      return;
    case ApiClass::kQuery:
      ++sum.queries;
      return;
    case ApiClass::kGraphLaunch:
      ++sum.graph_launches;
      return;
    case ApiClass::kHostFunction:
      ++sum.host_functions;
      return;
    case ApiClass::kAlloc:
      ++sum.driver_allocs.count;
      sum.driver_allocs.bytes += call.argument(layout.bytes);
      return;
    default:
      return;
  }
}

void add_block(Summary& sum, const trace::EventView& event) {
  const std::uint64_t bytes = event.words()[1];
  const bool alloc = event.header->kind == EventKind::kBlockAlloc;
  Amount& amount = alloc ? sum.block_allocs : sum.block_frees;
  ++amount.count;
  amount.bytes += bytes;
  sum.live_blocks = alloc ? sum.live_blocks + bytes : sum.live_blocks - std::min(bytes, sum.live_blocks);
  sum.peak_blocks = std::max(sum.peak_blocks, sum.live_blocks);
}

bool passes(const Step& step, Filter& filter) {
  switch (step.event.header->kind) {
    case EventKind::kScopeBegin:
    case EventKind::kScopeEnd:
      // Calls of regions count, whatever part of their work is asked for.
      return filter.region(step.region);
    case EventKind::kBlockAlloc:
    case EventKind::kBlockFree:
      return filter.block(step);
    default:
      return filter.event(step);
  }
}

void see(Summary& sum, const Step& step, TraceInput& input) {
  const trace::EventHeader& header = *step.event.header;
  switch (header.kind) {
    case EventKind::kLaunch:
      add_launch(sum, step, input.apis());
      break;
    case EventKind::kCall:
      add_call(sum, step, input.apis());
      break;
    case EventKind::kBlockAlloc:
    case EventKind::kBlockFree:
      return add_block(sum, step.event);
    case EventKind::kScopeBegin:
      if (!RegionNumbers::opens_region(step)) return;
      ++sum.region_calls;
      ++sum.region_call_counts[step.region];
      return;
    case EventKind::kScopeEnd:
      if (RegionNumbers::closes_region(step) && trace::high(step.event.words()[0]) != 0) ++sum.raised;
      return;
    case EventKind::kLost:
      sum.lost += step.event.words()[0];
      return;
    default:
      return;
  }
  sum.first_ticks = std::min(sum.first_ticks, header.ticks);
  sum.last_ticks = std::max(sum.last_ticks, header.ticks + header.duration);
}

struct Named {
  std::string name;
  std::uint64_t launches = 0, other = 0;
};

std::vector<Named> top_kernels(const Summary& sum, const ExecGraphs& execs, Filter& filter, TraceInput& input) {
  std::vector<std::uint64_t> counts = sum.by_function;
  for (const ExecGraph& graph : execs.graphs()) {
    for (const auto& [function, nodes] : graph.functions) {
      if (!filter.kernel(function)) continue;
      if (function >= counts.size()) counts.resize(function + 1);
      counts[function] += nodes * graph.launches;
    }
  }
  std::unordered_map<std::string_view, std::uint64_t> by_name;
  std::unordered_map<std::string_view, std::uint32_t> any;
  for (std::uint32_t f = 0; f < counts.size(); ++f) {
    if (counts[f] == 0) continue;
    const std::string& name = input.function(f).name;
    by_name[name] += counts[f];
    any.emplace(name, f);
  }
  std::vector<Named> list;
  list.reserve(by_name.size());
  for (const auto& [name, count] : by_name) list.push_back({std::string(name), count, any[name]});
  std::sort(list.begin(), list.end(), [](const Named& a, const Named& b) {
    return a.launches != b.launches ? a.launches > b.launches : a.name < b.name;
  });
  for (std::size_t i = 0; i < list.size() && i < kTop; ++i) {
    list[i].name = input.shown(static_cast<std::uint32_t>(list[i].other));
  }
  return list;
}

std::vector<Named> top_regions(const Summary& sum, TraceInput& input) {
  std::vector<Named> list;
  for (const auto& [scope, calls] : sum.region_call_counts) {
    const auto found = sum.by_region.find(scope);
    list.push_back({input.scope_name(scope), found == sum.by_region.end() ? 0 : found->second, calls});
  }
  std::stable_sort(list.begin(), list.end(), [](const Named& a, const Named& b) { return a.launches > b.launches; });
  return list;
}

std::string driver_version(std::int32_t version) {
  return version <= 0 ? "unknown" : fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10);
}

constexpr const char* kDirections[] = {"unknown direction", "to device", "to host", "on device"};
constexpr const char* kDirectionKeys[] = {"unknown", "to_device", "to_host", "on_device"};

struct Facts {
  Summary sum;
  std::vector<Named> kernels, regions;
  std::uint64_t graphs = 0, graph_kernels = 0, unknown_graph_launches = 0, events = 0;
  double duration = 0, in_ranges = 0;  // seconds
};

// `other`: the key of Named::other; null: left out.
Json top_of(const std::vector<Named>& named, const char* other) {
  Json items = Json::array();
  for (std::size_t i = 0; i < named.size() && i < kTop; ++i) {
    Json item = {{"name", text_value(named[i].name)}, {"launches", named[i].launches}};
    if (other != nullptr) item[other] = named[i].other;
    items.push_back(std::move(item));
  }
  return items;
}

Json to_json(const Facts& facts, TraceInput& input) {
  const Summary& sum = facts.sum;
  const trace::Meta& meta = input.meta();
  Json json;
  json["pid"] = meta.pid;
  json["host"] = text_value(meta.host);
  json["command"] = text_value(meta.command);
  json["grape"] = text_value(meta.grape_version);
  json["python"] = text_value(meta.python_version);
  json["driver"] = meta.driver_version;
  json["start_unix_ns"] = meta.start_unix_ns;
  json["seconds"] = facts.duration;
  if (meta.ranges) json["ranges"] = {{"count", sum.ranges}, {"seconds", facts.in_ranges}};
  json["file_bytes"] = input.reader().file_bytes();
  json["format_version"] = input.reader().format_version();
  json["threads"] = input.reader().threads().size();
  json["streams"] = sum.streams.size();
  json["launches"] = sum.launches;
  json["launches_in_graphs"] = facts.graph_kernels;
  json["captured_launches"] = sum.captured;
  json["failed_launches"] = sum.failed_launches;
  json["launches_with_line"] = sum.with_line;
  json["launches_outside_regions"] = sum.outside_regions;
  json["kernels"] = facts.kernels.size();
  json["other_calls"] = sum.calls;
  json["failed_calls"] = sum.failed_calls;
  for (int i = 0; i < record::kCopyDirections; ++i) {
    json["copies"][kDirectionKeys[i]] = {{"count", sum.copies[i].count}, {"bytes", sum.copies[i].bytes}};
  }
  json["memsets"] = {{"count", sum.memsets.count}, {"bytes", sum.memsets.bytes}};
  json["host_reads"] = sum.copies[static_cast<std::size_t>(CopyDirection::kToHost)].count;
  json["syncs"] = sum.syncs;
  json["queries"] = sum.queries;
  json["host_functions"] = sum.host_functions;
  json["driver_allocations"] = {{"count", sum.driver_allocs.count}, {"bytes", sum.driver_allocs.bytes}};
  json["blocks"] = {{"allocated", sum.block_allocs.count},
                    {"allocated_bytes", sum.block_allocs.bytes},
                    {"freed", sum.block_frees.count},
                    {"freed_bytes", sum.block_frees.bytes},
                    {"peak_bytes", sum.peak_blocks}};
  json["regions"] = facts.regions.size();
  json["region_calls"] = sum.region_calls;
  json["raised_region_calls"] = sum.raised;
  json["application_graphs"] = facts.graphs;
  json["graph_launches"] = sum.graph_launches;
  json["unknown_graph_launches"] = facts.unknown_graph_launches;
  json["lost"] = sum.lost;
  json["unhandled"] = Json::object();
  json["notices"] = Json::array();
  if (const trace::End* end = input.reader().end()) {
    for (const auto& entry : end->unhandled) json["unhandled"][valid_utf8(entry.name)] = entry.count;
    for (const auto& notice : end->notices) json["notices"].push_back(text_value(notice));
  }
  json["top_regions"] = top_of(facts.regions, "calls");
  json["top_kernels"] = top_of(facts.kernels, nullptr);
  return json;
}

std::string percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? "none" : fmt::format("{:.1f}%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

void print_work(const Facts& facts, Output& out) {
  const Summary& sum = facts.sum;
  const auto row = [&out](const char* name, const std::string& text) { out.print("{:<18}{}\n", name, text); };
  row("launches",
      fmt::format("{} of {} kernels, on {} streams{}{}{}", sum.launches + facts.graph_kernels, facts.kernels.size(),
                  sum.streams.size(),
                  facts.graph_kernels != 0 ? fmt::format(", {} of them in graphs", facts.graph_kernels) : "",
                  sum.captured != 0 ? fmt::format("; {} captured into graphs", sum.captured) : "",
                  sum.failed_launches != 0 ? fmt::format("; {} failed", sum.failed_launches) : ""));
  row("Python lines", fmt::format("{} of launches", percent(sum.with_line, sum.launches)));
  for (int i = 0; i < record::kCopyDirections; ++i) {
    if (sum.copies[i].count == 0) continue;
    row("copies", fmt::format("{} {}, {}", sum.copies[i].count, kDirections[i], human_bytes(sum.copies[i].bytes)));
  }
  if (sum.memsets.count != 0) row("memsets", fmt::format("{}, {}", sum.memsets.count, human_bytes(sum.memsets.bytes)));
  row("host waits", fmt::format("{} synchronisations, {} copies to the host, {} queries", sum.syncs,
                                sum.copies[static_cast<std::size_t>(CopyDirection::kToHost)].count, sum.queries));
  row("allocator blocks",
      fmt::format("{} handed out ({}), {} taken back, at most {} at once", sum.block_allocs.count,
                  human_bytes(sum.block_allocs.bytes), sum.block_frees.count, human_bytes(sum.peak_blocks)));
  row("driver memory",
      fmt::format("{} allocations, {}", sum.driver_allocs.count, human_bytes(sum.driver_allocs.bytes)));
  row("regions",
      fmt::format("{}, {} calls{}; {} launches outside", facts.regions.size(), sum.region_calls,
                  sum.raised != 0 ? fmt::format(" ({} raised an exception)", sum.raised) : "", sum.outside_regions));
  row("graphs of the app", fmt::format("{} instantiated, {} launches", facts.graphs, sum.graph_launches));
  row("other calls", fmt::format("{}{}", sum.calls,
                                 sum.failed_calls != 0 ? fmt::format(", {} of them failed", sum.failed_calls) : ""));
  if (sum.lost != 0) row("LOST", fmt::format("{} events", sum.lost));
}

void print_text(const Facts& facts, TraceInput& input, Output& out) {
  const trace::Meta& meta = input.meta();
  const auto row = [&out](const char* name, const std::string& text) {
    out.print("{:<18}{}\n", name, escape_text(text));
  };
  row("trace", fmt::format("{} ({}, format {}.{})", input.path(), human_bytes(input.reader().file_bytes()),
                           input.reader().format_version() >> 16, input.reader().format_version() & 0xffff));
  row("command", meta.command);
  row("process", fmt::format("{} on {}, from {}", meta.pid, meta.host,
                             utc_text(static_cast<std::time_t>(meta.start_unix_ns / 1'000'000'000))));
  row("duration",
      fmt::format("{:.3f} s, {} threads, {} records", facts.duration, input.reader().threads().size(), facts.events));
  if (meta.ranges) {
    row("ranges", fmt::format("{} from cuProfilerStart to cuProfilerStop, {:.3f} s in all; nothing else was recorded",
                              facts.sum.ranges, facts.in_ranges));
  }
  row("software",
      fmt::format("driver {}, Python {}, Grape {}", driver_version(meta.driver_version),
                  meta.python_version.empty() ? "none" : meta.python_version.substr(0, meta.python_version.find(' ')),
                  meta.grape_version));
  print_work(facts, out);
  if (const trace::End* end = input.reader().end()) {
    for (const auto& entry : end->unhandled) row("not handled", fmt::format("{} ({} calls)", entry.name, entry.count));
    for (const auto& notice : end->notices) row("notice", notice);
  }
  row("complete", input.reader().complete() ? "yes" : "no");
  if (!facts.regions.empty()) {
    out.write("\ntop regions\n");
    Table table({{"launches", "launches", true}, {"calls", "calls", true}, {"name", "region", false, true}});
    for (const Named& region : facts.regions) table.add({region.launches, region.other, text_value(region.name)});
    table.text(out, kTop, "  ");
  }
  if (!facts.kernels.empty()) {
    out.write("\ntop kernels\n");
    Table table({{"launches", "launches", true}, {"name", "kernel", false, true}});
    for (const Named& kernel : facts.kernels) table.add({kernel.launches, text_value(kernel.name)});
    table.text(out, kTop, "  ");
  }
}

// Of a part of the trace: those graphs that it launches, and their kernels that belong to it.
void count_graphs(Facts& facts, const ExecGraphs& execs, Filter& filter) {
  std::uint64_t launches = 0;
  for (const ExecGraph& graph : execs.graphs()) {
    std::uint64_t kernels = 0;
    for (const auto& [function, nodes] : graph.functions) kernels += filter.kernel(function) ? nodes : 0;
    facts.graph_kernels += kernels * graph.launches;
    if (filter.active() && (graph.launches == 0 || (filter.by_kernel() && kernels == 0))) continue;
    ++facts.graphs;
    launches += graph.launches;
  }
  // No call is a kernel's: the calls were not counted.
  if (filter.by_kernel()) facts.sum.graph_launches = launches;
}

}  // namespace

int view_summary(TraceInput& input, const DumpOptions& options, Output& out) {
  Facts facts;
  Filter filter(options.filter, input);
  ExecGraphs execs(input.apis());
  Step step;
  input.rewind();
  while (input.next(step)) {
    see_range(facts.sum, step, input.apis());
    filter.see(step);
    if (filter.tells_of_graphs(step)) execs.see(step.event);
    if (passes(step, filter)) see(facts.sum, step, input);
  }
  facts.events = input.events_read();
  facts.kernels = top_kernels(facts.sum, execs, filter, input);
  facts.regions = top_regions(facts.sum, input);
  facts.unknown_graph_launches = execs.unknown_launches();
  count_graphs(facts, execs, filter);
  std::uint64_t ranges = facts.sum.range_ticks;
  if (facts.sum.in_range) ranges += std::max(facts.sum.last_ticks, facts.sum.range_begin) - facts.sum.range_begin;
  facts.in_ranges = input.seconds(ranges);
  if (facts.sum.last_ticks > 0) facts.duration = input.seconds(facts.sum.last_ticks - facts.sum.first_ticks);
  if (options.format == Format::kText) {
    print_text(facts, input, out);
  } else {
    print_facts(out, input, options, to_json(facts, input));
  }
  return 0;
}

}  // namespace grape::tools
