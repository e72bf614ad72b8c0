// The view "program N" of a cache: nodes in order, with their lines, parameters and edges.
#include "tools/text/escape.h"
#include "tools/text/failure.h"
#include "tools/views/store_nodes.h"
#include "tools/views/views.h"

namespace grape::tools {
namespace {

using program::NodeKind;
using program::Program;
using program::RecordedNode;

std::vector<std::uint32_t> edges_of(const Program& program, const RecordedNode& node) {
  const auto begin = program.after.begin() + node.after_at;
  return {begin, begin + node.after_count};
}

class View {
 public:
  View(StoreInput& input, const DumpOptions& options, std::uint64_t id)
      : input_(input), options_(options), id_(id), program_(input.program(id)), kernels_(options.filter.kernel) {}

  void text(Output& out) {
    out.print("program {} of region {}\n", id_, escape_text(input_.entry(id_).call.region));
    out.print("{} nodes, {} edges; a node follows the one before it where nothing else is said\n",
              program_.nodes.size(), program_.after.size());
    out.print("blocks: {} static, {} of inputs, {} temporary, {} of outputs\n\n", program_.statics.size(),
              program_.input_bytes.size(), program_.temps.size(), program_.outputs.size());
    const std::vector<std::size_t> shown = shown_nodes();
    for (std::size_t i = 0; i < shown.size(); ++i) {
      if (options_.limit != 0 && i == options_.limit) {
        out.print("… and {} more nodes\n", shown.size() - i);
        break;
      }
      print_node(out, shown[i]);
    }
  }

  void csv(Output& out) {
    Table table = Table::of_keys(
        {"index", "kind", "name", "grid", "block", "shared_bytes", "bytes", "stream", "attributes", "line", "after"});
    for (const std::size_t index : shown_nodes()) {
      const RecordedNode& node = program_.nodes[index];
      const bool kernel = node.kind == NodeKind::kKernel;
      table.add(
          {index, kind_name(node.kind), text_value(node_name(input_, program_, node)),
           kernel ? Json(dimensions_text(node.grid)) : Json(), kernel ? Json(dimensions_text(node.block)) : Json(),
           node.shared_bytes, kernel ? node.parameter_bytes : moved_bytes(program_, node), node.stream,
           Json(attributes_of(program_, node)), text_value(input_.position(node)), Json(edges_of(program_, node))});
    }
    table.csv(out, options_.limit);
  }

  Json json() {
    const cache::Entry& entry = input_.entry(id_);
    Json json;
    json["id"] = id_;
    json["region"] = text_value(entry.call.region);
    json["signature"] = digest_text(entry.call.signature);
    json["code"] = digest_text(entry.call.code);
    json["outcome"] = digest_text(entry.outcome);
    json["last_used"] = entry.last_used;
    json["edges"] = program_.after.size();
    json["statics"] = program_.statics.size();
    json["inputs"] = program_.input_bytes;
    for (const auto& [key, blocks] : {std::pair("temps", &program_.temps), std::pair("outputs", &program_.outputs)}) {
      json[key] = Json::array();
      for (const program::BornBlock& block : *blocks) json[key].push_back(block.bytes);
    }
    json["nodes"] = Json::array();
    for (const std::size_t index : shown_nodes()) {
      if (options_.limit != 0 && json["nodes"].size() == options_.limit) break;
      json["nodes"].push_back(node_json(index));
    }
    return json;
  }

 private:
  std::vector<std::size_t> shown_nodes() {
    std::vector<std::size_t> shown;
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      if (kernels_.node(input_, program_, program_.nodes[i])) shown.push_back(i);
    }
    return shown;
  }

  void print_node(Output& out, std::size_t index) {
    const RecordedNode& node = program_.nodes[index];
    std::string line = fmt::format("#{:<4} {}", index, node_name(input_, program_, node));
    if (node.kind == NodeKind::kKernel) {
      line += fmt::format("  grid {} block {}", dimensions_text(node.grid), dimensions_text(node.block));
      if (node.shared_bytes != 0) line += fmt::format(" shared {}", node.shared_bytes);
    } else {
      line += fmt::format("  {} B", moved_bytes(program_, node));
    }
    line += fmt::format("  stream {}", node.stream);
    for (const std::string& attribute : attributes_of(program_, node)) line += fmt::format("  [{}]", attribute);
    const std::string after = after_text(edges_of(program_, node), index);
    if (!after.empty()) line += "  " + after;
    out.print("{}\n", escape_text(line));
    const std::string& position = input_.position(node);
    if (!position.empty()) out.print("      {}\n", escape_text(position));
    if (!options_.params) return;
    for (const StoredWord& word : words_of(program_, node)) {
      out.print("      {:<18} {}\n", word_place(node, word), value_text(program_, word));
    }
  }

  Json node_json(std::size_t index) {
    const RecordedNode& node = program_.nodes[index];
    Json json;
    json["index"] = index;
    json["kind"] = kind_name(node.kind);
    if (node.kind == NodeKind::kKernel) {
      const std::string& mangled = program_.functions[node.function].name;
      json["name"] = text_value(input_.demangled(mangled));
      json["mangled"] = text_value(mangled);
      json["grid"] = {node.grid.x, node.grid.y, node.grid.z};
      json["block"] = {node.block.x, node.block.y, node.block.z};
      json["shared_bytes"] = node.shared_bytes;
      json["parameter_bytes"] = node.parameter_bytes;
    } else {
      json["name"] = kind_name(node.kind);
      json["bytes"] = moved_bytes(program_, node);
    }
    json["stream"] = node.stream;
    json["attributes"] = attributes_of(program_, node);
    json["line"] = text_value(input_.position(node));
    json["after"] = edges_of(program_, node);
    json["parameters"] = Json::array();
    for (const StoredWord& word : words_of(program_, node)) {
      Json one = {{"place", word_place(node, word)}, {"at", word.offset}, {"bytes", word.bytes}};
      Json value = value_json(program_, word);
      for (auto& [key, part] : value.items()) one[key] = std::move(part);
      json["parameters"].push_back(std::move(one));
    }
    return json;
  }

  StoreInput& input_;
  const DumpOptions& options_;
  std::uint64_t id_;
  Program program_;
  KernelFilter kernels_;
};

}  // namespace

int view_program(StoreInput& input, const DumpOptions& options, Output& out) {
  View view(input, options, input.find(options.arguments[0]));
  if (options.format == Format::kText) {
    view.text(out);
  } else if (options.format == Format::kCsv) {
    view.csv(out);
  } else {
    print_json(out, input, options, view.json());
  }
  return kOk;
}

}  // namespace grape::tools
