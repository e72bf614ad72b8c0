// Hooks on the nodes of an observed call tell when they run, what came to them and what they passed on. A node with
// such a hook computes what it would without.
#include <ATen/core/NamedTensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "python_hooks/bridge/border.h"

namespace grape::python::bridge {
namespace {

namespace autograd = torch::autograd;

// Shared by all hooks of a call: its end is the graph's.
class Watch {
 public:
  Watch(const Watcher& watcher, void* call, const OwnedBorder& border)
      : watcher_(watcher), call_(call), tops_(border.tops), nodes_(border.top_nodes) {
    for (const autograd::Node* node : nodes_) fed_.push_back(border.fed.count(node) != 0);
    for (const auto& node : border.inner) {
      inner_.emplace(node.get(), node);
      for (const autograd::Edge& edge : node->next_edges()) ++edges_from_[{node.get(), edge.function.get()}];
    }
    for (const auto& node : border.casts) casts_.emplace(node.get(), node);
    links_.insert(border.link_nodes.begin(), border.link_nodes.end());
  }
  ~Watch() { watcher_.gone(call_); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // `top`: which one the node is; kNone: none of them.
  void enter(const std::shared_ptr<Watch>& self, const autograd::Node* node, std::uint32_t top,
             const autograd::variable_list& gradients) {
    if (!takes_part(node)) return;
    const int pass = autograd::get_current_graph_task_id();
    if (pass != pass_) {
      pass_ = pass;
      forget_the_dead();
      met_.clear();
      has_casts_ = leads_to_casts_alone();
      remaining_ = nodes_to_run();
      const at::NoNamesGuard as_in_nodes;
      hooked_ = hooked_node();
      watcher_.began(call_, {autograd::get_current_graph_task_keep_graph(), at::GradMode::is_enabled(), waits(top),
                             hooked_.empty() ? nullptr : hooked_.c_str()});
      give_waiting(top);
      autograd::Engine::get_default_engine().queue_callback([self, pass] {
        if (self->pass_ == pass) self->watcher_.ended(self->call_);
      });
      if (top != OwnedBorder::kNone) give(top, gradients);
    } else if (top != OwnedBorder::kNone && !fed_[top]) {
      give(top, gradients);
    }
    if (remaining_ != 0) --remaining_;
    watcher_.entered(call_, node);
  }

  void leave(const autograd::Node& node, std::uint32_t link, const std::vector<std::uint32_t>& outputs,
             const autograd::variable_list& gradients, const autograd::variable_list& inputs) {
    if (!takes_part(&node)) return;
    std::vector<Gradient> described;
    const auto asked = std::make_unique<bool[]>(outputs.size());
    for (const std::uint32_t output : outputs) {
      const bool inside = is_inside(node.next_edge(output).function.get());
      asked[described.size()] = !inside && node.task_should_compute_output(output);
      described.push_back(!inside && output < gradients.size() ? meet(gradients[output]) : Gradient());
      if (!described.back().plain) continue;
      described.back().unique = nobody_else_has(gradients[output], gradients);
      described.back().goes_inside = goes_inside(node, gradients, gradients[output]);
    }
    const Leaving how = leaving(node, gradients);
    const std::vector<std::uint64_t> ended = how == Leaving::kDone ? only_here(inputs) : std::vector<std::uint64_t>();
    watcher_.left(call_, {link, described.data(), asked.get(), how, &node, ended.data(), ended.size()});
  }

 private:
  using Nodes = std::unordered_map<autograd::Node*, std::weak_ptr<autograd::Node>>;

  // No other tensor is where one was that is gone: its identity is its own in the pass.
  Gradient meet(const at::Tensor& tensor) {
    const Gradient met = describe(tensor);
    if (met.identity != nullptr) met_.emplace_back(tensor.getIntrusivePtr());
    if (met.base != nullptr)
      met_.emplace_back(autograd::impl::get_view_autograd_meta(tensor)->get_backward_view().base_.getIntrusivePtr());
    return met;
  }

  // Gradient::goes_inside.
  bool goes_inside(const autograd::Node& node, const autograd::variable_list& gradients,
                   const at::Tensor& tensor) const {
    for (std::size_t i = 0; i < gradients.size() && i < node.next_edges().size(); ++i) {
      const bool inside = is_inside(node.next_edge(i).function.get()) && node.task_should_compute_output(i);
      if (inside && keeps(gradients[i], tensor)) return true;
    }
    return false;
  }

  // Storages of tensors that nobody else has.
  static std::vector<std::uint64_t> only_here(const autograd::variable_list& tensors) {
    std::vector<std::uint64_t> storages;
    std::vector<bool> single;  // before others refer to them here
    for (const at::Tensor& tensor : tensors) single.push_back(tensor.use_count() == 1);
    const autograd::variable_list owners = with_bases(tensors);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const at::Tensor& tensor = tensors[i];
      if (tensor.defined() && tensor.has_storage() && single[i] && nobody_else_has(tensor, owners))
        storages.push_back(reinterpret_cast<std::uint64_t>(tensor.storage().data()));
    }
    return storages;
  }

