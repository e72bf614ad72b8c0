// Links run in eager's order. Those that follow each other and lead to leaves alone are one node, which gives the
// leaves their gradients by itself: the engine takes microseconds for each node that it runs.
#include "python_hooks/bridge/links.h"

#include <ATen/core/NamedTensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <typeinfo>
#include <unordered_set>
#include <utility>

#include "python_hooks/bridge/kept_casts.h"

namespace grape::python::bridge {
namespace {

using autograd::AccumulateGrad;
using autograd::Edge;
using autograd::Node;

constexpr const char* kHooked =
    "grape: a hook is registered on a node inside of a replayed call. GRAPE_AUTOGRAD=0 runs calls under autograd as "
    "always";

// Stands for the AccumulateGrad of a leaf whose gradient nobody sees.
class LeafNode final : public Node {
 public:
  LeafNode() : Node(kLeafSequence) {}
  std::string name() const override { return "torch::autograd::AccumulateGrad"; }

 protected:
  variable_list apply(variable_list&&) override { return {}; }
};

Edge edge_to(const Leaf& leaf, const at::Tensor& like) {
  const auto type = c10::scalarTypeToTypeMeta(static_cast<at::ScalarType>(leaf.type));
  const auto form = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(like.storage()), like.key_set(), type);
  const auto dimensions = static_cast<std::size_t>(leaf.dimensions);
  form.unsafeGetTensorImpl()->set_sizes_and_strides({leaf.sizes, dimensions}, std::vector<std::int64_t>(dimensions, 0));
  const auto node = std::make_shared<LeafNode>();
  return {node, node->add_input_metadata(form)};
}

// The node that adds up the gradient of a leaf. Null: the node is none.
AccumulateGrad* leaf_node(Node* node) {
  return node != nullptr && typeid(*node) == typeid(AccumulateGrad) ? static_cast<AccumulateGrad*>(node) : nullptr;
}

// The same for where the edge leads, by a cast or without one.
AccumulateGrad* leaf_behind(const Edge& edge) {
  auto* const cast = dynamic_cast<CastNode*>(edge.function.get());
  return leaf_node(cast != nullptr ? cast->next_edge(0).function.get() : edge.function.get());
}

// Whom the engine would have run next, and nobody sees in which order.
bool leads_to_leaf(const Cut& cut, std::uint32_t number, const Edge& edge) {
  if (edge.is_valid() && typeid(*edge.function) == typeid(LeafNode)) return true;
  const bool casts = dynamic_cast<CastNode*>(edge.function.get()) != nullptr;
  if (casts && (cut.form.edge_casts[number] == Template::kNoCast || has_hooks(*edge.function))) return false;
  AccumulateGrad* const leaf = leaf_behind(edge);
  return leaf != nullptr && !has_hooks(*leaf);
}

class LinkNode final : public Node, public ReplayedNode {
 public:
  // Of the links from `first` to `last`. `leads`: to leaves alone.
  LinkNode(std::shared_ptr<Cut> cut, std::uint32_t first, std::uint32_t last, bool leads)
      : Node(cut->number(cut->form.links[last].sequence)),
        cut_(std::move(cut)),
        first_(first),
        last_(last),
        delivers_(leads) {
    if (delivers_) add_post_hook(std::make_unique<Delivers>(*this));
  }
  std::string name() const override { return cut_->form.links[last_].name; }
  bool delivers() const noexcept { return delivers_; }

 protected:
  variable_list apply(variable_list&&) override {
    cut_->begin(autograd::get_current_graph_task_id());
    if (cut_->form.sealed) cut_->fail(false);
    cut_->held_inside.clear();
    TORCH_CHECK(pre_hooks().empty() && post_hooks().size() == (delivers_ ? 1 : 0), kHooked);
    variable_list outputs;
    outputs.reserve(num_outputs());
    try {
      for (std::uint32_t link = last_ + 1; link-- != first_;) run(link, outputs);
    } catch (const std::exception&) {
      if (delivers_) give_what_came(outputs);
      throw;
    }
    return outputs;
  }

