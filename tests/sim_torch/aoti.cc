// The stable C interface of libtorch_cpu (aoti_torch_*), and its C++ functions that Grape asks for by name. A handle is
// an at::Tensor*: here the address of a pointer to its TensorImpl.
#include <exception>

#include "tests/sim_torch/operators.h"

namespace at {
namespace impl {
enum class TorchFunctionDisabledState : std::int8_t { ENABLED };
struct PythonTorchFunctionTLS {
  SIM_EXPORT static std::int64_t stack_len();
  SIM_EXPORT static TorchFunctionDisabledState get_disabled_state();
};
std::int64_t PythonTorchFunctionTLS::stack_len() { return c10::thread_state().function_modes; }
TorchFunctionDisabledState PythonTorchFunctionTLS::get_disabled_state() { return TorchFunctionDisabledState::ENABLED; }
}  // namespace impl

SIM_EXPORT bool hasCallbacks();
bool hasCallbacks() { return c10::thread_state().callbacks; }

namespace autocast {
SIM_EXPORT bool is_autocast_enabled(c10::DeviceType device);
SIM_EXPORT c10::ScalarType get_autocast_dtype(c10::DeviceType device);
SIM_EXPORT bool is_autocast_cache_enabled();
SIM_EXPORT int increment_nesting();
SIM_EXPORT int decrement_nesting();
thread_local int t_nesting = 0;
int increment_nesting() { return ++t_nesting; }
int decrement_nesting() { return --t_nesting; }
bool is_autocast_enabled(c10::DeviceType device) {
  return c10::thread_state().autocast[static_cast<std::size_t>(device)];
}
c10::ScalarType get_autocast_dtype(c10::DeviceType) { return c10::ScalarType::kBFloat16; }
bool is_autocast_cache_enabled() { return true; }
}  // namespace autocast
}  // namespace at

namespace at {
struct Tensor {
  c10::TensorImpl* impl;
};
}  // namespace at

namespace at {
namespace sequence_number {
SIM_EXPORT std::uint64_t peek();
SIM_EXPORT std::uint64_t get_and_increment();
std::uint64_t peek() { return c10::node_count(); }
std::uint64_t get_and_increment() { return c10::node_count()++; }
}  // namespace sequence_number

struct SIM_EXPORT SavedTensorDefaultHooks {
  static const c10::SavedHooks& get_tls_state();
  static bool is_enabled();
};
const c10::SavedHooks& SavedTensorDefaultHooks::get_tls_state() { return c10::saved_hooks(); }
bool SavedTensorDefaultHooks::is_enabled() { return true; }
}  // namespace at

namespace torch::autograd::impl {
SIM_EXPORT void set_version_counter(const at::Tensor& tensor, const c10::VariableVersion& version);
void set_version_counter(const at::Tensor& tensor, const c10::VariableVersion& version) {
  tensor.impl->version = version;
}
}  // namespace torch::autograd::impl

namespace {

using simtorch::Sizes;
using simtorch::Tensor;
using simtorch::TensorImpl;

TensorImpl* of(void* handle) { return *static_cast<TensorImpl**>(handle); }
void* handle_to(Tensor tensor) { return new TensorImpl*(tensor.release()); }
Sizes copy(std::int64_t count, const std::int64_t* values) { return Sizes(values, values + count); }

template <typename Make>
int made(void** result, Make make) {
  try {
    *result = handle_to(make());
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}

// As the real one's: neither counted as an operator nor seen by modes.
Tensor alias(TensorImpl* tensor, std::int64_t dimensions, const std::int64_t* sizes, const std::int64_t* strides,
             std::int64_t offset) {
  return simtorch::as_strided(tensor, copy(dimensions, sizes), copy(dimensions, strides), offset);
}

}  // namespace

extern "C" {

SIM_EXPORT int aoti_torch_get_data_ptr(void* tensor, void** result) {
  *result = reinterpret_cast<void*>(of(tensor)->address());
  return 0;
}
SIM_EXPORT int aoti_torch_get_storage_size(void* tensor, std::int64_t* result) {
  *result = static_cast<std::int64_t>(of(tensor)->storage->bytes);
  return 0;
}
SIM_EXPORT int aoti_torch_get_dim(void* tensor, std::int64_t* result) {
  *result = static_cast<std::int64_t>(of(tensor)->sizes.size());
  return 0;
}
SIM_EXPORT int aoti_torch_get_sizes(void* tensor, std::int64_t** result) {
  *result = of(tensor)->sizes.data();
  return 0;
}
SIM_EXPORT int aoti_torch_get_strides(void* tensor, std::int64_t** result) {
  *result = of(tensor)->strides.data();
  return 0;
}
SIM_EXPORT int aoti_torch_get_storage_offset(void* tensor, std::int64_t* result) {
  *result = of(tensor)->offset;
  return 0;
}
SIM_EXPORT int aoti_torch_get_dtype(void* tensor, std::int32_t* result) {
  *result = static_cast<std::int32_t>(of(tensor)->type);
  return 0;
}
SIM_EXPORT int aoti_torch_get_device_type(void* tensor, std::int32_t* result) {
  *result = of(tensor)->device.type;
  return 0;
}
SIM_EXPORT int aoti_torch_get_device_index(void* tensor, std::int32_t* result) {
  *result = of(tensor)->device.index;
  return 0;
}
SIM_EXPORT std::size_t aoti_torch_dtype_element_size(std::int32_t type) {
  return c10::item_bytes(static_cast<c10::ScalarType>(type));
}
SIM_EXPORT int aoti_torch_empty_strided(std::int64_t dimensions, const std::int64_t* sizes, const std::int64_t* strides,
                                        std::int32_t type, std::int32_t device_type, std::int32_t device_index,
                                        void** result) {
  return made(result, [&] {
    const c10::Device device{static_cast<std::int8_t>(device_type), static_cast<std::int8_t>(device_index)};
    return simtorch::empty_strided(copy(dimensions, sizes), copy(dimensions, strides),
                                   static_cast<c10::ScalarType>(type), device);
  });
}
SIM_EXPORT int aoti_torch__reinterpret_tensor(void* tensor, std::int64_t dimensions, const std::int64_t* sizes,
                                              const std::int64_t* strides, std::int64_t offset_increment,
                                              void** result) {
  return made(result,
              [&] { return alias(of(tensor), dimensions, sizes, strides, of(tensor)->offset + offset_increment); });
}
SIM_EXPORT int aoti_torch__alloc_from_pool(void* tensor, std::int64_t offset_bytes, std::int32_t type,
                                           std::int64_t dimensions, const std::int64_t* sizes,
                                           const std::int64_t* strides, void** result) {
  return made(result, [&] {
    const auto item = static_cast<std::int64_t>(c10::item_bytes(static_cast<c10::ScalarType>(type)));
    if (of(tensor)->offset != 0 || offset_bytes % item != 0) throw std::runtime_error("not from a storage's start");
    Tensor view = alias(of(tensor), dimensions, sizes, strides, offset_bytes / item);
    view->type = static_cast<c10::ScalarType>(type);
    return view;
  });
}
SIM_EXPORT int aoti_torch_delete_tensor_object(void* tensor) {
  Tensor::drop(of(tensor));
  delete static_cast<TensorImpl**>(tensor);
  return 0;
}
SIM_EXPORT void aoti_torch_grad_mode_set_enabled(bool enabled) { c10::thread_state().grad = enabled; }
SIM_EXPORT bool aoti_torch_grad_mode_is_enabled() { return c10::thread_state().grad; }
}