  // With those of which only these are views.
  static autograd::variable_list with_bases(autograd::variable_list tensors) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const auto* const view = tensors[i].defined() ? autograd::impl::get_view_autograd_meta(tensors[i]) : nullptr;
      if (view != nullptr && view->has_bw_view() && view->get_backward_view().base_.use_count() == 1)
        tensors.push_back(view->get_backward_view().base_);
    }
    return tensors;
  }

  // Has nobody but these the tensor's storage?
  static bool nobody_else_has(const at::Tensor& tensor, const autograd::variable_list& gradients) {
    std::unordered_set<const void*> owners;
    for (const at::Tensor& other : gradients) {
      if (other.defined() && other.has_storage() && other.is_alias_of(tensor))
        owners.insert(other.unsafeGetTensorImpl());
    }
    return tensor.storage().use_count() == owners.size();
  }

  // Results that were dropped take their nodes along, and new nodes may lie where those did.
  void forget_the_dead() {
    for (Nodes* const nodes : {&inner_, &casts_}) {
      for (auto at = nodes->begin(); at != nodes->end();) at = at->second.expired() ? nodes->erase(at) : std::next(at);
    }
    for (auto at = edges_from_.begin(); at != edges_from_.end();)
      at = inner_.count(at->first.first) == 0 ? edges_from_.erase(at) : std::next(at);
    for (autograd::Node*& node : nodes_) {
      if (inner_.count(node) == 0) node = nullptr;
    }
  }

  std::size_t nodes_to_run() const {
    const auto runs = [](const auto& node) { return will_run(node.first); };
    const auto casts = has_casts_ ? std::count_if(casts_.begin(), casts_.end(), runs) : 0;
    return static_cast<std::size_t>(std::count_if(inner_.begin(), inner_.end(), runs) + casts);
  }

  // The name of an inner node with hooks beside those of this; empty: there is none.
  std::string hooked_node() const {
    for (const auto& [address, owner] : inner_) {
      const std::shared_ptr<autograd::Node> node = owner.lock();
      const std::size_t own = links_.count(address);
      if (node == nullptr) continue;
      if (node->pre_hooks().size() > 1 || node->post_hooks().size() > own) return node->name();
      if (is_seen_inside(*node)) return node->name();
    }
    return {};
  }

  // A replay adds up no gradients at a result of which other results were computed.
  bool is_seen_inside(autograd::Node& node) const {
    const auto top = static_cast<std::size_t>(std::find(nodes_.begin(), nodes_.end(), &node) - nodes_.begin());
    return top != nodes_.size() && fed_[top] && is_seen(node, 1);
  }

  // Nodes that made kept casts do so where the pass has them.
  bool takes_part(const autograd::Node* node) const {
    return casts_.count(const_cast<autograd::Node*>(node)) == 0 ||
           (has_casts_ && autograd::get_current_graph_task_id() == pass_);
  }

  bool is_inside(autograd::Node* node) const {
    return inner_.count(node) != 0 || (has_casts_ && casts_.count(node) != 0);
  }

  // Does nobody but the call lead to its casts in this pass?
  bool leads_to_casts_alone() const {
    return std::all_of(casts_.begin(), casts_.end(), [this](const auto& owned) {
      const std::shared_ptr<autograd::Node> cast = owned.second.lock();
      if (cast == nullptr) return true;
      std::uint32_t edges = 0;
      for (const auto& [edge, count] : edges_from_) {
        if (edge.second == cast.get() && will_run(edge.first)) edges += static_cast<std::uint32_t>(count);
      }
      return !will_run(cast.get()) || comes_only_by(*cast, edges, 1);
    });
  }

