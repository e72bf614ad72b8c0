// Which nodes made casts that autocast keeps.
#pragma once

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/generated/Functions.h>

#include <limits>
#include <unordered_set>

#include "python_hooks/bridge/nodes.h"

namespace grape::python::bridge {

constexpr std::uint64_t kLeafSequence = std::numeric_limits<std::uint64_t>::max();  // of AccumulateGrad

// The leaf, if the node casts one. Null: it does not.
inline const torch::autograd::AccumulateGrad* cast_weight(const torch::autograd::Node& node) {
  if (node.sequence_nr() == kLeafSequence) return nullptr;
  const auto* const cast = dynamic_cast<const torch::autograd::generated::ToCopyBackward0*>(&node);
  if (cast == nullptr || !cast->next_edge(0).is_valid()) return nullptr;
  return dynamic_cast<const torch::autograd::AccumulateGrad*>(cast->next_edge(0).function.get());
}

// The nodes that made casts which autocast keeps. Others than the call may use the casts, so that gradients are added
// up at them: they are outside.
class KeptCasts {
  using Node = torch::autograd::Node;

 public:
  explicit KeptCasts(const CallNodes& call) {
    for (std::size_t i = 0; i < call.cast_count; ++i) nodes_.insert(tensor_of(call.casts[i]).grad_fn().get());
    if (call.again == nullptr) return;
    // Nothing was kept of a call that was made again: each use of a weight has a cast of its own.
    // Where results were dropped, links and casts are gone by now.
    const std::vector<const void*>& weights = cast_weights_of(*call.again);
    weights_.insert(weights.begin(), weights.end());
  }

  bool has(const Node& node) const {
    if (nodes_.count(&node) != 0) return true;
    const auto* const weight = weights_.empty() ? nullptr : cast_weight(node);
    return weight != nullptr && weights_.count(weight->variable.unsafeGetTensorImpl()) != 0;
  }

  // Does autocast keep what the node made, though nobody said so?
  static bool may_be_kept(const Node& node) {
    if (!at::autocast::is_autocast_enabled(at::kCUDA) || !at::autocast::is_autocast_cache_enabled()) return false;
    const auto* const weight = cast_weight(node);
    return weight != nullptr && weight->variable.weak_use_count() > 1;  // as the table of kept casts does
  }

 private:
  std::unordered_set<const Node*> nodes_;
  std::unordered_set<const void*> weights_;
};

}  // namespace grape::python::bridge
