// The border with what it is kept in, and the nodes that it is the border of.
#pragma once

#include <torch/csrc/dynamo/compiled_autograd.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "python_hooks/bridge/nodes.h"

namespace grape::python::bridge {

struct OwnedBorder {
  static constexpr std::uint32_t kNone = ~0U;

  Border border = {};
  std::string constants;  // what Border::constants is the hash of
  std::vector<Link> links;
  std::vector<Target> edges;
  std::vector<Leaf> leaves;
  std::vector<Top> tops;
  std::vector<std::uint32_t> reach, slots, fed_slots;
  std::vector<std::uint8_t> views;
  std::vector<Saved> saved;
  std::deque<std::string> texts;
  std::deque<std::vector<std::uint64_t>> sets;
  std::deque<std::vector<std::int64_t>> shapes;               // of leaves
  std::vector<std::shared_ptr<torch::autograd::Node>> inner;  // in the order in which they run
  std::vector<std::uint64_t> numbers;                         // of these
  std::vector<std::uint8_t> freed;                            // the same
  std::vector<std::uint64_t> hidden;
  std::vector<Keeper> keepers;
  std::vector<std::uint64_t> paths;
  std::vector<torch::autograd::Node*> link_nodes, top_nodes;  // of `links` but for the casts, of `tops`
  std::vector<std::shared_ptr<torch::autograd::Node>> casts;  // that made kept casts
  std::unordered_set<const torch::autograd::Node*> fed;       // inner nodes to which gradients come from inner nodes

  const char* keep(std::string text) { return texts.emplace_back(std::move(text)).c_str(); }
  void finish() noexcept;
  static OwnedBorder* of(Border* border) noexcept {
    return reinterpret_cast<OwnedBorder*>(reinterpret_cast<char*>(border) - offsetof(OwnedBorder, border));
  }
  static const OwnedBorder* of(const Border* border) noexcept { return of(const_cast<Border*>(border)); }
};

bool adds_up_first(const Border& border);  // as Border::adds_up_first

struct InnerNodes {
  struct Ran {
    std::weak_ptr<torch::autograd::Node> node;
    bool is_freed;        // what it kept
    bool is_known;        // it is known what it kept
    std::string nothing;  // of one that kept no tensor: all the rest. That shows whether something was freed
  };
  std::unordered_map<const torch::autograd::Node*, Ran> ran;
};

// The pass will run these nodes.
void note_inner_nodes(const InnerPass& pass, InnerNodes& nodes);
// A custom function, of Python or of C++: it is not known what it keeps.
bool is_function(const torch::autograd::Node& node);
// In-place work on a view.
bool is_slices(const torch::autograd::Node& node);
bool keeps_tensors(const std::shared_ptr<torch::autograd::Node>& node);
// What the node keeps: tensors and hooks in `call`, all else in `others`. False: it does not say.
bool read_contents(const std::shared_ptr<torch::autograd::Node>& node,
                   torch::dynamo::autograd::AutogradCompilerCall& call, std::string& others);
// Can the node not run any more? Throws `Unknown` if that is not known.
struct Unknown {};
bool is_freed(const std::shared_ptr<torch::autograd::Node>& node, const InnerNodes& nodes);

// Puts a call's nodes in the order in which autograd's engine runs them: the last one that was made first, of those
// that nothing is awaited for. A view's node may be made anew when somebody uses the view, with a higher number than
// that of what it waits for. Returns such a node whose edges leave the call: a link in its place would run too early.
// Null: none.
const torch::autograd::Node* order_as_they_run(std::vector<std::shared_ptr<torch::autograd::Node>>& nodes);

}  // namespace grape::python::bridge
