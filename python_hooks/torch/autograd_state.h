// Autograd's state of a tensor and of a thread. Signatures and guards use the facts; observed calls compare the marks
// before and after. A replay does not repeat changes of this state, so a call that makes any is not replayed. Read from
// AutogradMeta (torch/csrc/autograd/variable.h), whose layout is found and checked when torch is loaded
// (torch_autograd.cc). With the GIL; nothing here runs Python code of the program's.
#pragma once

#include <cstdint>

#include "compressor/refusal/refusal.h"
#include "python_hooks/interpreter/cpython.h"
#include "python_hooks/interpreter/strong.h"

namespace grape::python::torch {

constexpr int kHowViewedAt = 5;  // its lowest bit

// They decide how autograd treats a tensor. Tensors with equal facts meet the same rules and errors.
enum AutogradFact : std::uint32_t {
  kRequiresGrad = 1,
  kHasGradFn = 2,    // it is no leaf
  kRetainsGrad = 4,  // retain_grad() was called on it
  // A view whose base was written to since its grad_fn was made: who asks for it next makes another one.
  kStaleGradFn = 8,
  // A view that was made where gradients are off: it requires grad as its base does, and gets no gradient itself.
  // requires_grad_() changes just that.
  kRequiresGradByBase = 16,
  // Of a view, in three bits: where and by which operator it was made (autograd's CreationMeta). Views of it take that
  // over, and errors of in-place work depend on it.
  kOneOfSeveral = 2 << kHowViewedAt,
  kHowViewed = 7 << kHowViewedAt,
};
std::uint32_t autograd_facts(Object* plain_tensor) noexcept;
constexpr std::uint32_t kMadeByNode = kRequiresGrad | kHasGradFn;  // and there is nothing else
constexpr int kAutogradFactBits = 8;

// Does autograd know more of a tensor than how it was viewed?
inline bool concern_gradients(std::uint32_t facts) noexcept { return (facts & ~std::uint32_t{kHowViewed}) != 0; }

// All of autograd's state of a tensor, to be compared with a later mark of the same tensor. Leaves out one thing that
// shows nowhere: the node that adds up a leaf's gradients, which is made when it is first needed.
struct AutogradMark {
  std::uint64_t grad_fn = 0, sequence = 0;  // the node that made it, and that node's number: addresses are used again
  std::uint64_t grad = 0;                   // identity of its .grad; 0: none
  std::uint32_t grad_version = 0;
  std::uint32_t output_number = 0;
  std::uint32_t facts = 0;
  bool is_view = false;     // of another tensor, by autograd's notes
  std::uint64_t hooks = 0;  // on the tensor: how many, which, in which dictionaries
  std::uint64_t rest = 0;   // forward-mode gradients, hooks of C++
};
AutogradMark autograd_mark(Object* plain_tensor) noexcept;
// May anybody have a hook on it?
bool has_hooks(Object* plain_tensor) noexcept;

// The first difference, as a refusal whose part is the tensor's name; none: they are equal.
refusal::Form<1> autograd_difference(const AutogradMark& before, const AutogradMark& after) noexcept;

// The mark of a tensor, and of what it is a view of: work on a view moves what autograd notes of its base.
class AutogradNotes {
 public:
  AutogradNotes() = default;
  explicit AutogradNotes(Object* plain_tensor) noexcept;  // as it is now; asks Python of a view

  // The first change since construction, as above. `plain_tensor`: the same tensor; null: it is gone.
  refusal::Form<1> moved(Object* plain_tensor) const noexcept;
  // Is that it requires grad now all that was moved? It is a leaf, and no view.
  bool requires_grad_since(Object* plain_tensor) const noexcept;

 private:
  AutogradMark own_, of_base_;
  Strong base_;  // a weak reference
};

// Is `made_anew`, a view that as_strided() made, of the same kind as `view` to autograd? Errors of later in-place work
// depend on how a view was made. `by_node`: a node made `view`, and is to be given to the other one; then that may
// become one of several views that a node made.
bool same_kind_of_view(Object* view, Object* made_anew, bool by_node) noexcept;

// Is there a tensor that requires grad in what a call returned? Looks into tuples, lists, dictionaries and the
// attributes of other objects, a few levels deep, and runs no code. False: none was found.
bool leads_to_gradients(Object* result) noexcept;

// This thread's modes of autograd, as bits: gradients, inference, forward mode, threads, replay of views.
std::uint8_t autograd_modes() noexcept;
// Does somebody on this thread want to see what autograd saves (torch.autograd.graph.saved_tensors_hooks, a
// checkpoint that is not reentrant, save_on_cpu)?
bool saved_tensors_hooks_active() noexcept;
bool saved_tensors_hooks_allowed() noexcept;  // false inside of torch.autograd.graph.disable_saved_tensors_hooks

// How many nodes of autograd's graph this thread has made. The order in which gradients are added up depends on it if
// nodes of several threads meet. A replay makes none, but counts as many as the call made.
std::uint64_t autograd_nodes() noexcept;
void count_autograd_nodes(std::uint64_t made) noexcept;

// For torch_load.cc: finds the places, on a thread of its own, whose nodes are not counted on this one. False: this
// PyTorch keeps its notes in a way that is not known; leaves an exception set where Python raised one.
bool find_autograd_places(Object* torch) noexcept;

}  // namespace grape::python::torch
