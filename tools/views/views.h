// What `grape dump` can show of a trace, or of a cache (a store's file). Each view walks the trace itself and writes in
// the chosen format.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tools/inputs/store_input.h"
#include "tools/text/output.h"
#include "tools/text/table.h"

namespace grape::tools {

struct DumpOptions {
  std::string file, view = "summary";
  bool view_given = false;
  std::vector<std::string> arguments;  // of the view
  Format format = Format::kText;
  FilterOptions filter;
  std::size_t limit = 0;  // rows; 0: all
  std::size_t depth = 0;  // levels of nested modules; 0: all
  bool full_names = false, params = false, blocks = false, calls = false, tree = false, pager = false;
  bool stacks = false;        // calls, graph: the stack below each
  bool ignore_moved = false;  // diff: pointers that moved with their block are no difference
  std::string output;
};

// Options that only some views have a use for.
enum Uses : unsigned {
  kRegion = 1 << 0,
  kStream = 1 << 1,
  kKernel = 1 << 2,
  kLine = 1 << 3,
  kCalls = 1 << 4,
  kTree = 1 << 5,
  kDepth = 1 << 6,
  kParams = 1 << 7,
  kStacks = 1 << 8,
  kBlocks = 1 << 9,
  kIgnoreMoved = 1 << 10,
  kNodeFilters = kStream | kKernel | kLine,
  kFilters = kRegion | kNodeFilters,
};

// The views: VIEW(name, its arguments, how many, the options that it takes, what it shows). A file of this folder
// defines view_NAME for each; what is said of them here is the command's help.
#define GRAPE_TRACE_VIEWS(VIEW)                                                                    \
  VIEW(summary, "", 0, kFilters, "what the trace holds, in one page (default)")                    \
  VIEW(regions, "", 0, kFilters | kCalls | kTree | kDepth,                                         \
       "one row per outermost module, backward pass, optimizer, function\n"                        \
       "(--calls: one row per call; --tree: the modules inside)")                                  \
  VIEW(graphs, "", 0, kRegion, "the distinct graphs of the regions, and those of the application") \
  VIEW(kernels, "", 0, kFilters, "launches by kernel, as a profiler counts them")                  \
  VIEW(graph, " N", 1, kNodeFilters | kParams | kStacks | kBlocks,                                 \
       "one graph, node by node (N from graphs; or call:17; or REGION#2)")                         \
  VIEW(diff, " A B", 2, kNodeFilters | kIgnoreMoved, "two graphs, word by word")                   \
  VIEW(calls, "", 0, kFilters | kStacks, "all events in order")                                    \
  VIEW(threads, "", 0, kFilters, "one row per thread")
#define GRAPE_STORE_VIEWS(VIEW)                                                 \
  VIEW(summary, "", 0, 0, "what it holds, and what it is for (default)")        \
  VIEW(programs, "", 0, kRegion | kKernel, "one row per program")               \
  VIEW(families, "", 0, 0, "programs of the same operations in the same order") \
  VIEW(program, " N", 1, kKernel | kParams, "one program, node by node")        \
  VIEW(diff, " A B", 2, kKernel | kIgnoreMoved, "why two programs differ: in a sentence, then node by node")

// Each returns the exit status, kOk or kDifferent.
#define GRAPE_DECLARE(name, ...) int view_##name(TraceInput& input, const DumpOptions& options, Output& out);
GRAPE_TRACE_VIEWS(GRAPE_DECLARE)
#undef GRAPE_DECLARE
#define GRAPE_DECLARE(name, ...) int view_##name(StoreInput& input, const DumpOptions& options, Output& out);
GRAPE_STORE_VIEWS(GRAPE_DECLARE)
#undef GRAPE_DECLARE
int view_chrome(TraceInput& input, const DumpOptions& options, Output& out);  // --format chrome

// {"file": …, "view": …, <content>}
void print_json(Output& out, const StoreInput& input, const DumpOptions& options, Json content);
// {"file": …, "view": …, <content>, "records": …, "complete": …}, for a view that has read what it needs.
void print_json(Output& out, TraceInput& input, const DumpOptions& options, Json content);

// Of a trace or a cache: a view that is one table; JSON under `key`.
template <class Input>
void print_table(Output& out, Input& input, const DumpOptions& options, const Table& table, const char* key) {
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

// Of either, in JSON or CSV: facts with names; CSV leaves lists and objects out.
template <class Input>
void print_facts(Output& out, Input& input, const DumpOptions& options, Json facts) {
  if (options.format == Format::kJson) return print_json(out, input, options, std::move(facts));
  Table table({{"name", "name"}, {"value", "value"}});
  for (const auto& [key, value] : facts.items()) {
    if (value.is_primitive()) table.add({text_value(key), value});
  }
  table.csv(out);
}

// The frames around a position that stands on a line of its own or at a line's end, and the native ones: one a line.
void print_stacks(Output& out, const TraceInput& input, std::uint32_t frame, std::uint32_t native_frame);

// What a graph's node follows, where that is not the one before it: "after #1 #2"; "": it is.
std::string after_text(const std::vector<std::uint32_t>& after, std::size_t index);

}  // namespace grape::tools
