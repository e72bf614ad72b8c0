// What `grape dump` can show. Each view walks the trace itself and writes in the chosen format.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tools/inputs/filter.h"
#include "tools/inputs/trace_input.h"
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

// Each returns the exit status, kOk or kDifferent.
int view_summary(TraceInput& input, const DumpOptions& options, Output& out);
int view_regions(TraceInput& input, const DumpOptions& options, Output& out);
int view_graphs(TraceInput& input, const DumpOptions& options, Output& out);
int view_kernels(TraceInput& input, const DumpOptions& options, Output& out);
int view_graph(TraceInput& input, const DumpOptions& options, Output& out);
int view_diff(TraceInput& input, const DumpOptions& options, Output& out);
int view_calls(TraceInput& input, const DumpOptions& options, Output& out);
int view_threads(TraceInput& input, const DumpOptions& options, Output& out);
int view_chrome(TraceInput& input, const DumpOptions& options, Output& out);

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
