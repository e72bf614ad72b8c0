// A backward pass inside of a call: is it the call's alone, and on which thread does it run?
#include <ATen/record_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <memory>
#include <unordered_set>
#include <utility>
#include <vector>

#include "python_hooks/bridge/border.h"

namespace grape::python::bridge {
namespace {

namespace autograd = torch::autograd;

// Leads nowhere, and does what it was given on the thread of its input's device, ahead of nodes that wait there.
class Errand final : public autograd::Node {
 public:
  Errand(void (*work)(void*) noexcept, void* of) : Node(UINT64_MAX), work_(work), of_(of) {}
  autograd::variable_list apply(autograd::variable_list&& /*gradients*/) override {
    work_(of_);
    done_ = true;
    return {};
  }
  bool done() const noexcept { return done_; }

 private:
  void (*const work_)(void*) noexcept;
  void* const of_;
  bool done_ = false;
};

// Does all that it gets lie on this device, or on the CPU?
bool works_on(const autograd::Node& node, at::Device device) {
  for (std::uint32_t i = 0; i < node.num_inputs(); ++i) {
    const at::Device its = node.input_metadata(i).device();
    if (its != device && !its.is_cpu()) return false;
  }
  return true;
}

bool is_own(const InnerPass& pass) {
  if (pass.root_count == 0 || current_pass() != nullptr) return false;
  const at::Device device = tensor_of(pass.roots[0]).device();
  if (!device.is_cuda()) return false;
  std::vector<autograd::Node*> ahead;
  std::unordered_set<autograd::Node*> met;
  for (std::size_t i = 0; i < pass.root_count; ++i) {
    autograd::Node* const node = tensor_of(pass.roots[i]).grad_fn().get();
    if (node == nullptr) return false;
    if (met.insert(node).second) ahead.push_back(node);
  }
  const std::uint64_t thread = at::RecordFunction::currentThreadId();
  while (!ahead.empty()) {
    autograd::Node* const node = ahead.back();
    ahead.pop_back();
    if (!works_on(*node, device)) return false;
    if (dynamic_cast<autograd::AccumulateGrad*>(node) != nullptr) continue;
    if (node->sequence_nr() < pass.first_sequence || node->thread_id() != thread) return false;
    for (const autograd::Edge& edge : node->next_edges()) {
      if (edge.is_valid() && met.insert(edge.function.get()).second) ahead.push_back(edge.function.get());
    }
  }
  return true;
}

}  // namespace

bool is_inner_pass(const InnerPass& pass, InnerNodes* ran) noexcept {
  try {
    if (!is_own(pass)) return false;
    note_inner_nodes(pass, *ran);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

bool do_beside(Tensor on, void (*work)(void* of) noexcept, void* of) noexcept {
  const auto errand = [&]() -> std::shared_ptr<Errand> {
    try {
      return std::make_shared<Errand>(work, of);
    } catch (const std::exception&) {
      return nullptr;
    }
  }();
  if (errand == nullptr) return false;
  try {
    const at::Tensor data = tensor_of(on).variable_data();
    errand->add_input_metadata(data);
    autograd::Engine::get_default_engine().execute({autograd::Edge(errand, 0)}, {data}, false, false, true, {});
  } catch (...) {
    return errand->done();
  }
  return errand->done();
}

const void* who_waits() noexcept {
  const autograd::GraphTask* const pass = current_pass();
  return pass != nullptr ? pass->cpu_ready_queue_.get() : nullptr;
}

}  // namespace grape::python::bridge
