#include "python_hooks/torch/torch_api.h"

#include <algorithm>

#include "python_hooks/torch/autograd_state.h"
#include "python_hooks/torch/torch_symbols.h"

namespace grape::python::torch {
namespace {

constexpr std::int32_t kCpu = 0;
constexpr std::size_t kKnownTypes = 64;  // c10::ScalarType has fewer

bool g_cpu_is_device = false;

std::uint32_t item_bytes(std::int32_t type) noexcept {
  static std::uint8_t known[kKnownTypes] = {};
  const auto index = static_cast<std::size_t>(type);
  if (type < 0 || index >= kKnownTypes) return 0;
  if (known[index] == 0) known[index] = static_cast<std::uint8_t>(g_torch.aoti_torch_dtype_element_size(type));
  return known[index];
}

bool has_plain_keys(std::uint64_t keys) noexcept {
  return (keys & ~g_torch.allowed_keys) == 0 && (keys & g_torch.needed_keys) == g_torch.needed_keys;
}

std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) noexcept {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15U;
  return hash ^ (hash >> 29);
}

// What needs no call of PyTorch's. False: ask PyTorch.
bool read_tensor(const void* impl, TensorView& out) noexcept {
  const TorchSymbols::Places& at = g_torch.places;
  const auto* storage = field<const void*>(impl, kImplStorage);
  out.dimensions = field<std::int64_t>(impl, at.dimensions);
  if (!at.known || storage == nullptr || out.dimensions > kInsideDimensions || out.dimensions < 0) return false;
  out.sizes = reinterpret_cast<const std::int64_t*>(static_cast<const char*>(impl) + at.sizes);
  out.strides = reinterpret_cast<const std::int64_t*>(static_cast<const char*>(impl) + at.strides);
  out.offset = field<std::int64_t>(impl, at.offset);
  out.type = field<std::uint16_t>(impl, at.type);
  out.item_bytes = item_bytes(out.type);
  out.storage = field<std::uint64_t>(storage, kStorageData);
  out.storage_bytes = field<std::uint64_t>(storage, at.storage_bytes);
  const bool empty = std::find(out.sizes, out.sizes + out.dimensions, 0) != out.sizes + out.dimensions;
  out.data = empty ? 0 : out.storage + static_cast<std::uint64_t>(out.offset) * out.item_bytes;
  return true;
}

bool ask_for_tensor(const void* impl, void* handle, TensorView& out) noexcept {
  void* data = nullptr;
  std::int64_t *sizes = nullptr, *strides = nullptr, bytes = 0;
  const int failures =
      g_torch.aoti_torch_get_data_ptr(handle, &data) | g_torch.aoti_torch_get_storage_size(handle, &bytes) |
      g_torch.aoti_torch_get_dim(handle, &out.dimensions) | g_torch.aoti_torch_get_sizes(handle, &sizes) |
      g_torch.aoti_torch_get_strides(handle, &strides) | g_torch.aoti_torch_get_storage_offset(handle, &out.offset) |
      g_torch.aoti_torch_get_dtype(handle, &out.type);
  if (failures != 0) return false;
  out.data = reinterpret_cast<std::uint64_t>(data);
  out.storage = storage_address(impl);
  out.storage_bytes = static_cast<std::uint64_t>(bytes);
  out.sizes = sizes;
  out.strides = strides;
  out.item_bytes = item_bytes(out.type);
  return true;
}

bool is_lazy(const void* impl) noexcept {
  const auto* storage = field<const void*>(impl, kImplStorage);
  return storage != nullptr && field<const void*>(storage, g_torch.storage_end) == g_torch.lazy_end;
}

// All but the device.
bool look_at_tensor(Object* plain_tensor, TensorView& out) noexcept {
  const void* impl = impl_of(plain_tensor);
  if (impl == nullptr) return false;
  out.keys = field<std::uint64_t>(impl, g_torch.keys);
  if (!has_plain_keys(out.keys) || is_lazy(impl)) return false;
  out.object = plain_tensor;
  out.handle = handle_of(plain_tensor);
  return read_tensor(impl, out) || ask_for_tensor(impl, out.handle, out);
}

// Null: no memory.
Object* tuple_of(std::int64_t count, const std::int64_t* numbers) noexcept {
  Object* const tuple = g_api.PyTuple_New(count);
  for (std::int64_t i = 0; tuple != nullptr && i < count; ++i) {
    Object* const number = g_api.PyLong_FromLong(static_cast<long>(numbers[i]));
    if (number == nullptr || g_api.PyTuple_SetItem(tuple, i, number) != 0) {
      g_api.Py_DecRef(tuple);
      return nullptr;
    }
  }
  return tuple;
}

// The complex type of which these are the parts; -1: none.
std::int32_t complex_of(std::int32_t type) noexcept {
  constexpr std::int32_t kHalf = 5, kDouble = 7, kComplexHalf = 8;
  return type >= kHalf && type <= kDouble ? kComplexHalf + (type - kHalf) : -1;
}
constexpr std::int64_t kMostPairDimensions = 16;

// `function` may be null. Null: it raised, which is cleared.
Object* call_with(Object* function, Object* argument) noexcept {
  Object* const result =
      function != nullptr ? g_api.PyObject_CallFunctionObjArgs(function, argument, nullptr) : nullptr;
  if (result == nullptr) g_api.PyErr_Clear();
  return result;
}

// base.as_strided(); null: it raised.
Object* strided(Object* base, std::int64_t dimensions, const std::int64_t* sizes, const std::int64_t* strides,
                std::int64_t offset) noexcept {
  const Reference size(tuple_of(dimensions, sizes)), stride(tuple_of(dimensions, strides));
  const Reference start(g_api.PyLong_FromLong(static_cast<long>(offset)));
  Object* const view =
      size && stride && start
          ? g_api.PyObject_CallFunctionObjArgs(g_torch.as_strided, base, size.get(), stride.get(), start.get(), nullptr)
          : nullptr;
  if (view == nullptr) g_api.PyErr_Clear();
  return view;
}

}  // namespace