 private:
  struct Delivers final : autograd::FunctionPostHook {
    explicit Delivers(LinkNode& on) : node(on) {}
    // The engine's own list, which nobody else reads: a leaf takes only a gradient that nobody else has.
    variable_list operator()(const variable_list& outputs, const variable_list&) override {
      return node.deliver(const_cast<variable_list&>(outputs));
    }
    LinkNode& node;  // that has the hook
  };

  bool runs(std::uint32_t link) const { return (cut_->running[link / 64] >> link % 64 & 1) != 0; }
  bool is_asked(std::uint32_t link) const {
    const std::uint32_t begin = cut_->links[link].first_edge, end = begin + cut_->form.links[link].edge_count;
    bool any = first_ == last_;
    for (std::uint32_t edge = begin; edge < end; ++edge) any = any || task_should_compute_output(edge);
    return any;
  }

  void run(std::uint32_t number, variable_list& outputs) {
    const Link& link = cut_->form.links[number];
    if (!(cut_->ran ? runs(number) : is_asked(number))) {
      outputs.resize(outputs.size() + link.edge_count);
      return;
    }
    if (!cut_->ran) cut_->run();
    cut_->check(number);
    if (cut_->stopped != nullptr && number <= cut_->stopped_at) std::rethrow_exception(cut_->stopped);
    if (cut_->freed_by.size() > cut_->freed_before) cut_->freed_by.back().down_to = number;
    if (cut_->releases && number == cut_->last_link) cut_->release_parts();
    for (std::uint32_t edge = link.first_edge; edge < link.first_edge + link.edge_count; ++edge) {
      if (cut_->go_inside[edge] != 0 && !waits(number, next_edge(outputs.size())))
        hold_inside(cut_->contributions[edge]);
      outputs.push_back(std::move(cut_->contributions[edge]));
    }
  }

  // Does another link of this node give something to where the edge leads? Not before that is it added up.
  bool waits(std::uint32_t number, const Edge& edge) const {
    for (std::uint32_t link = first_; link < number; ++link) {
      const auto begin = next_edges().begin() + cut_->links[link].first_edge;
      const bool meets = std::any_of(begin, begin + cut_->form.links[link].edge_count,
                                     [&](const Edge& other) { return other.function == edge.function; });
      if (meets && runs(link)) return true;
    }
    return false;
  }

  // As eager's inner node holds it, until another link runs, or the pass ends.
  void hold_inside(const at::Tensor& contribution) {
    if (cut_->held_inside.empty())
      autograd::Engine::get_default_engine().queue_callback([cut = cut_] { cut->held_inside.clear(); });
    cut_->held_inside.push_back(contribution);
  }

  // Gives leaves their gradients, as the engine would. Left is what it has to give on; none: there is nothing left.
  variable_list deliver(variable_list& outputs) {
    std::vector<bool> here = delivered_here(false);
    // Each node that the engine runs is somebody's then. But it runs leaves in an order of its own where many wait, and
    // of two with the same gradient the last one takes it.
    for (std::size_t i = 0; i < here.size() && (at::hasCallbacks() || looks_for_anomalies()); ++i) {
      const auto same = [&](const at::Tensor& other) { return other.is_same(outputs[i]); };
      here[i] = here[i] && outputs[i].defined() && std::count_if(outputs.begin(), outputs.end(), same) > 1;
    }
    give_all(outputs, here);
    const bool all = std::find(here.begin(), here.end(), false) == here.end();
    return all ? variable_list() : std::move(outputs);
  }

  // Behind an error. Only of links that ran: a cast's gradient lies elsewhere, and is there for the others, too.
  void give_what_came(variable_list& outputs) {
    std::vector<bool> here = delivered_here(true);
    std::fill(here.begin() + static_cast<std::ptrdiff_t>(outputs.size()), here.end(), false);
    outputs.resize(num_outputs());
    give_all(outputs, here);
  }

