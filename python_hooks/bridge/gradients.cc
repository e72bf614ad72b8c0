// Gradients as plain data, and where they go.
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>
#include <vector>

#include "python_hooks/bridge/nodes.h"

namespace grape::python::bridge {

namespace autograd = torch::autograd;
using autograd::Node;

namespace {

bool is_strided(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.has_storage() && !tensor.is_nested() &&
         !tensor.unsafeGetTensorImpl()->is_python_dispatch() && !tensor.is_conj() && !tensor.is_neg() &&
         !tensor.is_quantized() && !tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
}

// Of a tensor that is strided itself.
void describe_base(const at::Tensor& tensor, Gradient& out) {
  const auto* const view = autograd::impl::get_view_autograd_meta(tensor);
  if (view == nullptr || !view->has_bw_view()) return;
  const autograd::ViewInfo& made = view->get_backward_view();
  const at::Tensor& base = made.base_;
  out.base = base.unsafeGetTensorImpl();
  out.by_strides = !made.has_view_fn() && view->get_creation_meta() == autograd::CreationMeta::NO_GRAD_MODE &&
                   is_strided(base) && base.scalar_type() == tensor.scalar_type() && base.is_alias_of(tensor) &&
                   base.is_inference() == tensor.is_inference() && !base.requires_grad();
  if (!out.by_strides) return;
  out.whole_base = base.storage_offset() == 0;
  out.of_base = {base.dim(), base.sizes().data(), base.strides().data()};
}

}  // namespace

Gradient describe(const at::Tensor& tensor) {
  Gradient out;
  if (!tensor.defined()) return out;
  out.identity = tensor.unsafeGetTensorImpl();
  out.plain = is_strided(tensor);
  if (!out.plain) return out;
  out.plain = !tensor.requires_grad();
  out.version = tensor.is_inference() ? 0 : tensor.unsafeGetTensorImpl()->version_counter().current_version();
  out.unique = tensor.use_count() == 1 && tensor.storage().use_count() == 1;
  out.data = reinterpret_cast<std::uint64_t>(tensor.data_ptr());
  out.storage = reinterpret_cast<std::uint64_t>(tensor.storage().data());
  out.storage_bytes = tensor.storage().nbytes();
  out.dimensions = tensor.dim();
  out.sizes = tensor.sizes().data();
  out.strides = tensor.strides().data();
  out.offset = tensor.storage_offset();
  out.type = static_cast<std::int32_t>(tensor.scalar_type());
  out.device_type = static_cast<std::int32_t>(tensor.device().type());
  out.device_index = static_cast<std::uint8_t>(tensor.get_device());  // -1 is the host, whose number is of no interest
  out.item_bytes = static_cast<std::uint32_t>(tensor.itemsize());
  describe_base(tensor, out);
  return out;
}

bool keeps(const at::Tensor& tensor, const at::Tensor& other) {
  if (!tensor.defined() || !other.defined()) return false;
  if (tensor.is_same(other)) return true;
  const auto* const view = autograd::impl::get_view_autograd_meta(tensor);
  return view != nullptr && view->has_bw_view() && view->get_backward_view().base_.is_same(other);
}

void* hold_targets(const Tensor* tensors, std::size_t count, Target* targets) noexcept {
  try {
    auto held = std::make_unique<std::vector<std::shared_ptr<Node>>>();
    for (std::size_t i = 0; i < count; ++i) {
      auto edge = autograd::impl::gradient_edge(tensor_of(tensors[i]));
      targets[i] = {edge.function.get(), edge.input_nr};
      held->push_back(std::move(edge.function));
    }
    return held.release();
  } catch (const std::exception&) {
    return nullptr;
  }
}

void release_targets(void* held) noexcept { delete static_cast<std::vector<std::shared_ptr<Node>>*>(held); }

}  // namespace grape::python::bridge
