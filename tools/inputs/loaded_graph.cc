#include "tools/inputs/loaded_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tools/inputs/attributes.h"
#include "tools/inputs/event_text.h"
#include "tools/inputs/filter.h"
#include "tools/text/failure.h"

namespace grape::tools {
namespace {

using record::NodeKind;
using trace::EventKind;
using trace::high;
using trace::low;

void add_piece(std::vector<Word>& words, const std::uint8_t* data, std::uint32_t begin, std::uint32_t end,
               std::uint32_t parameter, const BlockTable& blocks) {
  for (std::uint32_t at = begin; at < end;) {
    Word word;
    word.parameter = parameter;
    word.in_parameter = at - begin;
    word.offset = at;
    word.bytes = std::min(end - at, 8 - at % 8);
    std::memcpy(&word.value, data + at, word.bytes);
    if (word.bytes == 8) word.block = blocks.find(word.value);
    words.push_back(word);
    at += word.bytes;
  }
}

// The parameters' bytes, cut at parameters' borders; what stands between parameters counts too, since it was passed.
std::vector<Word> parameter_words(const trace::Function& function, const std::uint8_t* data, std::uint32_t bytes,
                                  const BlockTable& blocks) {
  std::vector<Word> words;
  std::vector<std::pair<trace::Parameter, std::uint32_t>> layout;
  for (std::uint32_t i = 0; i < function.parameters.size(); ++i) layout.emplace_back(function.parameters[i], i);
  std::sort(layout.begin(), layout.end(), [](const auto& a, const auto& b) { return a.first.offset < b.first.offset; });
  std::uint32_t at = 0;
  for (const auto& [parameter, index] : layout) {
    if (parameter.offset < at || parameter.offset >= bytes) continue;
    const std::uint32_t end = parameter.offset + std::min(parameter.size, bytes - parameter.offset);
    add_piece(words, data, at, parameter.offset, Word::kNoParameter, blocks);
    add_piece(words, data, parameter.offset, end, index, blocks);
    at = end;
  }
  add_piece(words, data, at, bytes, layout.empty() ? 0 : Word::kNoParameter, blocks);
  return words;
}

std::vector<Word> argument_words(const record::CallView& call, const record::ApiLayout& layout,
                                 const BlockTable& blocks) {
  std::vector<Word> words;
  for (std::uint32_t i = 0; i < call.argument_count(); ++i) {
    if (static_cast<int>(i) == layout.stream) continue;  // shown apart
    Word word;
    word.parameter = i;
    word.offset = i * 8;
    word.value = call.argument(static_cast<int>(i));
    word.block = blocks.find(word.value);
    words.push_back(word);
  }
  return words;
}

void fill_launch(LoadedNode& node, const trace::EventView& event) {
  const trace::LaunchView launch(event);
  for (int i = 0; i < 3; ++i) {
    node.grid[i] = launch.grid(i);
    node.block[i] = launch.block(i);
  }
  node.shared_bytes = launch.shared_bytes();
  node.attributes = launch_attributes(launch);
  for (std::string& note : flag_notes(event.header->flags)) node.attributes.push_back(std::move(note));
}

std::string host_line(const trace::EventView& event, const TraceInput& input, const BlockTable& blocks) {
  const std::uint64_t* words = event.words();
  if (event.header->kind == EventKind::kBlockAlloc) {
    return fmt::format("allocates block {} of {} B at {:#x}", blocks.allocations(), words[1], words[0]);
  }
  if (event.header->kind == EventKind::kBlockFree) {
    return fmt::format("frees {}", describe(blocks.find(words[0]), words[0]));
  }
  const record::CallView call(event);
  const record::ApiLayout& layout = input.apis()[call.api()];
  const bool waits = layout.api_class == trace::ApiClass::kStreamSync;
  return fmt::format("{}: {}", waits ? "host waits" : "host read", layout.symbol);
}

// Loads one region call: its nodes by the graph builder, beside them what the builder does not keep.
class CallLoader {
 public:
  CallLoader(TraceInput& input, const CallEntry& call, bool words)
      : input_(input),
        words_(words),
        blocks_(input.apis()),
        builder_(input.apis(), &TraceInput::function_name, &input, &modes_, record::GraphDetail::kShape) {
    loaded_.call = call;
    loaded_.title = call.number == 0 ? "launches outside of region calls"
                                     : fmt::format("call {} of region {} {} (call:{})", call.ordinal,
                                                   call.region_number, input.scope_name(call.region), call.number);
  }

