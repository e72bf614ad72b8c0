// PyTorch's functions, classes and offsets, as torch_load.cc found them. Only the files behind torch_api.h include
// this.
#pragma once

#include <cstddef>
#include <cstdint>

#include "python_hooks/interpreter/cpython_objects.h"
#include "shim/lifecycle/elf_lookup.h"

namespace grape::python::torch {

// A function of libtorch_cpu with a stable C interface: it has its own name. All return 0 for success but element_size.
#define GRAPE_TORCH_C(X, result, name, arguments) X(result, name, "libtorch_cpu.so", #name, arguments)
// And C++ functions that are exported and do not throw: result, our name, library, mangled name, arguments.
#define GRAPE_TORCH_FUNCTIONS(X)                                                                                     \
  GRAPE_TORCH_C(X, int, aoti_torch_get_data_ptr, (void*, void**))                                                    \
  GRAPE_TORCH_C(X, int, aoti_torch_get_storage_size, (void*, std::int64_t*))                                         \
  GRAPE_TORCH_C(X, int, aoti_torch_get_dim, (void*, std::int64_t*))                                                  \
  GRAPE_TORCH_C(X, int, aoti_torch_get_sizes, (void*, std::int64_t**))                                               \
  GRAPE_TORCH_C(X, int, aoti_torch_get_strides, (void*, std::int64_t**))                                             \
  GRAPE_TORCH_C(X, int, aoti_torch_get_storage_offset, (void*, std::int64_t*))                                       \
  GRAPE_TORCH_C(X, int, aoti_torch_get_dtype, (void*, std::int32_t*))                                                \
  GRAPE_TORCH_C(X, int, aoti_torch_get_device_type, (void*, std::int32_t*))                                          \
  GRAPE_TORCH_C(X, int, aoti_torch_get_device_index, (void*, std::int32_t*))                                         \
  GRAPE_TORCH_C(X, std::size_t, aoti_torch_dtype_element_size, (std::int32_t))                                       \
  GRAPE_TORCH_C(                                                                                                     \
      X, int, aoti_torch_empty_strided,                                                                              \
      (std::int64_t, const std::int64_t*, const std::int64_t*, std::int32_t, std::int32_t, std::int32_t, void**))    \
  GRAPE_TORCH_C(X, int, aoti_torch__reinterpret_tensor,                                                              \
                (void*, std::int64_t, const std::int64_t*, const std::int64_t*, std::int64_t, void**))               \
  GRAPE_TORCH_C(X, int, aoti_torch__alloc_from_pool,                                                                 \
                (void*, std::int64_t, std::int32_t, std::int64_t, const std::int64_t*, const std::int64_t*, void**)) \
  GRAPE_TORCH_C(X, int, aoti_torch_delete_tensor_object, (void*))                                                    \
  GRAPE_TORCH_C(X, bool, aoti_torch_grad_mode_is_enabled, ())                                                        \
  X(bool, requires_grad, "libc10.so", "_ZNK3c1010TensorImpl13requires_gradEv", (const void*))                        \
  X(bool, inference_mode, "libc10.so", "_ZN3c1013InferenceMode10is_enabledEv", ())                                   \
  X(bool, any_dispatch_modes, "libc10.so", "_ZN3c104impl20TorchDispatchModeTLS13any_modes_setEb", (bool))            \
  X(std::int64_t, function_modes, "libtorch_cpu.so", "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv", ())          \
  X(int, functions_disabled, "libtorch_cpu.so", "_ZN2at4impl22PythonTorchFunctionTLS18get_disabled_stateEv", ())     \
  X(bool, has_callbacks, "libtorch_cpu.so", "_ZN2at12hasCallbacksEv", ())                                            \
  X(bool, autocast_enabled, "libtorch_cpu.so", "_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE",            \
    (std::int8_t))                                                                                                   \
  X(std::int8_t, autocast_type, "libtorch_cpu.so", "_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE",         \
    (std::int8_t))                                                                                                   \
  X(bool, autocast_cache, "libtorch_cpu.so", "_ZN2at8autocast25is_autocast_cache_enabledEv", ())                     \
  X(int, autocast_enter, "libtorch_cpu.so", "_ZN2at8autocast17increment_nestingEv", ())                              \
  X(int, autocast_leave, "libtorch_cpu.so", "_ZN2at8autocast17decrement_nestingEv", ())                              \
  X(void, set_version_counter, "libtorch_cpu.so",                                                                    \
    "_ZN5torch8autograd4impl19set_version_counterERKN2at6TensorERKN3c1015VariableVersionE", (void*, const void*))

struct TorchSymbols {
#define GRAPE_TORCH_FIELD(result, name, library, symbol, arguments) result(*name) arguments = nullptr;
  GRAPE_TORCH_FUNCTIONS(GRAPE_TORCH_FIELD)
#undef GRAPE_TORCH_FIELD
  Object* (*wrap)(void* tensor_base) = nullptr;  // THPVariable_Wrap: a new reference
  // For autocast.cc; null where this PyTorch has none. cached_cast(type, tensor, device's type) may throw.
  void* (*cached_cast)(void* result, std::int8_t, const void*, std::int8_t) = nullptr;
  int (*new_undefined_tensor)(void** handle) = nullptr;
  void* local_keys_library = nullptr;  // dlopen's handle of libc10, for its thread-local key sets

