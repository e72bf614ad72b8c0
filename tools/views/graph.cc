// The view "graph N": nodes in order, with their positions, parameters and edges.
#include <algorithm>

#include "tools/inputs/loaded_graph.h"
#include "tools/text/escape.h"
#include "tools/text/failure.h"
#include "tools/views/views.h"

namespace grape::tools {
namespace {

using record::NodeKind;

std::string dimensions(const std::uint32_t (&d)[3]) { return fmt::format("{}x{}x{}", d[0], d[1], d[2]); }

bool is_kernel(const LoadedNode& node) { return node.kind == NodeKind::kKernel && !node.other; }

const char* kind_name(const LoadedNode& node) {
  if (node.other) return graph_node_type_name(node.type);
  constexpr const char* kNames[] = {"kernel", "copy", "memset", "host function", "graph", "memory operation"};
  return kNames[static_cast<std::size_t>(node.kind)];
}

bool passes(const LoadedNode& node, Filter& filter) {
  return filter.node(node.function, is_kernel(node), node.stream, node.frame);
}

void print_node(Output& out, TraceInput& input, const LoadedNode& node, std::size_t index, bool application,
                const DumpOptions& options) {
  std::string line = fmt::format("#{:<4} {}", index, node_name(input, node));
  if (is_kernel(node)) {
    line += fmt::format("  grid {} block {}", dimensions(node.grid), dimensions(node.block));
    if (node.shared_bytes != 0) line += fmt::format(" shared {}", node.shared_bytes);
  } else if (node.bytes != 0) {
    line += fmt::format("  {} B", node.bytes);
  }
  if (!application) line += fmt::format("  stream {}", input.stream_name(node.stream));
  for (const std::string& attribute : node.attributes) line += fmt::format("  [{}]", attribute);
  const std::string after = after_text(node.after, index);
  if (!after.empty()) line += "  " + after;
  out.print("{}\n", escape_text(line));
  const std::string position = input.position(node.frame), module = input.scope_name(node.scope);
  if (!position.empty() || !module.empty()) {
    out.print("      {}{}{}\n", escape_text(position), position.empty() || module.empty() ? "" : "  —  ",
              escape_text(module));
  }
  if (options.stacks) print_stacks(out, input, node.frame, node.native_frame);
  if (!options.params) return;
  for (const Word& word : node.words) {
    out.print("      {:<12} {:#0{}x}  {}\n", escape_text(word_place(input, node, word)), word.value, 2 + 2 * word.bytes,
              describe(word.block, word.value));
  }
}

Json word_json(const TraceInput& input, const LoadedNode& node, const Word& word) {
  Json json;
  json["place"] = text_value(word_place(input, node, word));
  json["parameter"] = word.parameter == Word::kNoParameter ? Json() : Json(word.parameter);
  json["in_parameter"] = word.in_parameter;
  json["offset"] = word.offset;
  json["bytes"] = word.bytes;
  json["value"] = hex_value(word.value);
  if (word.block) {
    json["block"] = {{"ordinal", word.block.ordinal},
                     {"driver", word.block.driver},
                     {"offset", word.value - word.block.address},
                     {"bytes", word.block.bytes}};
  }
  return json;
}

// What the application instantiated has edges and no streams.
Json stream_json(const TraceInput& input, const LoadedGraph& graph, const LoadedNode& node) {
  return graph.application ? Json() : Json(input.stream_name(node.stream));
}

Json node_json(TraceInput& input, const LoadedGraph& graph, std::size_t index) {
  const LoadedNode& node = graph.nodes[index];
  Json json;
  json["index"] = index;
  json["kind"] = kind_name(node);
  json["name"] = text_value(is_kernel(node) ? input.demangled(node.function) : node_key(input, node));
  if (is_kernel(node)) {
    json["mangled"] = text_value(node_key(input, node));
    json["grid"] = node.grid;
    json["block"] = node.block;
    json["shared_bytes"] = node.shared_bytes;
    json["parameter_bytes"] = node.bytes;
  } else {
    json["bytes"] = node.bytes;
  }
  json["stream"] = stream_json(input, graph, node);
  json["attributes"] = node.attributes;
  json["line"] = text_value(input.position(node.frame));
  json["stack"] = text_list(input.stack(node.frame));
  json["native_stack"] = text_list(input.native_stack(node.native_frame));
  json["module"] = text_value(input.scope_name(node.scope));
  json["thread"] = node.thread;
  json["sequence"] = node.sequence;
  json["after"] = node.after;
  json["parameters"] = Json::array();
  for (const Word& word : node.words) json["parameters"].push_back(word_json(input, node, word));
  return json;
}

void print_dot(Output& out, TraceInput& input, const LoadedGraph& graph, const DumpOptions& options, Filter& filter) {
  out.print("digraph grape {{\n  label=\"{}\";\n  node [shape=box, fontname=\"monospace\"];\n",
            escape_dot(graph.title));
  std::vector<bool> shown(graph.nodes.size());
  std::size_t drawn = 0;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const LoadedNode& node = graph.nodes[i];
    if (options.limit != 0 && drawn == options.limit) break;
    if (!passes(node, filter)) continue;
    shown[i] = true;
    ++drawn;
    const std::string position = input.position(node.frame);
    const std::string size = is_kernel(node) ? dimensions(node.grid) + " x " + dimensions(node.block) : kind_name(node);
    out.print("  n{} [label=\"#{} {}\\n{}{}{}\"];\n", i, i, escape_dot(node_name(input, node)), size,
              position.empty() ? "" : "\\n", escape_dot(position));
  }
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const std::uint32_t from : graph.nodes[i].after) {
      if (shown[i] && shown[from]) out.print("  n{} -> n{};\n", from, i);
    }
  }
  out.write("}\n");
}