  LoadedGraph run() {
    const std::uint64_t number = loaded_.call.number;
    Step step;
    input_.rewind();
    while (input_.next(step)) {
      const EventKind kind = step.event.header->kind;
      if (kind == EventKind::kCall) {
        const record::CallView call(step.event);
        modes_.add(input_.apis()[call.api()], call);
      }
      const bool mine = step.call == number;
      // A block is named before it goes and after it came.
      if (mine && kind == EventKind::kBlockFree) add_host_line(step.event);
      blocks_.see(step.event);
      if (!mine) continue;
      if (number != 0 && RegionNumbers::closes_region(step)) break;
      see(step);
    }
    finish();
    return std::move(loaded_);
  }

 private:
  void see(const Step& step) {
    const EventKind kind = step.event.header->kind;
    const std::size_t nodes = builder_.size();
    const std::uint64_t host_events = builder_.host_reads() + builder_.syncs();
    builder_.add(step.event, step.thread, step.scope);
    if (builder_.size() != nodes) add_node(step.event);
    if (kind == EventKind::kBlockAlloc || builder_.host_reads() + builder_.syncs() != host_events) {
      add_host_line(step.event);
    }
  }

  void add_node(const trace::EventView& event) {
    LoadedNode node;
    if (event.header->kind == EventKind::kLaunch) {
      fill_launch(node, event);
      const trace::LaunchView launch(event);
      node.native_frame = launch.native_frame();
      if (words_) {
        node.words =
            parameter_words(input_.function(launch.function()), launch.parameters(), launch.parameter_bytes(), blocks_);
      }
    } else {
      const record::CallView call(event);
      node.native_frame = call.native_frame();
      if (words_) node.words = argument_words(call, input_.apis()[call.api()], blocks_);
    }
    loaded_.nodes.push_back(std::move(node));
  }

  void add_host_line(const trace::EventView& event) {
    HostLine line;
    line.before_node = static_cast<std::uint32_t>(builder_.size());
    line.allocator = event.header->kind != EventKind::kCall;
    line.text = host_line(event, input_, blocks_);
    if (event.header->kind == EventKind::kCall) {
      const record::CallView call(event);
      const record::ApiLayout& layout = input_.apis()[call.api()];
      if (layout.stream >= 0) line.stream = stream_of(layout, call);
    }
    line.frame = event_frame(event);
    loaded_.host_lines.push_back(std::move(line));
  }

  void finish() {
    const record::Graph graph = builder_.finish();
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      const record::Node& from = graph.nodes[i];
      LoadedNode& node = loaded_.nodes[i];
      node.kind = from.kind;
      node.function = from.function;
      node.api = from.api;
      node.frame = from.frame;
      node.scope = from.scope;
      node.thread = from.thread;
      node.stream = from.stream;
      node.bytes = from.bytes;
      node.sequence = from.sequence;
      node.after.assign(graph.after.begin() + from.after_at, graph.after.begin() + from.after_at + from.after_count);
    }
    loaded_.edges = graph.after.size();
    loaded_.dropped_edges = graph.dropped_edges;
  }

