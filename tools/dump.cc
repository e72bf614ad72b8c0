#include <utility>

#include "tools/commands.h"
#include "tools/inputs/count_option.h"
#include "tools/text/escape.h"
#include "tools/text/failure.h"

namespace grape::tools {
namespace {

constexpr const char* kExamples = R"(
Examples:
  grape dump run.grape
  grape dump run.grape regions --tree --depth 3
  grape dump run.grape kernels --line modeling_gpt2.py:245
  grape dump run.grape graph 1 --params
  grape dump run.grape calls --kernel gemm --stacks --limit 5
  grape dump run.grape graph 1 --format dot | dot -Tsvg > graph.svg
  grape dump run.grape diff GPT2LMHeadModel#4 GPT2LMHeadModel#5 --ignore-moved
  grape dump run.grape --format chrome -o run.json
  grape dump FILE-OF-A-CACHE diff 3 4

Exit status:
  0  done; diff: both are the same
  1  diff: they differ
  2  wrong usage, or the file cannot be read
  3  the trace is incomplete; it was printed up to where it ends)";

template <class Input>
struct ViewRow {
  const char* name;
  const char* arguments;
  std::size_t count;  // of the arguments
  unsigned uses;
  const char* shows;
  int (*view)(Input&, const DumpOptions&, Output&);
};
#define GRAPE_ROW(name, arguments, count, uses, shows) {#name, arguments, count, uses, shows, view_##name},
constexpr ViewRow<TraceInput> kViews[] = {GRAPE_TRACE_VIEWS(GRAPE_ROW)};
constexpr ViewRow<StoreInput> kStoreViews[] = {GRAPE_STORE_VIEWS(GRAPE_ROW)};
#undef GRAPE_ROW

template <class Rows>
std::string help_of(const Rows& rows) {
  std::string help;
  for (const auto& row : rows) {
    const std::string shows = row.shows;
    const std::size_t end = shows.find('\n');
    help += fmt::format("  {:<16} {}\n", fmt::format("{}{}", row.name, row.arguments), shows.substr(0, end));
    if (end != std::string::npos) help += fmt::format("{:19}{}\n", "", shows.substr(end + 1));
  }
  return help;
}

template <class Rows>
std::vector<std::string> names_of(const Rows& rows) {
  std::vector<std::string> names;
  for (const auto& row : rows) names.emplace_back(row.name);
  return names;
}

template <class Row, std::size_t count>
const Row* find_row(const Row (&rows)[count], const std::string& name) {
  for (const Row& row : rows) {
    if (name == row.name) return &row;
  }
  return nullptr;
}

[[noreturn]] void no_view(const std::string& name, const std::vector<std::string>& names) {
  const std::string near = nearest(name, names);
  throw Failure(fmt::format("no view {}; see grape dump --help{}", escape_text(name),
                            near.empty() ? "" : fmt::format(", did you mean {}?", near)));
}

// A view that only the other kind of file has.
[[noreturn]] void not_of_this(const DumpOptions& options, const char* kind, const std::vector<std::string>& names) {
  throw Failure(fmt::format("{} is a {}, which has no view {}; it has {}", escape_text(options.file), kind,
                            escape_text(options.view), fmt::join(names, ", ")));
}

void check_arguments(const DumpOptions& options, std::size_t wanted) {
  if (options.arguments.size() == wanted) return;
  constexpr const char* kCounts[] = {"no argument", "one argument", "two arguments"};
  throw Failure(fmt::format("the view {} takes {}, not {}", options.view, kCounts[wanted], options.arguments.size()));
}

Format format_of(const std::string& name) {
  constexpr std::pair<const char*, Format> kFormats[] = {{"text", Format::kText},
                                                         {"json", Format::kJson},
                                                         {"csv", Format::kCsv},
                                                         {"dot", Format::kDot},
                                                         {"chrome", Format::kChrome}};
  for (const auto& [known, format] : kFormats) {
    if (name == known) return format;
  }
  throw Failure(fmt::format("--format {}: not text, json, csv, dot or chrome", escape_text(name)));
}

// An option without effect would look as if all were shown that was asked for. `what` takes those of `uses`.
void check_options(const DumpOptions& options, unsigned uses, const std::string& what) {
  const struct {
    Uses use;
    const char* name;
    bool given;
  } all[] = {{kRegion, "--region", !options.filter.region.empty()},
             {kStream, "--stream", !options.filter.stream.empty()},
             {kKernel, "--kernel", !options.filter.kernel.empty()},
             {kLine, "--line", !options.filter.line.empty()},
             {kCalls, "--calls", options.calls},
             {kTree, "--tree", options.tree},
             {kDepth, "--depth", options.depth != 0},
             {kParams, "--params", options.params},
             {kStacks, "--stacks", options.stacks},
             {kBlocks, "--blocks", options.blocks},
             {kIgnoreMoved, "--ignore-moved", options.ignore_moved}};
  std::vector<const char*> used;
  for (const auto& option : all) {
    if ((uses & option.use) != 0) used.push_back(option.name);
  }
  for (const auto& option : all) {
    if (!option.given || (uses & option.use) != 0) continue;
    throw Failure(fmt::format("{} has no meaning here: {} takes {}", option.name, what,
                              used.empty() ? "no such option" : fmt::format("{}", fmt::join(used, ", "))));
  }
}

template <class Input>
void check_view(const DumpOptions& options, const ViewRow<Input>& row) {
  check_arguments(options, row.count);
  check_options(options, row.uses, fmt::format("the view {}", row.name));
  if (options.depth != 0 && !options.tree) throw Failure("--depth is for regions --tree");
}

void check(const DumpOptions& options, const ViewRow<TraceInput>& row) {
  if (options.format == Format::kChrome) {
    if (options.view_given) throw Failure("--format chrome takes no view: grape dump FILE --format chrome");
    return check_options(options, kFilters, "--format chrome");
  }
  if (options.format != Format::kDot) return check_view(options, row);
  if (std::string(row.name) != "graph") {
    throw Failure("--format dot draws one graph: grape dump FILE graph N --format dot");
  }
  check_arguments(options, row.count);
  check_options(options, kNodeFilters, "--format dot");
}

int dump_store(DumpOptions& options) {
  const auto* row = find_row(kStoreViews, options.view);
  if (row == nullptr && find_row(kViews, options.view) != nullptr) not_of_this(options, "cache", names_of(kStoreViews));
  if (row == nullptr) no_view(options.view, names_of(kStoreViews));
  if (options.format == Format::kDot || options.format == Format::kChrome) {
    throw Failure("--format dot and chrome show traces, not caches");
  }
  if (!options.filter.stream.empty() || !options.filter.line.empty()) {
    throw Failure("--stream and --line are for traces; a cache has --region and --kernel");
  }
  check_view(options, *row);
  StoreInput input(options.file);
  input.show_full_names(options.full_names);
  Output out(options.output, options.pager && options.output.empty());
  const int status = row->view(input, options, out);
  out.close();
  return status;
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

CLI::App* add_dump(CLI::App& app, DumpOptions& options) {
  CLI::App* dump = app.add_subcommand("dump", "Show what a trace or a cache holds");
  dump->footer("Views of a trace:\n" + help_of(kViews) + "\nViews of a cache (what GRAPE_CACHE leaves):\n" +
               help_of(kStoreViews) + kExamples);
  dump->add_option("file", options.file, "The trace, or the cache's file")->required();
  dump->add_option("view", options.view, "What to show")->capture_default_str()->each([&options](const std::string&) {
    options.view_given = true;
  });
  dump->add_option("arguments", options.arguments, "Graphs or programs, for the views graph, program and diff");
  auto* format = dump->add_option_function<std::string>(
                         "--format", [&options](const std::string& name) { options.format = format_of(name); },
                         "text, json, csv, dot (of a graph) or chrome (a timeline of the trace, without a view)")
                     ->type_name("FORMAT");
  auto* json = dump->add_flag_callback(
                       "--json", [&options] { options.format = Format::kJson; }, "As --format json")
                   ->excludes(format);
  dump->add_flag_callback(
          "--csv", [&options] { options.format = Format::kCsv; }, "As --format csv")
      ->excludes(format)
      ->excludes(json);
  dump->add_option("--region", options.filter.region, "Only this region: its number, or a pattern on name or type");
  dump->add_option("--stream", options.filter.stream, "Only this stream: its handle, default or per-thread");
  dump->add_option("--kernel", options.filter.kernel, "Only kernels whose name has this in it, or matches /regex/");
  dump->add_option("--line", options.filter.line, "Only what this file.py:12 (or file.py) caused, by any frame");
  add_count(*dump, "--limit", options.limit, "At most so many rows");
  add_count(*dump, "--depth", options.depth, "At most so many levels of modules (regions --tree)");
  auto* calls = dump->add_flag("--calls", options.calls, "regions: one row per call");
  dump->add_flag("--tree", options.tree, "regions: the modules inside")->excludes(calls);
  dump->add_flag("--params", options.params, "graph, program: parameters, word by word");
  dump->add_flag("--stacks", options.stacks, "calls, graph: the stack below each, with native frames where recorded");
  dump->add_flag("--blocks", options.blocks, "graph: allocator events between the nodes");
  dump->add_flag("--ignore-moved", options.ignore_moved,
                 "diff: pointers that moved with their block are no difference");
  dump->add_flag("--full-names", options.full_names, "Whole kernel names and file paths");
  dump->add_flag("--pager", options.pager, "Through $PAGER, on a terminal");
  dump->add_option("-o,--output", options.output, "Write to this file");
  return dump;
}

int run_dump(DumpOptions& options) {
  check_output(options.output, options.file);
  if (is_store(options.file)) return dump_store(options);
  const auto* row = find_row(kViews, options.view);
  if (row == nullptr && find_row(kStoreViews, options.view) == nullptr) no_view(options.view, names_of(kViews));
  if (row != nullptr) check(options, *row);
  TraceInput input(options.file);
  if (row == nullptr) not_of_this(options, "trace", names_of(kViews));
  input.show_full_names(options.full_names);
  Output out(options.output, options.pager && options.output.empty());
  const int status =
      options.format == Format::kChrome ? view_chrome(input, options, out) : row->view(input, options, out);
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
