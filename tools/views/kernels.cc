#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "tools/inputs/exec_graphs.h"
#include "tools/text/escape.h"
#include "tools/views/views.h"

namespace grape::tools {
namespace {

using trace::EventKind;

constexpr std::size_t kVariants = 256;  // distinct grids, lines and streams kept per function; more are only counted

struct Variant {
  std::uint32_t grid[3], block[3];
  bool operator<(const Variant& other) const {
    return std::lexicographical_compare(grid, grid + 6, other.grid, other.grid + 6);
  }
};
static_assert(sizeof(Variant) == 24, "grid and block stand next to each other");

struct Kernel {
  std::uint64_t launches = 0, in_graphs = 0, captured = 0, failed = 0;
  std::uint32_t least_shared = UINT32_MAX, most_shared = 0;
  std::set<std::uint32_t> parameter_bytes;
  std::map<Variant, std::uint64_t> variants;
  std::uint64_t other_variants = 0;
  std::map<std::uint32_t, std::uint64_t> frames;  // leaf frame → launches
  std::set<std::uint64_t> streams;
  std::set<std::uint32_t> threads;
  std::set<std::string> mangled;
  Variant last{};
  std::uint64_t* last_count = nullptr;  // of `last` in `variants`: most launches are like the one before
  std::uint32_t last_frame = 0;
  std::uint64_t* last_frame_count = nullptr;
};

void add_launch(Kernel& kernel, const Step& step, const record::ApiTable& apis) {
  const trace::LaunchView launch(step.event);
  if ((step.event.header->flags & trace::kFlagCaptured) != 0) {
    ++kernel.captured;
    return;
  }
  if (launch.result() != 0) {
    ++kernel.failed;
    return;
  }
  ++kernel.launches;
  kernel.least_shared = std::min(kernel.least_shared, launch.shared_bytes());
  kernel.most_shared = std::max(kernel.most_shared, launch.shared_bytes());
  if (kernel.parameter_bytes.size() < kVariants) kernel.parameter_bytes.insert(launch.parameter_bytes());
  Variant variant{};
  for (int i = 0; i < 3; ++i) {
    variant.grid[i] = launch.grid(i);
    variant.block[i] = launch.block(i);
  }
  if (kernel.last_count == nullptr || kernel.last < variant || variant < kernel.last) {
    const bool room = kernel.variants.size() < kVariants || kernel.variants.count(variant) != 0;
    kernel.last_count = room ? &kernel.variants[variant] : &kernel.other_variants;
    kernel.last = variant;
  }
  ++*kernel.last_count;
  if (kernel.last_frame_count == nullptr || kernel.last_frame != launch.frame()) {
    kernel.last_frame_count = &kernel.frames[launch.frame()];
    kernel.last_frame = launch.frame();
  }
  ++*kernel.last_frame_count;
  if (kernel.streams.size() < kVariants) {
    kernel.streams.insert(record::normal_stream(apis[launch.api()], launch.stream()));
  }
  kernel.threads.insert(step.thread);
}

void merge(Kernel& into, const Kernel& from) {
  into.launches += from.launches;
  into.in_graphs += from.in_graphs;
  into.captured += from.captured;
  into.failed += from.failed;
  into.least_shared = std::min(into.least_shared, from.least_shared);
  into.most_shared = std::max(into.most_shared, from.most_shared);
  into.parameter_bytes.insert(from.parameter_bytes.begin(), from.parameter_bytes.end());
  for (const auto& [variant, count] : from.variants) into.variants[variant] += count;
  into.other_variants += from.other_variants;
  for (const auto& [frame, count] : from.frames) into.frames[frame] += count;
  into.streams.insert(from.streams.begin(), from.streams.end());
  into.threads.insert(from.threads.begin(), from.threads.end());
}

using Kernels = std::map<std::string, std::pair<Kernel, std::uint32_t>>;  // demangled → kernel, one of its functions

Kernels by_name(std::deque<Kernel>& functions, TraceInput& input) {
  Kernels kernels;
  for (std::uint32_t f = 0; f < functions.size(); ++f) {
    const Kernel& from = functions[f];
    if (from.launches + from.in_graphs + from.captured + from.failed == 0) continue;
    auto& [kernel, function] = kernels[input.demangled(f)];
    merge(kernel, from);
    kernel.mangled.insert(input.function(f).name);
    function = f;
  }
  return kernels;
}

std::string dimensions(const Variant& v) {
  return fmt::format("{}x{}x{} / {}x{}x{}", v.grid[0], v.grid[1], v.grid[2], v.block[0], v.block[1], v.block[2]);
}

std::vector<std::pair<std::string, std::uint64_t>> lines_of(const Kernel& kernel, TraceInput& input) {
  std::map<std::string, std::uint64_t> counts;
  for (const auto& [frame, count] : kernel.frames) {
    if (frame != 0) counts[input.position(frame)] += count;
  }
  std::vector<std::pair<std::string, std::uint64_t>> lines(counts.begin(), counts.end());
  std::stable_sort(lines.begin(), lines.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return lines;
}

std::vector<Cell> row_of(const std::string& name, const Kernel& kernel, std::uint32_t function, TraceInput& input) {
  Json mangled = Json::array(), variants = Json::array(), lines = Json::array(), streams = Json::array(),
       threads = Json::array(), parameter_bytes = Json::array();
  for (const std::string& one : kernel.mangled) mangled.push_back(text_value(one));
  for (const auto& [v, count] : kernel.variants) {
    variants.push_back({{"grid", v.grid}, {"block", v.block}, {"launches", count}});
  }
  const auto positions = lines_of(kernel, input);
  for (const auto& [line, count] : positions) lines.push_back({{"line", text_value(line)}, {"launches", count}});
  for (const std::uint64_t stream : kernel.streams) streams.push_back(input.stream_name(stream));
  for (const std::uint32_t thread : kernel.threads) threads.push_back(thread);
  for (const std::uint32_t bytes : kernel.parameter_bytes) parameter_bytes.push_back(bytes);
  const auto first_and_more = [](const std::string& first, std::size_t count) {
    return count > 1 ? fmt::format("{} +{}", first, count - 1) : first;
  };
  const std::string grid = kernel.variants.empty() ? "-" : dimensions(kernel.variants.begin()->first);
  const std::string line = positions.empty() ? "-" : positions.front().first;
  const bool launched = kernel.launches > 0;
  return {Cell(kernel.launches + kernel.in_graphs),
          kernel.launches,
          kernel.in_graphs,
          kernel.captured,
          kernel.failed,
          Cell(variants, first_and_more(grid, kernel.variants.size() + (kernel.other_variants != 0 ? 1 : 0))),
          launched ? Json(kernel.least_shared) : Json(),
          launched ? Json(kernel.most_shared) : Json(),
          Cell(parameter_bytes,
               kernel.parameter_bytes.empty()
                   ? "-"
                   : first_and_more(std::to_string(*kernel.parameter_bytes.begin()), kernel.parameter_bytes.size())),
          Cell(streams, std::to_string(kernel.streams.size())),
          Cell(threads, std::to_string(kernel.threads.size())),
          Cell(lines, first_and_more(line, positions.size())),
          Cell(text_value(name), input.shown(function)),
          mangled};
}

}  // namespace

int view_kernels(TraceInput& input, const DumpOptions& options, Output& out) {
  std::deque<Kernel> functions;  // does not move what is in it
  Filter filter(options.filter, input);
  ExecGraphs execs(input.apis());
  const auto at = [&functions](std::uint32_t id) -> Kernel& {
    if (id >= functions.size()) functions.resize(id + 1);
    return functions[id];
  };
  Step step;
  input.rewind();
  while (input.next(step)) {
    filter.see(step);
    const EventKind kind = step.event.header->kind;
    if (kind == EventKind::kLaunch) {
      if (filter.event(step)) add_launch(at(trace::LaunchView(step.event).function()), step, input.apis());
    } else if (filter.tells_of_graphs(step)) {
      execs.see(step.event);
    }
  }
  for (const ExecGraph& graph : execs.graphs()) {
    for (const auto& [function, nodes] : graph.functions) {
      if (filter.kernel(function)) at(function).in_graphs += nodes * graph.launches;
    }
  }
  Kernels kernels = by_name(functions, input);
  std::vector<Kernels::const_iterator> order;
  for (auto kernel = kernels.cbegin(); kernel != kernels.cend(); ++kernel) order.push_back(kernel);
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return a->second.first.launches + a->second.first.in_graphs > b->second.first.launches + b->second.first.in_graphs;
  });
  Table table({{"launches", "launches", true},
               {"direct", "", true},
               {"in_graphs", "in graphs", true},
               {"captured", "", true},
               {"failed", "", true},
               {"variants", "grid / block", false},
               {"shared_min", "", true},
               {"shared_max", "shared", true},
               {"parameter_bytes", "param bytes", true},
               {"streams", "", true},
               {"threads", "", true},
               {"lines", "line", false, true},
               {"name", "kernel", false, true},
               {"mangled", "", false}});
  for (const auto& kernel : order) {
    table.add(row_of(kernel->first, kernel->second.first, kernel->second.second, input));
  }
  print_table(out, input, options, table, "kernels");
  return 0;
}

}  // namespace grape::tools
