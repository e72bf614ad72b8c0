#include "shim/record/graph.h"

#include <algorithm>
#include <cstring>

namespace grape::record {
namespace {

using trace::ApiClass;
using trace::EventKind;

constexpr std::size_t kMostTail = 256;                // nodes that one stream may wait for at once
constexpr std::uint64_t kSearchStart = 1u << 20;      // nodes that searches for implied edges may visit, in all: this,
constexpr std::uint64_t kSearchPerEvent = 64;         // and so many more per event
constexpr std::uint32_t kProgrammaticEvent = 7;       // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT
constexpr std::uint32_t kCompletionEvent = 12;        // CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT
constexpr std::uint64_t kPerThreadLane = 1ull << 63;  // beyond any handle, which is an address

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
  hash ^= hash >> 29;
  hash *= 0xBF58476D1CE4E5B9ull;
  return hash ^ (hash >> 32);
}

std::uint64_t hash_text(const std::string& text) {
  std::uint64_t hash = text.size() + 1;
  for (std::size_t at = 0; at < text.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + at, std::min<std::size_t>(8, text.size() - at));
    hash = mix(hash, word);
  }
  return hash;
}

bool is_node(ApiClass api_class, NodeKind& kind) {
  switch (api_class) {
    case ApiClass::kCopy:
    case ApiClass::kCopyToDevice:
    case ApiClass::kCopyToHost:
      kind = NodeKind::kCopy;
      return true;
    case ApiClass::kMemset:
      kind = NodeKind::kMemset;
      return true;
    case ApiClass::kHostFunction:
      kind = NodeKind::kHostFunction;
      return true;
    case ApiClass::kGraphLaunch:
      kind = NodeKind::kGraph;
      return true;
    case ApiClass::kMemoryOp:
      kind = NodeKind::kMemoryOp;
      return true;
    default:
      return false;
  }
}

}  // namespace

GraphBuilder::GraphBuilder(const ApiTable& apis, FunctionName function_name, void* context, const StreamModes* modes,
                           GraphDetail detail)
    : apis_(apis),
      function_name_(function_name),
      context_(context),
      modes_(modes),
      detail_(detail),
      search_budget_(kSearchStart) {}

void GraphBuilder::add(const trace::EventView& event, std::uint32_t thread, std::uint32_t scope) {
  search_budget_ += kSearchPerEvent;
  switch (event.header->kind) {
    case EventKind::kLaunch:
      return add_launch(event, thread, scope);
    case EventKind::kCall:
      return add_call(event, thread, scope);
    case EventKind::kBlockAlloc:
    case EventKind::kBlockFree:
      return add_host_event(event, 0);
    default:
      return;
  }
}

void GraphBuilder::add_launch(const trace::EventView& event, std::uint32_t thread, std::uint32_t scope) {
  const trace::LaunchView launch(event);
  if ((event.header->flags & trace::kFlagCaptured) != 0 || launch.result() != 0) return;
  Node node;
  node.function = launch.function();
  node.api = launch.api();
  node.frame = launch.frame();
  node.scope = scope;
  node.thread = thread;
  node.stream = normal_stream(apis_[node.api], launch.stream());
  node.bytes = launch.parameter_bytes();
  std::uint64_t shape = name_hash(node.function);
  for (int i = 0; i < 3; ++i) shape = mix(shape, trace::pack(launch.grid(i), launch.block(i)));
  shape = mix(shape, trace::pack(launch.shared_bytes(), launch.parameter_bytes()));
  const auto index = static_cast<std::uint32_t>(graph_.nodes.size());
  add_node(node, event, shape);
  for (std::uint32_t i = 0; i < launch.attribute_count(); ++i) {
    std::uint32_t id = 0;
    std::uint64_t handle = 0;
    std::memcpy(&id, launch.attribute(i), sizeof id);
    std::memcpy(&handle, launch.attribute(i) + 8, sizeof handle);
    if (id == kProgrammaticEvent || id == kCompletionEvent) events_[handle] = {index};
  }
}