  Object *tensor = nullptr, *parameter = nullptr, *module = nullptr;  // classes, references held
  Object *device = nullptr, *size = nullptr;
  Object *type = nullptr, *layout = nullptr, *memory_format = nullptr;
  Object* as_strided = nullptr;  // torch.Tensor's method, a reference held
  Object *view_as_real = nullptr,
         *view_as_complex = nullptr;  // torch's functions, references held; null: there is none

  bool loaded = false;  // all of it is found and checked

  // Where things stand in a tensor, found and checked by load_torch_api().
  std::size_t handle = 0;          // Python object: its at::Tensor
  std::size_t keys = 0;            // TensorImpl: its dispatch keys
  std::size_t version = 0;         // TensorImpl: its VariableVersion, a pointer
  std::size_t version_count = 0;   // what that points to: the count
  std::size_t weak_count = 0;      // TensorImpl: how many refer to it weakly, and one more; 0: not known
  std::size_t storage_end = 16;    // StorageImpl: the function that frees its memory; nowhere: its address
  const void* lazy_end = this;     // that function of storages that were cloned lazily; of no other, also where none is
  std::uint64_t needed_keys = 0;   // of every dense tensor
  std::uint64_t allowed_keys = 0;  // others mean: sparse, quantised, conjugate, functorch, Python, ...

  // More of it, read directly where all of it was found; else PyTorch is asked, number by number.
  struct Places {
    bool known = false;
    std::size_t dimensions = 0, sizes = 0, strides = 0, offset = 0, type = 0;  // TensorImpl
    std::size_t storage_bytes = 0;                                             // StorageImpl
  } places;
};
extern TorchSymbols g_torch;

constexpr std::size_t kImplStorage = 16;  // TensorImpl: its StorageImpl
constexpr std::size_t kImplGrad = 24;     // TensorImpl: what autograd notes of it, where nothing else stands there
constexpr std::size_t kStorageData = 16;  // StorageImpl: its address
constexpr std::uint32_t kWeakCountBits = 0x7FFFFFFF;
constexpr std::int64_t kInsideDimensions = 4;  // so many sizes at least stand in TensorImpl itself

// Sets `function` to a library's symbol. False: there is none such, and `function` is null.
template <typename Function>
bool find_function(Function& function, const char* library, const char* symbol) noexcept {
  function = reinterpret_cast<Function>(lifecycle::symbol_in(library, symbol));
  return function != nullptr;
}

// The one offset of first, first + step, ... < end for which `right(offset)` holds; 0: none, or several.
template <typename Right>
std::size_t only_place(std::size_t first, std::size_t end, std::size_t step, Right right) noexcept {
  std::size_t found = 0;
  for (std::size_t offset = first; offset < end; offset += step) {
    if (!right(offset)) continue;
    if (found != 0) return 0;
    found = offset;
  }
  return found;
}

// Does `right(item, index)` hold for all items of a Python list?
template <typename Right>
bool for_all(Object* list, Right right) noexcept {
  for (std::size_t i = 0; i < item_count(list); ++i) {
    if (!right(list_data(list)[i], i)) return false;
  }
  return true;
}

inline void* handle_of(Object* tensor) noexcept { return reinterpret_cast<char*>(tensor) + g_torch.handle; }
inline const void* impl_of(const Object* tensor) noexcept { return field<const void*>(tensor, g_torch.handle); }
inline std::uint64_t storage_address(const void* impl) noexcept {
  const auto* storage = field<const void*>(impl, kImplStorage);
  return storage != nullptr ? field<std::uint64_t>(storage, kStorageData) : 0;
}

// The thread's dispatch keys, included and excluded, as the difference to what a new thread has. Null: not known.
const std::uint64_t* local_keys() noexcept;

// Runs Python code of Grape's, in which `torch` is named; its names stay in `globals`, a dictionary. False: it raised.
bool run_with_torch(const char* text, Object* torch, Object* globals) noexcept;

// Takes the handle's tensor into a Python object, and the handle away. Null: no memory.
Object* wrapped(void* handle) noexcept;

}  // namespace grape::python::torch