Object* wrapped(void* handle) noexcept {
  Object* object = g_torch.wrap(handle);
  g_torch.aoti_torch_delete_tensor_object(handle);
  if (object == nullptr) g_api.PyErr_Clear();
  return object;
}

bool is_plain_tensor(Object* object) noexcept {
  return is_exactly(object, g_torch.tensor) || is_exactly(object, g_torch.parameter);
}
bool is_parameter(Object* object) noexcept { return is_exactly(object, g_torch.parameter); }
bool is_tensor_or_subclass(Object* object) noexcept {
  return is_plain_tensor(object) || g_api.PyType_IsSubtype(type_of(object), g_torch.tensor) != 0;
}
bool requires_grad(Object* tensor) noexcept { return g_torch.requires_grad(impl_of(tensor)); }
bool gradients_enabled() noexcept { return !g_torch.loaded || g_torch.aoti_torch_grad_mode_is_enabled(); }

long owners_of_tensor(Object* plain_tensor) noexcept {
  const Reference owners(g_api.PyObject_CallMethod(plain_tensor, "_use_count", nullptr));
  return owners ? g_api.PyLong_AsLong(owners.get()) : -1;
}

bool held_by_native_code(Object* plain_tensor) noexcept {
  const long owners = owners_of_tensor(plain_tensor);
  return owners < 0 || owners > 1;
}

bool cloned_lazily(Object* plain_tensor) noexcept {
  const void* impl = impl_of(plain_tensor);
  return impl != nullptr && has_plain_keys(field<std::uint64_t>(impl, g_torch.keys)) && is_lazy(impl);
}

std::uint64_t span_of(const TensorView& view) noexcept {
  std::uint64_t elements = 1;
  for (std::int64_t i = 0; i < view.dimensions; ++i) {
    if (view.sizes[i] == 0) return 0;
    elements += static_cast<std::uint64_t>(view.sizes[i] - 1) * static_cast<std::uint64_t>(view.strides[i]);
  }
  return elements * view.item_bytes;
}

bool view_tensor(Object* plain_tensor, TensorView& out) noexcept {
  if (!look_at_tensor(plain_tensor, out) || out.item_bytes == 0) return false;
  return (g_torch.aoti_torch_get_device_type(out.handle, &out.device_type) |
          g_torch.aoti_torch_get_device_index(out.handle, &out.device_index)) == 0;
}