void GraphBuilder::add_call(const trace::EventView& event, std::uint32_t thread, std::uint32_t scope) {
  const CallView call(event);
  const ApiLayout& layout = apis_[call.api()];
  if ((event.header->flags & trace::kFlagCaptured) != 0 || call.result() != 0) return;
  const std::uint64_t stream = stream_of(layout, call);
  Node node;
  if (is_node(layout.api_class, node.kind)) {
    node.api = call.api();
    node.frame = call.frame();
    node.scope = scope;
    node.thread = thread;
    node.stream = stream;
    node.bytes = moved_bytes(layout, call);
    if (node.kind == NodeKind::kCopy) node.direction = copy_direction(layout, call);
    std::uint64_t shape = mix(hash_text(layout.symbol), node.bytes);
    shape = mix(shape, static_cast<std::uint64_t>(node.direction));
    add_node(node, event, shape);
    if (node.direction != CopyDirection::kToHost) return;
    ++graph_.host_reads;
    add_host_event(event, call.api());
  } else if (layout.api_class == ApiClass::kStreamSync) {
    ++graph_.syncs;
    add_host_event(event, call.api());
  } else if (layout.api_class == ApiClass::kEventRecord && layout.stream >= 0) {
    events_[call.argument(layout.event)] = pending(stream, thread);
  } else if (layout.api_class == ApiClass::kEventWait && layout.stream >= 0) {
    const auto found = events_.find(call.argument(layout.event));
    if (found != events_.end()) wait(stream, thread, found->second);
  } else if (layout.api_class == ApiClass::kEvent && layout.destroys) {
    events_.erase(call.argument(layout.event));
  }
}

void GraphBuilder::keep_words(const trace::EventView& event, std::uint32_t& at, std::uint32_t& count) {
  if (detail_ != GraphDetail::kFull) return;
  at = static_cast<std::uint32_t>(graph_.words.size());
  count = static_cast<std::uint32_t>(event.word_count());
  graph_.words.insert(graph_.words.end(), event.words(), event.words() + event.word_count());
}

void GraphBuilder::add_host_event(const trace::EventView& event, std::uint32_t api) {
  if (detail_ != GraphDetail::kFull) return;
  HostEvent host;
  host.kind = event.header->kind;
  host.api = api;
  host.before_node = static_cast<std::uint32_t>(graph_.nodes.size());
  host.sequence = event.header->sequence;
  keep_words(event, host.words_at, host.word_count);
  graph_.host_events.push_back(host);
}

void GraphBuilder::add_node(Node node, const trace::EventView& event, std::uint64_t shape) {
  const auto index = static_cast<std::uint32_t>(graph_.nodes.size());
  node.sequence = event.header->sequence;
  node.flags = event.header->flags;
  keep_words(event, node.words_at, node.word_count);
  Nodes after = pending(node.stream, node.thread);
  node.after_at = static_cast<std::uint32_t>(graph_.after.size());
  node.after_count = static_cast<std::uint32_t>(after.size());
  graph_.after.insert(graph_.after.end(), after.begin(), after.end());
  std::uint64_t& hash = graph_.shape_hash;
  hash = mix(mix(hash, static_cast<std::uint64_t>(node.kind)), shape);
  // Distances, so that equal shapes are equal wherever they begin.
  for (const std::uint32_t from : after) hash = mix(hash, index - from);
  if (streams_seen_.emplace(lane_key(node.stream, node.thread), true).second) ++graph_.streams;
  graph_.nodes.push_back(node);
  set_tail(node.stream, node.thread, {index}, true);
}

std::uint64_t GraphBuilder::lane_key(std::uint64_t stream, std::uint32_t thread) const {
  return stream == kPerThreadStream ? kPerThreadLane | thread : stream;
}

bool GraphBuilder::blocking(std::uint64_t stream) const { return modes_ == nullptr || modes_->blocking(stream); }

