// The order in which autograd's engine runs the nodes of a call.
#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <utility>

#include "python_hooks/bridge/border.h"

namespace grape::python::bridge {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;

class RunOrder {
 public:
  explicit RunOrder(const std::vector<std::shared_ptr<Node>>& nodes) {
    for (const auto& node : nodes) waits_.emplace(node.get(), 0);
    for (const auto& node : nodes) {
      for (const Edge& edge : node->next_edges()) {
        if (is_inner(edge)) ++waits_[edge.function.get()];
      }
    }
    std::copy_if(nodes.begin(), nodes.end(), std::back_inserter(ready_),
                 [this](const auto& e) { return waits_[e.get()] == 0; });
    std::make_heap(ready_.begin(), ready_.end(), was_made_before);
  }

  // Null: all have run.
  std::shared_ptr<Node> next() {
    if (ready_.empty()) return nullptr;
    std::pop_heap(ready_.begin(), ready_.end(), was_made_before);
    std::shared_ptr<Node> node = std::move(ready_.back());
    ready_.pop_back();
    for (const Edge& edge : node->next_edges()) {
      if (!is_inner(edge)) continue;
      if (was_made_before(node, edge.function) && leaves(*edge.function)) late_ = edge.function.get();
      if (--waits_[edge.function.get()] != 0) continue;
      ready_.push_back(edge.function);
      std::push_heap(ready_.begin(), ready_.end(), was_made_before);
    }
    return node;
  }

  const Node* late() const noexcept { return late_; }

 private:
  static bool was_made_before(const std::shared_ptr<Node>& a, const std::shared_ptr<Node>& b) {
    return a->sequence_nr() < b->sequence_nr();
  }
  bool is_inner(const Edge& edge) const { return edge.is_valid() && waits_.count(edge.function.get()) != 0; }
  bool leaves(const Node& node) const {
    const auto& edges = node.next_edges();
    return std::any_of(edges.begin(), edges.end(), [this](const Edge& e) { return e.is_valid() && !is_inner(e); });
  }

  std::unordered_map<const Node*, int> waits_;  // for how many edges
  std::vector<std::shared_ptr<Node>> ready_;    // a heap: the last one that was made is on top
  const Node* late_ = nullptr;
};

}  // namespace

const Node* order_as_they_run(std::vector<std::shared_ptr<Node>>& nodes) {
  RunOrder order(nodes);
  nodes.clear();
  while (std::shared_ptr<Node> node = order.next()) nodes.push_back(std::move(node));
  return order.late();
}

}  // namespace grape::python::bridge