  // Which sums will the engine make of what the node gives on?
  Leaving leaving(const autograd::Node& node, const autograd::variable_list& gradients) const {
    autograd::GraphTask* const pass = current_pass();
    if (remaining_ == 0) return Leaving::kDone;
    if (pass == nullptr) return Leaving::kOutside;
    bool inside = false, outside = false;
    std::vector<autograd::Edge> met;
    const std::lock_guard<std::mutex> lock(pass->mutex_);
    for (std::size_t i = 0; i < gradients.size() && i < node.next_edges().size(); ++i) {
      const autograd::Edge& edge = node.next_edge(i);
      if (!edge.is_valid() || !gradients[i].defined()) continue;
      const auto waiting = pass->not_ready_.find(edge.function.get());
      const bool adds = std::find(met.begin(), met.end(), edge) != met.end() ||
                        (waiting != pass->not_ready_.end() && waiting->second.buffer[edge.input_nr].defined());
      met.push_back(edge);
      if (adds) (is_inside(edge.function.get()) ? inside : outside) = true;
    }
    if (outside) return inside ? Leaving::kBoth : Leaving::kOutside;
    return Leaving::kInside;
  }

  // Does a result that is not the one of the `running` node still wait for a node that is none of the call's?
  bool waits(std::uint32_t running) const {
    autograd::GraphTask* const pass = current_pass();
    if (pass == nullptr) return true;
    const std::lock_guard<std::mutex> lock(pass->mutex_);
    for (std::uint32_t top = 0; top < nodes_.size(); ++top) {
      const auto left = pass->dependencies_.find(nodes_[top]);
      if (top == running || left == pass->dependencies_.end()) continue;
      int of_inner_nodes = 0;
      for (const auto& [edge, count] : edges_from_) {
        if (edge.second == nodes_[top] && will_run(edge.first)) of_inner_nodes += count;
      }
      if (left->second > of_inner_nodes) return true;
    }
    return false;
  }

  // What has come to results that inner nodes add to later.
  void give_waiting(std::uint32_t running) {
    autograd::GraphTask* const pass = current_pass();
    if (pass == nullptr) return;
    const std::lock_guard<std::mutex> lock(pass->mutex_);
    for (std::uint32_t top = 0; top < nodes_.size(); ++top) {
      if (!fed_[top] || top == running) continue;
      const auto waiting = pass->not_ready_.find(nodes_[top]);
      if (waiting != pass->not_ready_.end()) give(top, waiting->second.buffer);
    }
  }

  void give(std::uint32_t top, const autograd::variable_list& gradients) {
    for (std::uint32_t i = 0; i < tops_[top].slot_count && i < gradients.size(); ++i) {
      if (gradients[i].defined()) watcher_.given(call_, tops_[top].first_slot + i, meet(gradients[i]));
    }
  }

  const Watcher watcher_;
  void* const call_;
  const std::vector<Top> tops_;
  std::vector<autograd::Node*> nodes_;  // null: gone
  std::vector<bool> fed_;
  Nodes inner_, casts_;
  std::map<std::pair<autograd::Node*, autograd::Node*>, int> edges_from_;  // inner nodes', to any: how many
  std::unordered_set<const autograd::Node*> links_;                        // of these
  std::vector<WeakTensor> met_;                                            // in the pass
  std::string hooked_;                                                     // hooked_node(), in the pass
  std::size_t remaining_ = 0;                                              // of these, in the pass
  bool has_casts_ = false;                                                 // are the casts' nodes the pass's?
  int pass_ = -1;
};

struct Enter final : autograd::FunctionPreHook {
  Enter(std::shared_ptr<Watch> of, const autograd::Node* on, std::uint32_t which)
      : watch(std::move(of)), node(on), top(which) {}
  autograd::variable_list operator()(const autograd::variable_list& gradients) override {
    watch->enter(watch, node, top, gradients);
    return gradients;
  }
  const std::shared_ptr<Watch> watch;
  const autograd::Node* const node;  // that has the hook
  const std::uint32_t top;
};

struct Leave final : autograd::FunctionPostHook {
  Leave(std::shared_ptr<Watch> of, const autograd::Node* on, std::uint32_t which, std::vector<std::uint32_t> places)
      : watch(std::move(of)), node(on), link(which), outputs(std::move(places)) {}
  autograd::variable_list operator()(const autograd::variable_list& outputs_now,
                                     const autograd::variable_list& inputs) override {
    watch->leave(*node, link, outputs, outputs_now, inputs);
    return outputs_now;
  }
  const std::shared_ptr<Watch> watch;
  const autograd::Node* const node;  // that has the hook
  const std::uint32_t link;
  const std::vector<std::uint32_t> outputs;  // whose edges leave the call
};

