// Runs the backward pass of a call that was made again: its nodes, in the engine's order, down to the border.
#include <ATen/SequenceNumber.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/isnan.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/input_buffer.h>
#include <torch/version.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "python_hooks/bridge/links.h"

namespace grape::python::bridge {
namespace {

using autograd::Node;

struct Modes {
  at::ThreadLocalState thread;
  at::ScalarType autocast_type = at::autocast::get_autocast_dtype(at::kCUDA);
  bool autocast = at::autocast::is_autocast_enabled(at::kCUDA);
  bool keeps_casts = at::autocast::is_autocast_cache_enabled();
};

class Entered {
 public:
  explicit Entered(const Modes& modes) : thread_(modes.thread) {
    at::autocast::set_autocast_dtype(at::kCUDA, modes.autocast_type);
    at::autocast::set_autocast_enabled(at::kCUDA, modes.autocast);
    // Nothing is kept: what is kept now is of other blocks. Casts that the call left or found are known by their
    // weights.
    at::autocast::set_autocast_cache_enabled(false);
  }
  ~Entered() {
    at::autocast::set_autocast_enabled(at::kCUDA, before_.autocast);
    at::autocast::set_autocast_dtype(at::kCUDA, before_.autocast_type);
    at::autocast::set_autocast_cache_enabled(before_.keeps_casts);
  }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  const Modes before_;
  const at::ThreadLocalStateGuard thread_;
};

// The engine's notes of which nodes are wanted, with those of the call for as long as they run.
class Wanted {
 public:
  explicit Wanted(const std::unordered_set<Node*>& nodes) {
    const auto* chosen = autograd::get_current_graph_task_exec_info();
    if (chosen == nullptr || chosen->empty()) return;
    info_ = const_cast<std::unordered_map<Node*, autograd::GraphTask::ExecInfo>*>(chosen);
    for (Node* node : nodes) {
      if (info_->count(node) != 0) continue;
      (*info_)[node].needed_ = true;
      added_.push_back(node);
    }
  }
  ~Wanted() {
    for (Node* node : added_) info_->erase(node);
  }
  Wanted(const Wanted&) = delete;
  Wanted& operator=(const Wanted&) = delete;

 private:
  std::unordered_map<Node*, autograd::GraphTask::ExecInfo>* info_ = nullptr;
  std::vector<Node*> added_;
};

class Run {
 public:
  explicit Run(Cut& cut) : cut_(cut), border_(*cut.again), eager_(cut) {}

  void run() {
    for (std::size_t i = 0; i < border_.link_nodes.size(); ++i) link_of_[border_.link_nodes[i]] = i;
    for (const auto& node : border_.inner) inner_.insert(node.get());
    find_wanted();
    const Wanted wanted(wanted_);
    for (std::size_t i = 0; i < border_.top_nodes.size(); ++i) {
      if (!cut_.came[i]) continue;
      const Top& top = cut_.form.tops[i];
      for (std::uint32_t slot = 0; slot < top.slot_count; ++slot)
        add(border_.top_nodes[i], slot, std::move(cut_.given[top.first_slot + slot]));
    }
    for (std::size_t i = 0; i < border_.inner.size(); ++i) {  // as the engine runs them
      const auto& node = border_.inner[i];
      const auto at = buffers_.find(node.get());
      if (at == buffers_.end() || wanted_.count(node.get()) == 0) continue;
      autograd::InputBuffer buffer = std::move(at->second);
      buffers_.erase(at);
      try {
        run(*node, std::move(buffer.buffer));
      } catch (...) {  // for the link at which eager's engine would have come to it
        cut_.stopped = std::current_exception();
        cut_.stopped_at = link_behind(i);
        return;
      }
    }
  }

 private:
  // The first link to run with inner node `i` or after it.
  std::uint32_t link_behind(std::size_t i) const {
    for (; i < border_.inner.size(); ++i) {
      const auto link = link_of_.find(border_.inner[i].get());
      if (link != link_of_.end()) return static_cast<std::uint32_t>(link->second);
    }
    return 0;
  }