void print_text(Output& out, TraceInput& input, const LoadedGraph& graph, const DumpOptions& options, Filter& filter) {
  out.print("{}\n{} nodes, {} edges; a node follows the one before it where nothing else is said\n\n",
            escape_text(graph.title), graph.nodes.size(), graph.edges);
  std::size_t host = 0, printed = 0;
  for (std::size_t i = 0; i <= graph.nodes.size(); ++i) {
    for (; host < graph.host_lines.size() && graph.host_lines[host].before_node <= i; ++host) {
      const HostLine& line = graph.host_lines[host];
      if ((line.allocator && !options.blocks) || !filter.between_nodes(line.stream, line.frame)) continue;
      out.print("      -- {}\n", escape_text(line.text));
    }
    if (i == graph.nodes.size()) break;
    const LoadedNode& node = graph.nodes[i];
    if (!passes(node, filter)) continue;
    if (options.limit != 0 && printed == options.limit) {
      const auto rest = graph.nodes.begin() + static_cast<std::ptrdiff_t>(i);
      out.print("… and {} more nodes\n", std::count_if(rest, graph.nodes.end(), [&filter](const LoadedNode& other) {
                  return passes(other, filter);
                }));
      break;
    }
    ++printed;
    print_node(out, input, node, i, graph.application, options);
  }
  if (graph.dropped_edges > 0) out.print("{} edges left out: one stream waited for too many\n", graph.dropped_edges);
}

void print_csv(Output& out, TraceInput& input, const LoadedGraph& graph, const DumpOptions& options, Filter& filter) {
  Table table = Table::of_keys({"index", "kind", "name", "grid", "block", "shared_bytes", "bytes", "stream",
                                "attributes", "line", "module", "after"});
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const LoadedNode& node = graph.nodes[i];
    if (!passes(node, filter)) continue;
    const bool kernel = is_kernel(node);
    table.add({i, kind_name(node), text_value(node_name(input, node)), kernel ? Json(dimensions(node.grid)) : Json(),
               kernel ? Json(dimensions(node.block)) : Json(), node.shared_bytes, node.bytes,
               stream_json(input, graph, node), Json(node.attributes), text_value(input.position(node.frame)),
               text_value(input.scope_name(node.scope)), Json(node.after)});
  }
  table.csv(out, options.limit);
}

}  // namespace

std::string after_text(const std::vector<std::uint32_t>& after, std::size_t index) {
  if (after.empty()) return "after nothing";
  if (after.size() == 1 && after[0] + 1 == index) return "";
  return fmt::format("after #{}", fmt::join(after, " #"));
}

int view_graph(TraceInput& input, const DumpOptions& options, Output& out) {
  const GraphIndex index(input);
  const LoadedGraph graph =
      load_graph(input, index, options.arguments[0], options.params || options.format == Format::kJson);
  Filter filter(options.filter, input);
  if (options.format == Format::kDot) {
    print_dot(out, input, graph, options, filter);
  } else if (options.format == Format::kCsv) {
    print_csv(out, input, graph, options, filter);
  } else if (options.format == Format::kText) {
    print_text(out, input, graph, options, filter);
  } else {
    Json json;
    json["title"] = text_value(graph.title);
    json["application"] = graph.application;
    json["call"] = graph.call.number;
    json["edges"] = graph.edges;
    json["dropped_edges"] = graph.dropped_edges;
    json["nodes"] = Json::array();
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      const LoadedNode& node = graph.nodes[i];
      if (options.limit != 0 && json["nodes"].size() == options.limit) break;
      if (!passes(node, filter)) continue;
      json["nodes"].push_back(node_json(input, graph, i));
    }
    json["host_events"] = Json::array();
    for (const HostLine& line : graph.host_lines) {
      if (!filter.between_nodes(line.stream, line.frame)) continue;
      json["host_events"].push_back(
          {{"before_node", line.before_node}, {"allocator", line.allocator}, {"text", text_value(line.text)}});
    }
    print_json(out, input, options, std::move(json));
  }
  return kOk;
}

}  // namespace grape::tools
