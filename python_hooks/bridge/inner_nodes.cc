// Nodes that a backward pass inside of a call runs. If the graph is not kept, the pass frees what they keep.
#include <torch/csrc/autograd/functions/tensor.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <typeinfo>
#include <unordered_set>
#include <utility>
#include <vector>

#include "python_hooks/bridge/border.h"

namespace grape::python::bridge {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
namespace compiled = torch::dynamo::autograd;

bool is_named(const Node& node, std::string_view part) {
  return std::string_view(typeid(node).name()).find(part) != std::string_view::npos;
}

// Such nodes look for what they kept before they do anything else.
bool is_generated(const Node& node) { return is_named(node, "9generated"); }

struct Contents {
  bool is_known = false;
  bool has_tensors = false;
  std::string others;
};

Contents contents_of(const std::shared_ptr<Node>& node) {
  Contents found;
  if (is_function(*node)) return found;
  compiled::AutogradCompilerCall call(compiled::SizeInput::STATIC);
  if (!read_contents(node, call, found.others)) return found;
  found.has_tensors = !call.tensor_args.inputs.empty();
  found.is_known = call.hooks.empty();
  return found;
}

// All nodes behind the roots; first those to which others lead.
std::vector<std::shared_ptr<Node>> nodes_behind(const InnerPass& pass) {
  std::vector<std::shared_ptr<Node>> nodes;
  std::unordered_set<const Node*> met;
  const auto meet = [&](const std::shared_ptr<Node>& node) {
    if (node != nullptr && met.insert(node.get()).second) nodes.push_back(node);
  };
  for (std::size_t i = 0; i < pass.root_count; ++i) meet(tensor_of(pass.roots[i]).grad_fn());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const std::shared_ptr<Node> node = nodes[i];
    for (const Edge& edge : node->next_edges()) meet(edge.function);
  }
  std::stable_sort(nodes.begin(), nodes.end(),
                   [](const auto& a, const auto& b) { return a->topological_nr() < b->topological_nr(); });
  return nodes;
}

void note(const std::shared_ptr<Node>& node, bool keeps_graph, InnerNodes& nodes) {
  InnerNodes::Ran& ran = nodes.ran[node.get()];
  if (ran.node.lock() != node) ran = {node, false, true, {}};  // another node was there
  if (keeps_graph || ran.is_freed) return;
  ran.is_freed = is_slices(*node);  // it gives up the function that it works with
  if (ran.is_freed) return;
  const Contents contents = contents_of(node);
  ran.is_freed = contents.has_tensors;
  ran.is_known = contents.is_known && (!ran.is_freed || is_generated(*node));
  if (!ran.is_freed) ran.nothing = contents.others;
}

}  // namespace

bool is_function(const Node& node) { return is_named(node, "PyNode") || is_named(node, "7CppNode"); }

bool is_slices(const Node& node) { return dynamic_cast<const torch::autograd::CopySlices*>(&node) != nullptr; }

bool read_contents(const std::shared_ptr<Node>& node, compiled::AutogradCompilerCall& call, std::string& others) {
  compiled::NodeCall node_call(0, node);
  try {
    compiled::CompiledNodeArgs arguments(call, node_call);
    node->compiled_args(arguments);
    const compiled::CacheKey key = arguments.key();
    others.assign(reinterpret_cast<const char*>(key.key), key.key_size);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

bool keeps_tensors(const std::shared_ptr<Node>& node) {
  const auto* const slices = dynamic_cast<const torch::autograd::CopySlices*>(node.get());
  return slices != nullptr ? slices->fn != nullptr : contents_of(node).has_tensors;
}

void note_inner_nodes(const InnerPass& pass, InnerNodes& nodes) {
  std::unordered_set<const Node*> asked, needed;
  for (std::size_t i = 0; i < pass.input_count; ++i)
    asked.insert(torch::autograd::impl::gradient_edge(tensor_of(pass.inputs[i])).function.get());
  for (const auto& node : nodes_behind(pass)) {
    const auto leads_to = [&](const Edge& edge) {
      return asked.count(edge.function.get()) != 0 || needed.count(edge.function.get()) != 0;
    };
    const auto& edges = node->next_edges();
    if (std::none_of(edges.begin(), edges.end(), [&](const Edge& e) { return e.is_valid() && leads_to(e); })) continue;
    needed.insert(node.get());
    note(node, pass.keeps_graph, nodes);
  }
}

bool is_freed(const std::shared_ptr<Node>& node, const InnerNodes& nodes) {
  const auto at = nodes.ran.find(node.get());
  if (at == nodes.ran.end() || at->second.node.lock() != node) return false;
  const InnerNodes::Ran& ran = at->second;
  if (!ran.is_known) throw Unknown();
  if (ran.is_freed || ran.nothing.empty()) return ran.is_freed;
  const Contents now = contents_of(node);
  if (!now.is_known || now.has_tensors || now.others != ran.nothing) throw Unknown();
  return false;
}

InnerNodes* make_inner_nodes() noexcept {
  try {
    return new InnerNodes;
  } catch (const std::exception&) {
    return nullptr;
  }
}

void free_inner_nodes(InnerNodes* nodes) noexcept { delete nodes; }

}  // namespace grape::python::bridge
