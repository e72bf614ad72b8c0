// Casts of weights that autocast keeps, where a replay has made them.
#include <ATen/autocast_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

#include <memory>
#include <utility>

#include "python_hooks/bridge/cut.h"

namespace grape::python::bridge {
namespace {

// No program uses this key. It is included while cached_cast() is called here, and nowhere else.
constexpr c10::DispatchKey kAnswers = c10::DispatchKey::TESTING_ONLY_GenericMode;

thread_local at::Tensor t_answer;

at::Tensor answer(const at::Tensor&, at::ScalarType, bool, bool, std::optional<at::MemoryFormat>) {
  return std::move(t_answer);
}

// For the only operator that cached_cast() calls, where it finds no cast.
void register_answer() {
  static const auto library = [] {
    auto made = std::make_unique<torch::Library>(torch::Library::IMPL, "aten", kAnswers, __FILE__, __LINE__);
    made->impl("to.dtype", answer);
    return made.release();  // as long as the process
  }();
  static_cast<void>(library);
}

at::Tensor cast_of(const at::Tensor& weight, const c10::Storage& memory, at::ScalarType type) {
  auto cast = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(memory), c10::DispatchKeySet(c10::DispatchKey::CUDA), c10::scalarTypeToTypeMeta(type));
  cast.unsafeGetTensorImpl()->set_sizes_and_strides(weight.sizes(), weight.strides());
  const auto node = std::make_shared<CastNode>();
  node->self_options = weight.options();
  node->add_next_edge(autograd::impl::gradient_edge(weight));
  autograd::impl::set_gradient_edge(cast, {node, node->add_input_metadata(cast)});
  return cast;
}

// Undefined: none such can be made.
at::Tensor keep_cast(const at::Tensor& weight, const c10::Storage& memory, at::ScalarType type) {
  const std::size_t bytes = static_cast<std::size_t>(weight.numel()) * c10::elementSize(type);
  if (!weight.is_non_overlapping_and_dense() || memory.nbytes() != bytes) return {};
  t_answer = cast_of(weight, memory, type);
  const c10::impl::IncludeDispatchKeyGuard answers(kAnswers);
  return at::autocast::cached_cast(type, weight, at::kCUDA);
}

}  // namespace

void keep_casts(Blocks* blocks, const Tensor* weights, std::size_t count, std::int32_t type_number,
                KeptCast* casts) noexcept {
  const auto type = static_cast<at::ScalarType>(type_number);
  try {
    register_answer();
    blocks->casts.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      blocks->casts[i] = keep_cast(tensor_of(weights[i]), blocks->storages[i], type);
      t_answer = at::Tensor();
      blocks->storages[i] = c10::Storage();  // memory that is not kept may be another cast's
    }
    for (std::size_t i = 0; i < count; ++i) {
      at::Tensor& cast = blocks->casts[i];
      if (!cast.defined()) cast = at::autocast::cached_cast(type, tensor_of(weights[i]), at::kCUDA);
      casts[i] = {&cast, reinterpret_cast<std::uint64_t>(cast.storage().data()),
                  cast.is_inference() ? 0 : autograd::impl::version_counter(cast).current_version()};
    }
  } catch (const std::exception&) {
    t_answer = at::Tensor();
  }
}

variable_list CastNode::apply(variable_list&& gradients) {
  const std::shared_ptr<Cut> call = cut.lock();
  const int pass = autograd::get_current_graph_task_id();
  if (call == nullptr || call->casts_of != pass) return ToCopyBackward0::apply(std::move(gradients));
  TORCH_CHECK(call->pass == pass, "grape: a backward pass of a replayed call ran inside of another one");
  return {std::move(call->contributions[call->form.edge_count + index])};
}

void Cut::take_casts() {
  std::vector<std::uint32_t> edges(form.cast_count, 0);
  for (std::uint32_t edge = 0; edge < form.edge_count; ++edge) {
    if (form.edge_casts[edge] != Template::kNoCast && runs[edge] != 0) ++edges[form.edge_casts[edge]];
  }
  std::vector<std::shared_ptr<CastNode>> nodes;
  for (std::uint32_t i = 0; i < form.cast_count; ++i) {
    nodes.push_back(casts[i].lock());
    const bool runs_here = nodes[i] != nullptr && will_run(nodes[i].get());
    if (nodes[i] == nullptr ? edges[i] != 0 : runs_here && !comes_only_by(*nodes[i], edges[i], 0)) return;
    if (!runs_here) nodes[i].reset();
  }
  if (form.cast_count != 0) casts_of = pass;
  runs_without_casts = runs;
  for (std::uint32_t edge = 0; edge < form.edge_count; ++edge) {
    if (form.edge_casts[edge] != Template::kNoCast) runs[edge] = 0;
  }
  for (std::uint32_t i = 0; i < form.cast_count; ++i) {
    const bool asked = nodes[i] != nullptr && nodes[i]->task_should_compute_output(0);
    runs[form.edge_count + i] = asked ? 1 : 0;
  }
}

void Cut::leave_casts() {
  if (casts_of != pass) return;
  casts_of = kNoPass;
  runs = std::move(runs_without_casts);
}

}  // namespace grape::python::bridge