std::vector<std::uint32_t> outputs_of(const OwnedBorder& border, std::uint32_t link) {
  std::vector<std::uint32_t> outputs;
  const auto& edges = border.link_nodes[link]->next_edges();
  std::uint32_t next = border.links[link].first_edge;
  const std::uint32_t end = next + border.links[link].edge_count;
  for (std::uint32_t i = 0; i < edges.size() && next < end; ++i) {
    if (edges[i].function.get() != border.edges[next].node || edges[i].input_nr != border.edges[next].input) continue;
    outputs.push_back(i);
    ++next;
  }
  return outputs;
}

}  // namespace

// What PyTorch exports of it is a member of it.
autograd::GraphTask* current_pass() noexcept {
  const auto* member = autograd::get_current_graph_task_exec_info();
  if (member == nullptr) return nullptr;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
  constexpr std::size_t kOffset = offsetof(autograd::GraphTask, exec_info_);
#pragma GCC diagnostic pop
  return reinterpret_cast<autograd::GraphTask*>(const_cast<char*>(reinterpret_cast<const char*>(member)) - kOffset);
}

bool will_run(torch::autograd::Node* node) {
  const auto* chosen = autograd::get_current_graph_task_exec_info();
  if (chosen != nullptr && !chosen->empty()) {
    const auto at = chosen->find(node);
    if (at == chosen->end() || !at->second.needed_) return false;  // what is only asked for does not run
  }
  const autograd::GraphTask* const pass = current_pass();
  if (pass == nullptr || pass->nodes_in_graph_.count(node) != 0) return true;
  const auto& roots = pass->graph_roots_;  // the notes leave them out
  return std::find(roots.begin(), roots.end(), node) != roots.end();
}

bool is_seen(autograd::Node& node, std::size_t hooks) {
  const auto* const chosen = autograd::get_current_graph_task_exec_info();
  if (chosen != nullptr) {
    const auto at = chosen->find(&node);
    if (at != chosen->end() && at->second.captures_ != nullptr) return true;
  }
  return node.pre_hooks().size() > hooks || !node.tensor_pre_hooks().empty() || !node.retains_grad_hooks().empty();
}

bool comes_only_by(autograd::Node& node, std::uint32_t edges, std::size_t hooks) {
  if (node.pre_hooks().size() != hooks || node.post_hooks().size() != hooks || !node.tensor_pre_hooks().empty() ||
      !node.retains_grad_hooks().empty()) {
    return false;
  }
  autograd::GraphTask* const pass = current_pass();
  if (pass == nullptr) return false;
  const std::lock_guard<std::mutex> lock(pass->mutex_);
  const auto left = pass->dependencies_.find(&node);
  return left != pass->dependencies_.end() && left->second == static_cast<int>(edges) &&
         pass->not_ready_.count(&node) == 0;
}

bool at_node(const void* node) noexcept { return autograd::get_current_node().get() == node; }

bool watch(const Border* border, const Watcher* watcher, void* call) noexcept {
  const OwnedBorder& owned = *OwnedBorder::of(border);
  try {
    std::vector<std::unique_ptr<autograd::FunctionPostHook>> leaves;
    std::vector<std::unique_ptr<autograd::FunctionPreHook>> enters;
    // Nobody is told of its end until all hooks are there.
    const auto watch = std::make_shared<Watch>(*watcher, call, owned);
    for (const auto& node : owned.inner) {
      std::uint32_t top = OwnedBorder::kNone;
      for (std::uint32_t i = 0; i < owned.top_nodes.size(); ++i) {
        if (owned.top_nodes[i] == node.get()) top = i;
      }
      enters.push_back(std::make_unique<Enter>(watch, node.get(), top));
    }
    for (std::uint32_t i = 0; i < owned.link_nodes.size(); ++i)
      leaves.push_back(std::make_unique<Leave>(watch, owned.link_nodes[i], i, outputs_of(owned, i)));
    for (const auto& cast : owned.casts) {
      enters.push_back(std::make_unique<Enter>(watch, cast.get(), OwnedBorder::kNone));
      const auto link = static_cast<std::uint32_t>(leaves.size());
      leaves.push_back(std::make_unique<Leave>(watch, cast.get(), link, std::vector<std::uint32_t>{0}));
    }
    const auto node_of = [&owned](const auto& nodes, std::size_t i) -> autograd::Node& {
      return i < nodes.size() ? *nodes[i] : *owned.casts[i - nodes.size()];
    };
    for (std::size_t i = 0; i < enters.size(); ++i) node_of(owned.inner, i).add_pre_hook(std::move(enters[i]));
    for (std::size_t i = 0; i < leaves.size(); ++i) node_of(owned.link_nodes, i).add_post_hook(std::move(leaves[i]));
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace grape::python::bridge