  void give_all(variable_list& outputs, const std::vector<bool>& here) {
    const at::NoNamesGuard no_names;
    std::size_t output = 0;
    for (std::uint32_t link = last_ + 1; link-- != first_;) {
      for (std::uint32_t e = 0; e < cut_->form.links[link].edge_count; ++e, ++output) {
        if (here[output]) give(cut_->form.links[link].first_edge + e, next_edge(output), outputs[output]);
      }
    }
  }

  // Per edge: is it the only one that leads there in the pass, and is it run on this stream? `fails`: the engine will
  // run nothing more.
  std::vector<bool> delivered_here(bool fails) {
    std::vector<bool> here(num_outputs(), false);
    autograd::GraphTask* const pass = current_pass();
    if (pass == nullptr || at::GradMode::is_enabled() || !(fails || pass->exec_info_.empty())) return here;
    const auto stream = this->stream();
    const auto is_alone = [&](Node* node) {
      return comes_only_by(*node, 1, 0) && !has_hooks(*node) && node->stream() == stream && (!fails || will_run(node));
    };
    for (std::size_t i = 0; i < here.size(); ++i) {
      const Edge& edge = next_edge(i);
      here[i] = typeid(*edge.function) == typeid(LeafNode);
      if (here[i]) continue;
      const auto* const cast = dynamic_cast<CastNode*>(edge.function.get());
      const bool inside = cast == nullptr || is_inside(*cast);
      AccumulateGrad* const leaf = leaf_behind(edge);
      here[i] = leaf != nullptr && inside && is_alone(leaf) && (cast == nullptr || is_alone(edge.function.get()));
    }
    return here;
  }

  // Is the weight's gradient, not the cast's, the pass's? And is it what the engine would find it to be?
  bool is_inside(const CastNode& cast) const {
    if (cast.cut.lock() != cut_ || cut_->casts_of != cut_->pass || !cast.next_edge(0).is_valid()) return false;
    const at::Tensor& gradient = cut_->contributions[cut_->form.edge_count + cast.index];
    const autograd::InputMetadata& wanted = cast.next_edge(0).function->input_metadata(0);
    return !gradient.defined() || (wanted.is_same_shape(gradient) && wanted.device() == gradient.device() &&
                                   c10::typeMetaToScalarType(wanted.dtype()) == gradient.scalar_type());
  }

  void give(std::uint32_t edge, const Edge& to, at::Tensor& output) {
    AccumulateGrad* const leaf = leaf_behind(to);
    const std::uint32_t cast = cut_->form.edge_casts[edge];
    const bool casts = leaf != nullptr && to.function.get() != leaf;
    at::Tensor gradient = std::move(casts ? cut_->contributions[cut_->form.edge_count + cast] : output);
    output = at::Tensor();
    if (leaf == nullptr || !gradient.defined()) return;
    variable_list alone;
    alone.push_back(std::move(gradient));
    static_cast<void>(leaf->apply(std::move(alone)));
  }

  const std::shared_ptr<Cut> cut_;
  const std::uint32_t first_, last_;
  const bool delivers_;
};

// Links that are one node.
class Together {
 public:
  Together(const Cut& cut, const autograd::edge_list& edges) : cut_(cut), edges_(edges) {}

  // The next one that the engine runs. False: it is another node.
  bool add(std::uint32_t link) {
    const std::uint32_t begin = cut_.form.links[link].first_edge, end = begin + cut_.form.links[link].edge_count;
    bool good = !cut_.form.sealed;
    std::vector<const AccumulateGrad*> cast;
    for (std::uint32_t edge = begin; edge < end && good; ++edge) {
      const AccumulateGrad* const leaf = leaf_behind(edges_[edge]);
      const bool casts = leaf != edges_[edge].function.get();
      good = leads_to_leaf(cut_, edge, edges_[edge]) && (casts || cast_.count(leaf) == 0);
      if (casts && leaf != nullptr) cast.push_back(leaf);
    }
    if (good) cast_.insert(cast.begin(), cast.end());
    return good;
  }