  // Inner nodes from which a contribution that is asked for can be reached.
  void find_wanted() {
    for (auto node = border_.inner.rbegin(); node != border_.inner.rend(); ++node) {
      const auto link = link_of_.find(node->get());
      std::uint32_t edge = link != link_of_.end() ? cut_.form.links[link->second].first_edge : 0;
      bool wanted = false;
      for (const autograd::Edge& next : (*node)->next_edges()) {
        if (!next.is_valid()) continue;
        if (inner_.count(next.function.get()) == 0) {
          wanted = wanted || cut_.runs[edge++] != 0;
        } else {
          wanted = wanted || wanted_.count(next.function.get()) != 0;
        }
      }
      if (wanted) wanted_.insert(node->get());
    }
  }

  void add(Node* node, std::uint32_t input, at::Tensor gradient) {
    auto at = buffers_.find(node);
    if (at == buffers_.end()) at = buffers_.emplace(node, autograd::InputBuffer(node->num_inputs())).first;
    const auto stream = node->stream();
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 10
    at->second.add(input, std::move(gradient), stream, stream);
#else
    at->second.add(input, std::move(gradient), stream, stream, node);
#endif
  }

  void run(Node& node, variable_list inputs) {
    const bool keeps_graph = autograd::get_current_graph_task_keep_graph();
    if (!keeps_graph) node.will_release_variables();
    const bool hooked = !node.post_hooks().empty();
    const variable_list inputs_then = hooked ? inputs : variable_list();
    const std::uint64_t first = at::sequence_number::peek();
    variable_list outputs = node(std::move(inputs));
    if (at::GradMode::is_enabled()) lead_to_tops(outputs, first, eager_);
    autograd::validate_outputs(node.next_edges(), outputs,
                               [&](const std::string& text) { return node.name() + ": " + text; });
    if (!keeps_graph) node.release_variables();
    for (const auto& hook : node.post_hooks()) outputs = (*hook)(outputs, inputs_then);
    if (looks_for_anomalies() && autograd::AnomalyMode::should_check_nan()) look_for_nan(node, outputs);
    const auto link = link_of_.find(&node);
    std::uint32_t edge = link != link_of_.end() ? cut_.form.links[link->second].first_edge : 0;
    const std::vector<bool> inside = go_inside(node, outputs);
    for (std::size_t i = 0; i < outputs.size() && i < node.next_edges().size(); ++i) {
      const autograd::Edge& next = node.next_edge(i);
      if (!next.is_valid()) continue;
      if (inner_.count(next.function.get()) == 0) {
        cut_.go_inside[edge] = inside[i] ? 1 : 0;
        cut_.contributions[edge++] = std::move(outputs[i]);
      } else {
        add(next.function.get(), next.input_nr, std::move(outputs[i]));
      }
    }
  }

  // Per output: Contribution::goes_inside.
  std::vector<bool> go_inside(const Node& node, const variable_list& outputs) const {
    std::vector<bool> inside(outputs.size(), false);
    for (std::size_t i = 0; i < outputs.size() && i < node.next_edges().size(); ++i) {
      if (wanted_.count(node.next_edge(i).function.get()) == 0) continue;
      for (std::size_t other = 0; other < outputs.size(); ++other)
        inside[other] = inside[other] || keeps(outputs[i], outputs[other]);
    }
    return inside;
  }

  // As the engine does.
  static void look_for_nan(const Node& node, const variable_list& outputs) {
    const at::AutoDispatchBelowADInplaceOrView below;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].defined() || !at::isnan(outputs[i]).any().item<bool>()) continue;
      throw std::runtime_error("Function '" + node.name() + "' returned nan values in its " + std::to_string(i) +
                               "th output.");
    }
  }

  Cut& cut_;
  OwnedBorder& border_;
  const EagerNodes eager_;
  std::unordered_map<const Node*, std::size_t> link_of_;
  std::unordered_set<Node*> inner_, wanted_;
  std::unordered_map<Node*, autograd::InputBuffer> buffers_;
};

