#include "tools/dump.h"

#include <map>

#include "tools/escape.h"
#include "tools/failure.h"

namespace grape::tools {
namespace {

constexpr const char* kFooter = R"(Views:
  summary          what the trace holds, in one page (default)
  regions          one row per outermost module, backward pass, optimizer, function
                   (--calls: one row per call; --tree: the modules inside)
  graphs           the distinct graphs of the regions, and those of the application
  kernels          launches by kernel, as a profiler counts them
  graph N          one graph, node by node (N from graphs; or call:17; or REGION#2)
  diff A B         two graphs, word by word
  calls            all events in order
  threads          one row per thread

Examples:
  grape dump run.grape
  grape dump run.grape regions --tree --depth 3
  grape dump run.grape kernels --line modeling_gpt2.py:245
  grape dump run.grape graph 1 --params
  grape dump run.grape graph 1 --format dot | dot -Tsvg > graph.svg
  grape dump run.grape diff GPT2LMHeadModel#4 GPT2LMHeadModel#5 --ignore-moved
  grape dump run.grape --format chrome -o run.json

Exit status:
  0  done; diff: the graphs are the same
  1  diff: the graphs differ
  2  wrong usage, or the file cannot be read
  3  the trace is incomplete; it was printed up to where it ends)";

using View = int (*)(TraceInput&, const DumpOptions&, Output&);

struct ViewRow {
  const char* name;
  View view;
  std::size_t arguments;
};
constexpr ViewRow kViews[] = {{"summary", view_summary, 0}, {"regions", view_regions, 0}, {"graphs", view_graphs, 0},
                              {"kernels", view_kernels, 0}, {"graph", view_graph, 1},     {"diff", view_diff, 2},
                              {"calls", view_calls, 0},     {"threads", view_threads, 0}};

const ViewRow& find_view(const std::string& name) {
  std::vector<std::string> names;
  for (const ViewRow& row : kViews) {
    if (name == row.name) return row;
    names.emplace_back(row.name);
  }
  const std::string near = nearest(name, names);
  throw Failure(fmt::format("no view {}{}; see grape dump --help", escape_text(name),
                            near.empty() ? "" : fmt::format(", did you mean {}?", near)));
}

void check(const DumpOptions& options, const ViewRow& row) {
  if (options.format == Format::kDot && std::string(row.name) != "graph") {
    throw Failure("--format dot draws one graph: grape dump FILE graph N --format dot");
  }
  if (options.arguments.size() != row.arguments && options.format != Format::kChrome) {
    constexpr const char* kCounts[] = {"no argument", "one argument", "two arguments"};
    throw Failure(
        fmt::format("the view {} takes {}, not {}", row.name, kCounts[row.arguments], options.arguments.size()));
  }
}

}  // namespace

void print_json(Output& out, TraceInput& input, const DumpOptions& options, Json content) {
  input.drain();
  Json json;
  json["file"] = text_value(input.path());
  json["view"] = text_value(options.view);
  for (auto& [key, value] : content.items()) json[key] = std::move(value);
  json["records"] = input.events_read();
  json["complete"] = input.reader().complete();
  out.print("{}\n", dump_json(json, 2));
}

void print_table(Output& out, TraceInput& input, const DumpOptions& options, const Table& table, const char* key) {
  if (options.format == Format::kText) {
    table.text(out, options.limit);
  } else if (options.format == Format::kCsv) {
    table.csv(out, options.limit);
  } else {
    Json json;
    json[key] = table.json(options.limit);
    print_json(out, input, options, std::move(json));
  }
}

CLI::App* add_dump(CLI::App& app, DumpOptions& options) {
  CLI::App* dump = app.add_subcommand("dump", "Show what a trace holds");
  dump->footer(kFooter);
  dump->add_option("file", options.file, "The trace")->required();
  dump->add_option("view", options.view, "What to show")->capture_default_str();
  dump->add_option("arguments", options.arguments, "Graphs, for the views graph and diff");
  const std::map<std::string, Format> formats = {{"text", Format::kText},
                                                 {"json", Format::kJson},
                                                 {"csv", Format::kCsv},
                                                 {"dot", Format::kDot},
                                                 {"chrome", Format::kChrome}};
  auto* format = dump->add_option("--format", options.format, "text, json, csv, dot (a graph) or chrome (a timeline)")
                     ->transform(CLI::CheckedTransformer(formats))
                     ->type_name("FORMAT");
  dump->add_flag_callback(
          "--json", [&options] { options.format = Format::kJson; }, "As --format json")
      ->excludes(format);
  dump->add_flag_callback(
          "--csv", [&options] { options.format = Format::kCsv; }, "As --format csv")
      ->excludes(format);
  dump->add_option("--region", options.filter.region, "Only this region: its number, or a pattern on name or type");
  dump->add_option("--stream", options.filter.stream, "Only this stream: its handle, default or per-thread");
  dump->add_option("--kernel", options.filter.kernel, "Only kernels whose name has this in it, or matches /regex/");
  dump->add_option("--line", options.filter.line, "Only what this file.py:12 (or file.py) caused, by any frame");
  dump->add_option("--limit", options.limit, "At most so many rows")->check(CLI::NonNegativeNumber);
  dump->add_option("--depth", options.depth, "At most so many levels of modules (regions --tree)")
      ->check(CLI::NonNegativeNumber);
  dump->add_flag("--calls", options.calls, "regions: one row per call");
  dump->add_flag("--tree", options.tree, "regions: the modules inside");
  dump->add_flag("--params", options.params, "graph: parameters, word by word");
  dump->add_flag("--blocks", options.blocks, "graph: allocator events between the nodes");
  dump->add_flag("--ignore-moved", options.ignore_moved,
                 "diff: pointers that moved with their block are no difference");
  dump->add_flag("--full-names", options.full_names, "Whole kernel names and file paths");
  dump->add_flag("--pager", options.pager, "Through $PAGER, on a terminal");
  dump->add_option("-o,--output", options.output, "Write to this file");
  return dump;
}

int run_dump(DumpOptions& options) {
  const ViewRow& row = find_view(options.view);
  check(options, row);
  TraceInput input(options.file);
  input.show_full_names(options.full_names);
  Output out(options.output, options.pager && options.output.empty());
  const int status =
      options.format == Format::kChrome ? view_chrome(input, options, out) : row.view(input, options, out);
  out.close();
  // A view may have stopped early: damage further on must be told all the same.
  input.drain();
  if (input.reader().complete()) return status;
  const trace::Error& damage = input.reader().damage();
  fmt::print(stderr, "grape: {}: incomplete, {} records{}\n", escape_text(options.file), input.events_read(),
             damage ? fmt::format(" ({} at byte {})", escape_text(damage.message), damage.offset) : "");
  return kIncomplete;
}

}  // namespace grape::tools