// What the stream's next node follows.
GraphBuilder::Nodes GraphBuilder::pending(std::uint64_t stream, std::uint32_t thread) {
  Nodes nodes;
  if (stream == kLegacyStream) {
    nodes = legacy_;
    for (const auto& lane : blocking_lanes_)
      nodes.insert(nodes.end(), lane.second.tail.begin(), lane.second.tail.end());
  } else if (blocking(stream)) {
    const auto found = blocking_lanes_.find(lane_key(stream, thread));
    if (found != blocking_lanes_.end()) nodes = found->second.tail;
    if (found == blocking_lanes_.end() || found->second.legacy_epoch != legacy_epoch_) {
      nodes.insert(nodes.end(), legacy_.begin(), legacy_.end());
    }
  } else {
    const auto found = free_lanes_.find(lane_key(stream, thread));
    if (found != free_lanes_.end()) nodes = found->second.tail;
  }
  reduce(nodes);
  return nodes;
}

void GraphBuilder::set_tail(std::uint64_t stream, std::uint32_t thread, Nodes tail, bool is_node) {
  if (stream == kLegacyStream) {
    legacy_ = std::move(tail);
    ++legacy_epoch_;
    // The legacy stream's node follows all that the blocking streams have; what they do next follows it.
    if (is_node) blocking_lanes_.clear();
    return;
  }
  const std::uint64_t key = lane_key(stream, thread);
  Lane& lane = blocking(stream) ? blocking_lanes_[key] : free_lanes_[key];
  lane.tail = std::move(tail);
  lane.legacy_epoch = legacy_epoch_;
}

void GraphBuilder::wait(std::uint64_t stream, std::uint32_t thread, const Nodes& nodes) {
  Nodes tail = stream == kLegacyStream ? legacy_ : pending(stream, thread);
  tail.insert(tail.end(), nodes.begin(), nodes.end());
  reduce(tail);
  set_tail(stream, thread, std::move(tail), false);
}

// Leaves out the nodes that another one of them follows, directly or not.
void GraphBuilder::reduce(Nodes& nodes) {
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  if (nodes.size() < 2) return;
  visited_.resize(graph_.nodes.size(), 0);
  ++search_;
  const std::uint32_t least = nodes.front();
  Nodes stack(nodes.rbegin(), nodes.rend() - 1);
  Nodes reached;
  while (!stack.empty() && search_budget_ > 0) {
    const Node& node = graph_.nodes[stack.back()];
    stack.pop_back();
    for (std::uint32_t i = 0; i < node.after_count; ++i) {
      --search_budget_;
      if (search_budget_ == 0) break;
      const std::uint32_t from = graph_.after[node.after_at + i];
      if (from < least || visited_[from] == search_) continue;
      visited_[from] = search_;
      stack.push_back(from);
    }
  }
  nodes.erase(std::remove_if(nodes.begin(), nodes.end(), [this](std::uint32_t n) { return visited_[n] == search_; }),
              nodes.end());
  if (nodes.size() > kMostTail) {
    graph_.dropped_edges += nodes.size() - kMostTail;
    nodes.erase(nodes.begin(), nodes.end() - kMostTail);
  }
}

std::uint64_t GraphBuilder::name_hash(std::uint32_t function) {
  if (function >= name_hashes_.size()) name_hashes_.resize(function + 1, 0);
  std::uint64_t& hash = name_hashes_[function];
  if (hash == 0) hash = hash_text(function_name_(function, context_)) | 1;
  return hash;
}

Graph GraphBuilder::finish() {
  Graph done = std::move(graph_);
  graph_ = Graph();
  blocking_lanes_.clear();
  free_lanes_.clear();
  events_.clear();
  streams_seen_.clear();
  legacy_.clear();
  legacy_epoch_ = 0;
  visited_.clear();
  search_ = 0;
  search_budget_ = kSearchStart;
  return done;
}

}  // namespace grape::record