 private:
  const Cut& cut_;
  const autograd::edge_list& edges_;
  // Gradients come to them by casts first, which the engine may have to run behind this node.
  std::unordered_set<const AccumulateGrad*> cast_;
};

// Per link: which tops lead there.
std::vector<std::vector<std::uint32_t>> tops_of_links(const Template& form) {
  std::vector<std::vector<std::uint32_t>> tops(form.link_count);
  for (std::uint32_t i = 0; i < form.top_count; ++i) {
    for (std::uint32_t r = 0; r < form.tops[i].reach_count; ++r)
      tops[form.reach[form.tops[i].first_reach + r]].push_back(i);
  }
  return tops;
}

// Per link, and behind the last: may a pass fail right behind those from it on, and have to give what they gave?
std::vector<bool> failing_behind(const Template& form) {
  std::vector<bool> fails(form.link_count + 1, false);
  for (std::uint32_t top = 0; top < form.top_count && form.adds_up_first; ++top) {
    const auto behind = static_cast<std::size_t>(first_keeper(form, top) + 1);
    if (behind < fails.size()) fails[behind] = true;
  }
  return fails;
}

}  // namespace

std::vector<std::shared_ptr<Node>> make_links(const std::shared_ptr<Cut>& cut, const Tensor* targets,
                                              const at::Tensor& like) {
  const Template& form = cut->form;
  const Leaf* leaf = form.leaves;
  autograd::edge_list edges;
  edges.reserve(form.edge_count);
  for (std::uint32_t e = 0; e < form.edge_count; ++e) {
    edges.push_back(targets[e] != nullptr ? autograd::impl::gradient_edge(tensor_of(targets[e]))
                                          : edge_to(*leaf++, like));
    const auto* const weight = edges[e].is_valid() ? cast_weight(*edges[e].function) : nullptr;
    if (weight != nullptr) cut->cast_weights.push_back(weight->variable.unsafeGetTensorImpl());
  }
  const std::vector<std::vector<std::uint32_t>> tops = tops_of_links(form);
  const std::vector<bool> fails = failing_behind(form);
  std::vector<std::shared_ptr<Node>> links(form.link_count);
  cut->links.resize(form.link_count);
  for (std::uint32_t last = form.link_count; last-- != 0;) {
    std::uint32_t first = last;
    Together group(*cut, edges);
    const bool together = group.add(last);
    while (together && first != 0 && !fails[first] && tops[first - 1] == tops[last] && group.add(first - 1)) --first;
    const auto node = std::make_shared<LinkNode>(cut, first, last, together);
    for (std::uint32_t link = last + 1; link-- != first;) {
      links[link] = node;
      cut->links[link] = {node, static_cast<std::uint32_t>(node->num_outputs())};
      for (std::uint32_t e = 0; e < form.links[link].edge_count; ++e)
        node->add_next_edge(edges[form.links[link].first_edge + e]);
    }
    node->add_input_metadata(like);  // tells device and stream
    last = first;
  }
  return links;
}

std::vector<autograd::edge_list> edges_of_links(const Cut& cut) {
  std::vector<autograd::edge_list> all(cut.links.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::shared_ptr<Node> node = cut.links[i].node.lock();
    if (node == nullptr) continue;
    const auto begin = node->next_edges().begin() + cut.links[i].first_edge;
    all[i].assign(begin, begin + cut.form.links[i].edge_count);
  }
  return all;
}

bool has_late_hooks(const Cut& cut) {
  const Node* met = nullptr;
  for (const Cut::LinkPlace& place : cut.links) {
    const std::shared_ptr<Node> node = place.node.lock();
    if (node == nullptr || node.get() == met || node->num_outputs() == 1) continue;
    met = node.get();
    if (!static_cast<const LinkNode&>(*node).delivers() || !will_run(node.get())) continue;
    for (const Edge& edge : node->next_edges()) {
      AccumulateGrad* const leaf = leaf_behind(edge);
      if (leaf != nullptr && (has_hooks(*leaf) || (edge.function.get() != leaf && has_hooks(*edge.function))))
        return true;
    }
  }
  return false;
}

}  // namespace grape::python::bridge
