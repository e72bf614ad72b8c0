// The nodes of a call that was made again become part of autograd's graph: of passes to come, or of the pass that runs.
// The engine runs them then, adds up gradients at results, and calls hooks there.
#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>

#include <mutex>
#include <unordered_set>
#include <utility>

#include "python_hooks/bridge/cut.h"

namespace grape::python::bridge {

using autograd::Node;

EagerNodes::EagerNodes(const Cut& cut) {
  for (const auto& node : cut.again->inner) inner.emplace(node.get(), node);
  for (std::size_t i = 0; i < cut.tops.size(); ++i) tops.emplace(cut.again->top_nodes[i], cut.tops[i]);
}

bool EagerNodes::has(const Node* node) const {
  const auto at = inner.find(node);
  return at != inner.end() && !at->second.expired();
}

void lead_to_tops(const variable_list& made, std::uint64_t first, const EagerNodes& eager) {
  std::vector<Node*> ahead;
  std::unordered_set<Node*> seen;
  const auto meet = [&](Node* node) {
    const bool is_new = node != nullptr && node->sequence_nr() >= first && !eager.has(node) &&
                        dynamic_cast<const ReplayedNode*>(node) == nullptr;
    if (is_new && seen.insert(node).second) ahead.push_back(node);
  };
  for (const at::Tensor& tensor : made) {
    if (tensor.defined()) meet(tensor.grad_fn().get());
  }
  while (!ahead.empty()) {
    Node* const node = ahead.back();
    ahead.pop_back();
    for (autograd::Edge& edge : node->next_edges()) {
      const auto at = eager.has(edge.function.get()) ? eager.tops.find(edge.function.get()) : eager.tops.end();
      const std::shared_ptr<Node> top = at != eager.tops.end() ? at->second.lock() : nullptr;
      if (top != nullptr) edge.function = top;
      meet(edge.function.get());
    }
  }
}

namespace {

thread_local std::uint64_t t_first_made;  // by the node that the engine runs

struct BeforeRun final : autograd::FunctionPreHook {
  variable_list operator()(const variable_list& gradients) override {
    t_first_made = at::sequence_number::peek();
    return gradients;
  }
};

struct AfterRun final : autograd::FunctionPostHook {
  explicit AfterRun(std::shared_ptr<const EagerNodes> of) : eager(std::move(of)) {}
  variable_list operator()(const variable_list& outputs, const variable_list&) override {
    if (at::GradMode::is_enabled()) lead_to_tops(outputs, t_first_made, *eager);
    return outputs;
  }
  const std::shared_ptr<const EagerNodes> eager;
};

}  // namespace

std::shared_ptr<Node> Cut::top_of(std::uint32_t slot, std::uint32_t& input) const {
  std::uint32_t top = 0;
  while (form.tops[top].first_slot + form.tops[top].slot_count <= slot) ++top;
  input = slot - form.tops[top].first_slot;
  return tops[top].lock();
}

bool Cut::is_seen_inside() const {
  for (std::uint32_t i = 0; i < form.top_count; ++i) {
    const Top& top = form.tops[i];
    const std::shared_ptr<Node> node = top.fed_count != 0 ? tops[i].lock() : nullptr;
    if (node == nullptr || !will_run(node.get())) continue;
    for (std::uint32_t f = 0; f < top.fed_count; ++f) {
      std::uint32_t input = 0;
      const std::shared_ptr<Node> fed = top_of(form.fed[top.first_fed + f], input);
      if (fed != nullptr && is_seen(*fed, 0)) return true;
    }
  }
  return false;
}

void Cut::splice() {
  TORCH_CHECK(!is_spent(), autograd::ERR_BACKWARD_TWICE);
  find_running();
  for (std::uint32_t i = 0; i < form.top_count; ++i) {
    const std::shared_ptr<Node> top = tops[i].lock();
    came[i] = top != nullptr && will_run(top.get());
  }
  check_there();
  check(0);
  next_part = next_keeper = 0;
  Pass now;
  now.whole = now.looks_at_nodes = true;
  splices = true;
  try {
    has_owner_run(now);
  } catch (const std::exception&) {
    splices = false;
    throw;
  }
}

void Cut::take_hooks(std::uint32_t top, PostHooks&& of_top) {
  const std::shared_ptr<Node> node = redirected.empty() ? nullptr : tops[top].lock();
  if (node != nullptr || again != nullptr) {
    Node* const eager = node != nullptr ? node->next_edge(0).function.get() : again->top_nodes[top];
    for (auto& hook : of_top) eager->add_post_hook(std::move(hook));
    return;
  }
  hooks.resize(form.top_count);
  for (auto& hook : of_top) hooks[top].push_back(std::move(hook));
}

void Cut::redirect() {
  if (again == nullptr) return;
  const auto eager_nodes = std::make_shared<const EagerNodes>(*this);
  const std::unique_ptr<OwnedBorder> border = std::move(again);
  redirected.assign(form.top_count, true);
  memory.clear();
  parts.clear();  // its own nodes keep what they need
  for (std::uint32_t i = 0; i < form.top_count; ++i) {
    const Top& top = form.tops[i];
    const std::shared_ptr<Node> node = tops[i].lock();
    if (node == nullptr) continue;
    autograd::edge_list edges;
    for (std::uint32_t slot = 0; slot < top.slot_count; ++slot)
      edges.emplace_back(border->top_nodes[i]->getptr(), slot);
    node->next_edges() = std::move(edges);
  }
  for (const auto& node : border->inner) {
    node->add_pre_hook(std::make_unique<BeforeRun>());
    node->add_post_hook(std::make_unique<AfterRun>(eager_nodes));
  }
  // Gradients of inner nodes come to a result where those from outside come to it.
  std::unordered_set<std::uint32_t> fed;
  for (std::uint32_t i = 0; i < form.top_count; ++i) {
    const Top& top = form.tops[i];
    fed.insert(form.fed + top.first_fed, form.fed + top.first_fed + top.fed_count);
  }
  for (const std::uint32_t slot : fed) {
    std::uint32_t input = 0;
    const std::shared_ptr<Node> result = top_of(slot, input);
    if (result == nullptr) continue;
    const Node* const eager = result->next_edge(0).function.get();
    for (const auto& node : border->inner) {
      for (autograd::Edge& edge : node->next_edges()) {
        if (edge.function.get() == eager && edge.input_nr == input) edge.function = result;
      }
    }
  }
}

void Cut::number_as_eager() {
  for (std::uint32_t i = 0; i < form.top_count; ++i) {
    const std::shared_ptr<Node> top = tops[i].lock();
    if (top != nullptr) top->set_sequence_nr(number(form.tops[i].sequence));
  }
}

void splice(Cut& cut) {
  autograd::GraphTask* const pass = current_pass();
  TORCH_CHECK(pass != nullptr, "grape: no backward pass runs");
  const std::vector<std::shared_ptr<Node>> inner = cut.again->inner;  // as they run
  std::unordered_set<const Node*> ours;
  for (const auto& node : inner) ours.insert(node.get());
  std::vector<std::shared_ptr<Node>> tops;
  std::vector<Node*> ahead;
  for (const auto& top : cut.tops) {
    tops.push_back(top.lock());
    if (tops.back() != nullptr) ours.insert(tops.back().get());
    if (tops.back() != nullptr && will_run(tops.back().get())) ahead.push_back(tops.back().get());
  }
  const std::lock_guard<std::mutex> lock(pass->mutex_);
  for (const Node* top : ahead) {
    for (const autograd::Edge& edge : top->next_edges()) {
      if (ours.count(edge.function.get()) != 0) --pass->dependencies_[edge.function.get()];
    }
  }
  cut.redirect();
  for (std::size_t i = 0; i < tops.size(); ++i) {
    const bool in_queue =
        tops[i] != nullptr && will_run(tops[i].get()) && pass->dependencies_.count(tops[i].get()) == 0;
    if (tops[i] != nullptr && !in_queue) tops[i]->set_sequence_nr(cut.number(cut.form.tops[i].sequence));
  }
  std::unordered_set<const Node*> met(ahead.begin(), ahead.end());
  std::unordered_set<const Node*> uncounted;  // the engine counts no edges of what is older than all that is asked for
  while (!ahead.empty()) {
    const Node* const node = ahead.back();
    ahead.pop_back();
    for (const autograd::Edge& edge : node->next_edges()) {
      Node* const next = edge.function.get();
      if (next != nullptr && ours.count(next) == 0) {
        if (pass->dependencies_.count(next) == 0) uncounted.insert(next);
        if (uncounted.count(next) != 0) ++pass->dependencies_[next];
      }
      if (ours.count(next) == 0) continue;
      ++pass->dependencies_[next];
      pass->nodes_in_graph_.insert(next);
      if (met.insert(next).second) ahead.push_back(next);
    }
  }
  auto& chosen = pass->exec_info_;
  if (chosen.empty()) return;
  for (auto node = inner.rbegin(); node != inner.rend(); ++node) {
    for (const autograd::Edge& edge : (*node)->next_edges()) {
      const auto next = edge.is_valid() ? chosen.find(edge.function.get()) : chosen.end();
      if (next != chosen.end() && next->second.should_execute()) chosen[node->get()].needed_ = true;
    }
  }
}

}  // namespace grape::python::bridge