bool is_step_count(const TensorView& view) noexcept {
  constexpr std::int32_t kFloat = 6;  // c10::ScalarType
  return !is_on_device(view) && view.device_type == kCpu && view.type == kFloat && view.dimensions == 0 &&
         view.data != 0 &&
         static_cast<std::uint64_t>(view.offset) * sizeof(float) + sizeof(float) <= view.storage_bytes;
}

bool is_on_device(const TensorView& view) noexcept {
  return view.device_type == kCudaDevice || (g_cpu_is_device && view.device_type == kCpu);
}
void treat_cpu_as_device(bool treat) noexcept { g_cpu_is_device = treat; }

bool mark_tensor(Object* plain_tensor, TensorMark& out) noexcept {
  TensorView view;
  if (!look_at_tensor(plain_tensor, view)) return false;
  out.keys = view.keys;
  out.data = view.data;
  out.storage = view.storage;
  out.storage_bytes = view.storage_bytes;
  std::uint64_t shape = static_cast<std::uint64_t>(view.type) << 24 |
                        static_cast<std::uint64_t>(view.dimensions) << kAutogradFactBits |
                        static_cast<std::uint64_t>(autograd_facts(plain_tensor));
  for (std::int64_t i = 0; i < view.dimensions; ++i) {
    shape = mixed(mixed(shape, static_cast<std::uint64_t>(view.sizes[i])), static_cast<std::uint64_t>(view.strides[i]));
  }
  out.shape = shape;
  return true;
}

bool words_of_tensor(Object* plain_tensor, TensorWords& out) noexcept {
  TensorView view;
  const TorchSymbols::Places& at = g_torch.places;
  if (!look_at_tensor(plain_tensor, view) || !at.known || view.dimensions > kInsideDimensions) return false;
  const void* impl = impl_of(plain_tensor);
  const auto* storage = field<const void*>(impl, kImplStorage);
  if (storage == nullptr) return false;
  const auto add = [&out](const void* object, std::size_t offset) {
    out.at[out.count++] = &place<std::uint64_t>(object, offset - offset % sizeof(std::uint64_t));
  };
  out.count = 0;
  add(plain_tensor, g_torch.handle);
  for (const std::size_t offset : {kImplStorage, at.dimensions, at.offset, at.type, g_torch.keys}) add(impl, offset);
  for (std::size_t i = 0; i < static_cast<std::size_t>(view.dimensions); ++i) {
    add(impl, at.sizes + i * sizeof(std::int64_t));
    add(impl, at.strides + i * sizeof(std::int64_t));
  }
  add(storage, kStorageData);
  add(storage, at.storage_bytes);
  out.grad = field<const void*>(impl, kImplGrad);
  return true;
}

VersionCounter* version_counter(Object* plain_tensor) noexcept {
  auto* version = field<char*>(impl_of(plain_tensor), g_torch.version);
  return version != nullptr ? reinterpret_cast<VersionCounter*>(version + g_torch.version_count) : nullptr;
}

const void* version_identity(Object* plain_tensor) noexcept {
  return field<const void*>(impl_of(plain_tensor), g_torch.version);
}

void share_version(Object* tensor, Object* other) noexcept {
  const VersionCounter *own = version_counter(tensor), *others = version_counter(other);
  if (own == nullptr || others == nullptr || own == others) return;
  g_torch.set_version_counter(handle_of(tensor), static_cast<const char*>(impl_of(other)) + g_torch.version);
}

TensorPlaces places_of_tensor(const TensorView& view) noexcept {
  constexpr std::ptrdiff_t kPlacesInLine = 8;  // numbers in a line of a cache
  const auto* impl = static_cast<const char*>(impl_of(view.object));
  const auto* storage = field<const char*>(impl, kImplStorage);
  return {{view.sizes, view.strides, view.strides + kPlacesInLine, impl + kImplStorage, impl + g_torch.keys,
           storage != nullptr ? storage + kStorageData : nullptr,
           storage != nullptr ? storage + g_torch.places.storage_bytes : nullptr}};
}

TorchType torch_type(Object* type) noexcept {
  const TorchSymbols& torch = g_torch;
  if (!torch.loaded) return TorchType::kOther;
  if (type == torch.tensor || type == torch.parameter) return TorchType::kTensor;
  if (type == torch.type || type == torch.layout || type == torch.memory_format) return TorchType::kConstant;
  if (type == torch.device) return TorchType::kDevice;
  return type == torch.size ? TorchType::kSize : TorchType::kOther;
}
std::uint16_t device_value(Object* device) noexcept { return field<std::uint16_t>(device, 16); }