  TraceInput& input_;
  bool words_;
  BlockTable blocks_;
  record::StreamModes modes_;
  record::GraphBuilder builder_;
  LoadedGraph loaded_;
};

NodeKind kind_of(std::uint32_t type) {
  switch (type) {
    case kMemcpyNode:
      return NodeKind::kCopy;
    case kMemsetNode:
      return NodeKind::kMemset;
    case kHostNode:
      return NodeKind::kHostFunction;
    case kChildGraphNode:
      return NodeKind::kGraph;
    default:
      return NodeKind::kKernel;
  }
}

LoadedNode load_node(const trace::EventView& event, TraceInput& input, bool words, const BlockTable& blocks) {
  const std::uint64_t* from = event.words();
  LoadedNode node;
  node.type = high(from[1]);
  node.kind = kind_of(node.type);
  node.other = node.type > kChildGraphNode;
  node.function = low(from[2]);
  node.bytes = high(from[2]);
  const std::uint32_t dimensions[] = {low(from[3]),  high(from[3]), low(from[4]),
                                      high(from[4]), low(from[5]),  high(from[5])};
  std::copy(dimensions, dimensions + 3, node.grid);
  std::copy(dimensions + 3, dimensions + 6, node.block);
  node.shared_bytes = low(from[6]);
  node.sequence = event.header->sequence;
  node.attributes = flag_notes(event.header->flags);
  if (!words) return node;
  static const trace::Function no_layout;
  node.words = parameter_words(node.type == kKernelNode ? input.function(node.function) : no_layout,
                               reinterpret_cast<const std::uint8_t*>(from + 7), high(from[2]), blocks);
  return node;
}

LoadedGraph load_exec(TraceInput& input, const GraphEntry& entry, bool words) {
  LoadedGraph loaded;
  loaded.application = true;
  loaded.title = fmt::format("graph {} of the application (exec {:#x}), launched {} times", entry.id, entry.exec_handle,
                             entry.launches);
  ExecGraphs execs(input.apis());
  BlockTable blocks(input.apis());
  // Node numbers are those of the trace; where some were lost, positions in the list differ from them.
  std::unordered_map<std::uint32_t, std::uint32_t> position;
  Step step;
  input.rewind();
  while (input.next(step)) {
    blocks.see(step.event);
    execs.see(step.event);
    const EventKind kind = step.event.header->kind;
    const std::uint64_t* from = step.event.words();
    if ((kind != EventKind::kExecNode && kind != EventKind::kExecEdges) || execs.current(from[0]) != entry.exec)
      continue;
    if (kind == EventKind::kExecNode) {
      position[low(from[1])] = static_cast<std::uint32_t>(loaded.nodes.size());
      loaded.nodes.push_back(load_node(step.event, input, words, blocks));
      continue;
    }
    for (std::uint32_t i = 0; i < low(from[1]); ++i) {
      const auto a = position.find(low(from[2 + i])), b = position.find(high(from[2 + i]));
      if (a == position.end() || b == position.end()) continue;
      loaded.nodes[b->second].after.push_back(a->second);
      ++loaded.edges;
    }
  }
  return loaded;
}

}  // namespace

LoadedGraph load_graph(TraceInput& input, const GraphIndex& index, const std::string& selector, bool words) {
  std::uint64_t number = 0;
  const std::string text = selector.compare(0, 6, "graph:") == 0 ? selector.substr(6) : selector;
  if (!parse_number(text, number)) return CallLoader(input, index.call(selector), words).run();
  const GraphEntry* entry = index.find(number);
  if (entry == nullptr) throw Failure(fmt::format("no graph {}; the trace has {}", number, index.entries().size()));
  if (entry->application) return load_exec(input, *entry, words);
  return CallLoader(input, index.call(fmt::format("call:{}", entry->first_call)), words).run();
}

std::string node_key(const TraceInput& input, const LoadedNode& node) {
  if (node.other) return graph_node_type_name(node.type);
  if (node.kind == NodeKind::kKernel) return input.function(node.function).name;
  return node.api != 0 ? input.apis()[node.api].symbol : graph_node_type_name(node.type);
}

std::string node_name(TraceInput& input, const LoadedNode& node) {
  return node.kind == NodeKind::kKernel && !node.other ? input.shown(node.function) : node_key(input, node);
}

std::string word_place(const TraceInput& input, const LoadedNode& node, const Word& word) {
  if (word.parameter == Word::kNoParameter) return fmt::format("between parameters, byte {:#x}", word.offset);
  if (node.api != 0 && node.kind != NodeKind::kKernel) {
    const auto& arguments = input.apis()[node.api].arguments;
    return word.parameter < arguments.size() ? arguments[word.parameter].name : std::to_string(word.parameter);
  }
  return fmt::format("p{}+{:#x}", word.parameter, word.in_parameter);
}

}  // namespace grape::tools
