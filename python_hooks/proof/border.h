// The border of an observed call under autograd: where its nodes lead, and what they keep. With the GIL.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "compressor/program/record.h"
#include "python_hooks/bridge/bridge.h"
#include "python_hooks/replay/call.h"
#include "python_hooks/replay/casts.h"

namespace grape::python::proof {

// Where gradients of a call's tensors go, taken before the call: it may drop them.
class GradientTargets {
 public:
  GradientTargets() = default;
  ~GradientTargets();
  GradientTargets(const GradientTargets&) = delete;
  GradientTargets& operator=(const GradientTargets&) = delete;

  // False: `refusal`.
  bool take(const replay::Region& region, const replay::Call& call, refusal::Refusal& refusal);
  // After the call: arguments that require grad since, by their places in the walk. False: no memory.
  bool add_arguments(const replay::Call& call, const std::vector<std::uint32_t>& places);
  // The same of the casts that it left.
  bool add_casts(const std::vector<replay::LeftCast>& casts);
  // Null: none of the call's tensors.
  const replay::TensorSource* find(const bridge::Target& target) const noexcept;
  // The same by a version counter, of tensors that require no grad, too. `itself`: is it the tensor of that identity?
  const replay::TensorSource* find_version(const void* counter, const void* identity, bool& itself) const noexcept;

 private:
  bool hold(const std::vector<bridge::Tensor>& tensors);

  std::vector<void*> held_;
  std::vector<bridge::Target> targets_;
  std::vector<replay::TensorSource> sources_;
  struct Version {
    const void *counter, *identity;
    replay::TensorSource source;
  };
  std::vector<Version> versions_;
};

// A border as it was observed, with what of it holds for this call only.
struct ObservedBorder {
  ObservedBorder() = default;
  ~ObservedBorder();
  ObservedBorder(const ObservedBorder&) = delete;
  ObservedBorder& operator=(const ObservedBorder&) = delete;

  bridge::Border* border = nullptr;              // owned
  std::vector<effects::GradientResult> results;  // as in the order of Border::slots
  std::unique_ptr<replay::Border> lasting;
  std::vector<program::Extent> saved;   // memory, as in lasting->saved
  std::vector<replay::LeftCast> casts;  // that the call left, whether there is a border or not
};

// What is known of an observed call's nodes, or of those of a checked call.
struct NodesOfCall {
  std::uint64_t first = 0;                           // autograd's number as the call began
  const bridge::InnerNodes* ran = nullptr;           // by passes inside of it; null: none, or they are not known
  const std::vector<std::uint8_t>* freed = nullptr;  // that a call like this one has (Border::freed)
};

// After the call, while its results are there. False: `refusal`.
bool find_border(GradientTargets& targets, const NodesOfCall& nodes_of_call, ObservedBorder& observed,
                 refusal::Refusal& refusal);

// Could the call be made again after a replay, with nobody seeing it? False: `refusal`.
bool can_be_made_again(Object* result, const effects::CallOutcome& outcome, const replay::Call& call,
                       ObservedBorder& observed, refusal::Refusal& refusal);

// What the host has of the tensors kept may follow the random state: then the two calls tell.
void note_varying_values(const replay::Border& last, replay::Border& now) noexcept;

// Addresses of blocks that the nodes keep and that are neither arguments' nor the module's.
bool is_saved(const ObservedBorder& observed, std::uint64_t address) noexcept;

// The nodes of a checked call, after it, and of its blocks, but for those that only nodes keep, the `addresses`. Are
// they those that a replay of it stands in for? False: `difference`; none: no memory.
bool is_border_of(const replay::Proven& proven, const replay::Call& call, GradientTargets& targets,
                  std::uint64_t first_node, std::vector<std::uint64_t> addresses, ObservedBorder& observed,
                  refusal::Refusal& difference);

// Once it is known which blocks the call left: what the backward pass reads.
void find_saved_memory(const replay::Call& call, const std::vector<std::uint64_t>& outputs,
                       const std::vector<replay::OutputRecipe>& recipes, ObservedBorder& observed);

}  // namespace grape::python::proof