Object* module_class() noexcept { return g_torch.loaded ? g_torch.module : nullptr; }

Object* new_tensor(std::int64_t dimensions, const std::int64_t* sizes, const std::int64_t* strides, std::int32_t type,
                   std::int32_t device_type, std::int32_t device_index) noexcept {
  void* handle = nullptr;
  if (g_torch.aoti_torch_empty_strided(dimensions, sizes, strides, type, device_type, device_index, &handle) != 0) {
    return nullptr;
  }
  return wrapped(handle);
}

void* handle_of_tensor(Object* plain_tensor) noexcept { return handle_of(plain_tensor); }

const void* identity_of_tensor(Object* plain_tensor) noexcept { return impl_of(plain_tensor); }

Object* new_reference_to_base(Object* plain_tensor) noexcept {
  Object* const base = g_api.PyObject_GetAttrString(plain_tensor, "_base");
  if (base == nullptr) g_api.PyErr_Clear();
  if (base == nullptr || is_tensor_or_subclass(base)) return base;
  g_api.Py_DecRef(base);
  return nullptr;
}

const void* base_of_tensor(Object* plain_tensor) noexcept {
  const Reference base(new_reference_to_base(plain_tensor));
  return base ? impl_of(base.get()) : nullptr;
}

Object* new_view(Object* base, std::int64_t dimensions, const std::int64_t* sizes, const std::int64_t* strides,
                 std::int64_t offset, std::int32_t type) noexcept {
  TensorView view;
  if (!view_tensor(base, view)) return nullptr;
  if (type == view.type) return strided(base, dimensions, sizes, strides, offset);
  const bool to_parts = view.type == complex_of(type);
  if (!to_parts && type != complex_of(view.type)) return nullptr;
  const Reference whole(call_with(to_parts ? g_torch.view_as_real : g_torch.view_as_complex, base));
  TensorView made;
  if (whole && view_tensor(whole.get(), made) && made.dimensions == dimensions && made.offset == offset &&
      std::equal(sizes, sizes + dimensions, made.sizes) && std::equal(strides, strides + dimensions, made.strides)) {
    return new_reference(whole.get());
  }
  if (to_parts) return whole ? strided(whole.get(), dimensions, sizes, strides, offset) : nullptr;
  if (dimensions >= kMostPairDimensions) return nullptr;
  std::int64_t pair_sizes[kMostPairDimensions], pair_strides[kMostPairDimensions];
  for (std::int64_t i = 0; i < dimensions; ++i) {
    pair_sizes[i] = sizes[i];
    pair_strides[i] = strides[i] * 2;
  }
  pair_sizes[dimensions] = 2;
  pair_strides[dimensions] = 1;
  const Reference pairs(strided(base, dimensions + 1, pair_sizes, pair_strides, offset * 2));
  return pairs ? call_with(g_torch.view_as_complex, pairs.get()) : nullptr;
}

Object* new_alias(Object* base, std::int64_t dimensions, const std::int64_t* sizes, const std::int64_t* strides,
                  std::int64_t offset, std::int32_t type) noexcept {
  TensorView view;
  if (!view_tensor(base, view)) return nullptr;
  void* handle = nullptr;
  if (view.type == type) {
    const std::int64_t ahead = offset - view.offset;
    return g_torch.aoti_torch__reinterpret_tensor(view.handle, dimensions, sizes, strides, ahead, &handle) == 0
               ? wrapped(handle)
               : nullptr;
  }
  // Of another type, by bytes from the storage's start: wants a tensor that starts there.
  void* start = nullptr;
  const std::int64_t none = 0;
  if (g_torch.aoti_torch__reinterpret_tensor(view.handle, 1, &none, &none, -view.offset, &start) != 0) return nullptr;
  const std::int64_t bytes = offset * static_cast<std::int64_t>(item_bytes(type));
  const int failed = g_torch.aoti_torch__alloc_from_pool(start, bytes, type, dimensions, sizes, strides, &handle);
  g_torch.aoti_torch_delete_tensor_object(start);
  return failed == 0 ? wrapped(handle) : nullptr;
}

}  // namespace grape::python::torch
