// Parts of a bridge: compiled with PyTorch's headers, and nothing else of Grape's than bridge.h.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <memory>
#include <vector>

#include "python_hooks/bridge/bridge.h"

namespace grape::python::bridge {

inline const at::Tensor& tensor_of(Tensor handle) noexcept { return *static_cast<const at::Tensor*>(handle); }

using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

// A node of a replayed call is one of these, too.
class ReplayedNode {
 public:
  virtual ~ReplayedNode() = default;
};

// Borrows sizes and strides from the tensor.
Gradient describe(const at::Tensor& tensor);

// Is it the other one, or a view of that?
bool keeps(const at::Tensor& tensor, const at::Tensor& other);

// The pass that the calling thread works for. Null: none.
torch::autograd::GraphTask* current_pass() noexcept;
// Will the engine run it in that pass?
bool will_run(torch::autograd::Node* node);
// Does somebody see gradients that come to the node in that pass: by hooks before it runs, or because they were asked
// for? `hooks`: how many it has of ours.
bool is_seen(torch::autograd::Node& node, std::size_t hooks);
// Has somebody hooks on the node, or on the tensor whose gradient comes to it?
inline bool has_hooks(torch::autograd::Node& node) {
  return !node.pre_hooks().empty() || !node.post_hooks().empty() || !node.tensor_pre_hooks().empty() ||
         !node.retains_grad_hooks().empty() || node.tensor_post_acc_grad_hooks() != nullptr;
}
// In that pass: are these edges the only ones that lead to the node, and none of them has brought a gradient yet?
// `hooks`: how many it has of ours; others could see the gradient.
bool comes_only_by(torch::autograd::Node& node, std::uint32_t edges, std::size_t hooks);

Border* find_border(const CallNodes& call, Unfit* unfit, char* name, std::size_t room) noexcept;
void free_border(Border* border) noexcept;
bool watch(const Border* border, const Watcher* watcher, void* call) noexcept;
bool at_node(const void* node) noexcept;
void* hold_targets(const Tensor* tensors, std::size_t count, Target* targets) noexcept;
void release_targets(void* held) noexcept;

Blocks* make_blocks(const std::uint64_t* bytes, std::size_t count, std::size_t joined, std::int32_t device,
                    std::uint64_t* addresses) noexcept;
void free_blocks(Blocks* blocks) noexcept;
void keep_casts(Blocks* blocks, const Tensor* weights, std::size_t count, std::int32_t type, KeptCast* casts) noexcept;
Cut* cut(const Template* form, const CallTensors& tensors, const Owner* owner, void* call) noexcept;
// Weights of which the call left or found kept casts, by their identity; they may be gone.
const std::vector<const void*>& cast_weights_of(const Cut& cut) noexcept;
bool looks_for_anomalies() noexcept;
void* take_modes() noexcept;
void release_modes(void* modes) noexcept;
void* enter_modes(void* modes) noexcept;
void leave_modes(void* entered) noexcept;
bool run_again(Cut* cut, Border* border, char* error, std::size_t room) noexcept;
bool was_run_again(const Cut* cut) noexcept;
// The nodes of the call that was made again take the places of the links, in the pass that runs. With the GIL or
// without.
void splice(Cut& cut);
void fail_for_memory(Cut* cut, const char* text) noexcept;
bool make_contributions(Cut* cut, const Contribution* contributions, std::uint32_t part,
                        std::uint64_t* addresses) noexcept;
bool relate_contributions(Cut* cut, const Contribution* contributions) noexcept;
void give_back(Cut* cut, std::uint32_t piece) noexcept;
bool make_room(Cut* cut, std::uint32_t room, std::uint64_t bytes, std::int32_t device, std::uint64_t* address) noexcept;
void drop_room(Cut* cut, std::uint32_t room) noexcept;
bool is_inner_pass(const InnerPass& pass, InnerNodes* ran) noexcept;
InnerNodes* make_inner_nodes() noexcept;
void free_inner_nodes(InnerNodes* nodes) noexcept;
bool do_beside(Tensor on, void (*work)(void* of) noexcept, void* of) noexcept;
const void* who_waits() noexcept;

}  // namespace grape::python::bridge
