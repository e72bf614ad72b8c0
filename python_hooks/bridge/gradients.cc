// Gradients as plain data, and where they go.
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>
#include <vector>

#include "python_hooks/bridge/nodes.h"

namespace grape::python::bridge {

using torch::autograd::Node;

Gradient describe(const at::Tensor& tensor) noexcept {
  Gradient out;
  if (!tensor.defined()) return out;
  out.identity = tensor.unsafeGetTensorImpl();
  out.plain = tensor.layout() == at::kStrided && tensor.has_storage() && !tensor.is_nested() &&
              !tensor.unsafeGetTensorImpl()->is_python_dispatch() && !tensor.is_conj() && !tensor.is_neg() &&
              !tensor.is_quantized() && !tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
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
  return out;
}

void* hold_targets(const Tensor* tensors, std::size_t count, Target* targets) noexcept {
  try {
    auto held = std::make_unique<std::vector<std::shared_ptr<Node>>>();
    for (std::size_t i = 0; i < count; ++i) {
      auto edge = torch::autograd::impl::gradient_edge(tensor_of(tensors[i]));
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