bool is_same(const Cut& cut, const OwnedBorder& border) {
  const Template& form = cut.form;
  if (border.links.size() != form.link_count || border.tops.size() != form.top_count ||
      border.edges.size() != form.edge_count || border.inner.size() != form.node_count) {
    return false;
  }
  for (std::uint32_t i = 0; i < form.link_count; ++i) {
    if (std::strcmp(border.links[i].name, form.links[i].name) != 0 ||
        border.links[i].edge_count != form.links[i].edge_count) {
      return false;
    }
  }
  return std::equal(border.leaves.begin(), border.leaves.end(), form.leaves, form.leaves + form.leaf_count,
                    [](const Leaf& a, const Leaf& b) { return a.edge == b.edge; });
}

// What earlier passes freed is freed.
void free_nodes(const Cut& cut, OwnedBorder& border) {
  if (cut.freed_before == 0) return;
  for (std::uint32_t i = 0; i < cut.form.keeper_count; ++i) {
    if (cut.is_freed(i)) border.inner[cut.form.keepers[i].node]->release_variables();
  }
}

// Gives the nodes the numbers that eager's would have, and has them lead where the links do: to the casts of the call,
// not to those of its repetition.
void join(const Cut& cut, OwnedBorder& border) {
  std::unordered_set<const Node*> inner;
  for (std::uint32_t i = 0; i < cut.form.node_count; ++i) {
    border.inner[i]->set_sequence_nr(cut.number(cut.form.numbers[i]));
    inner.insert(border.inner[i].get());
  }
  const std::vector<autograd::edge_list> links = edges_of_links(cut);
  for (std::size_t i = 0; i < links.size(); ++i) {
    if (links[i].empty()) continue;
    std::size_t outside = 0;
    for (autograd::Edge& edge : border.link_nodes[i]->next_edges()) {
      if (edge.is_valid() && inner.count(edge.function.get()) == 0) edge = links[i][outside++];
    }
  }
}

void say(const char* text, char* error, std::size_t room) noexcept {
  if (room == 0) return;
  std::strncpy(error, text, room - 1);
  error[room - 1] = '\0';
}

}  // namespace

bool looks_for_anomalies() noexcept { return autograd::AnomalyMode::is_enabled(); }

void* take_modes() noexcept {
  try {
    return new Modes;
  } catch (const std::exception&) {
    return nullptr;
  }
}

void release_modes(void* modes) noexcept { delete static_cast<Modes*>(modes); }

void* enter_modes(void* modes) noexcept {
  try {
    return new Entered(*static_cast<Modes*>(modes));
  } catch (const std::exception&) {
    return nullptr;
  }
}

void leave_modes(void* entered) noexcept { delete static_cast<Entered*>(entered); }

bool was_run_again(const Cut* cut) noexcept { return cut->again != nullptr; }

bool run_again(Cut* cut, Border* border, char* error, std::size_t room) noexcept {
  try {
    cut->leave_casts();
    if (border != nullptr) {
      std::unique_ptr<OwnedBorder> owned(OwnedBorder::of(border));
      if (!is_same(*cut, *owned)) {
        say("grape: a call that was made again has another graph", error, room);
        return false;
      }
      join(*cut, *owned);
      free_nodes(*cut, *owned);
      cut->again = std::move(owned);
      cut->complete_tops();
      for (std::uint32_t i = 0; i < cut->hooks.size(); ++i) cut->take_hooks(i, std::move(cut->hooks[i]));
      cut->hooks.clear();
    }
    if (cut->splices) {
      splice(*cut);
      return true;
    }
    Run(*cut).run();
    autograd::Engine::get_default_engine().queue_callback([owner = cut->shared_from_this()] {
      owner->redirect();
      owner->number_as_eager();
    });
    return true;
  } catch (...) {
    cut->failure = std::current_exception();  // as it is, once nobody's frames are in between
    return false;
  }
}

}  // namespace grape::python::bridge
