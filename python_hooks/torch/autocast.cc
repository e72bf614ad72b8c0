#include "python_hooks/torch/autocast.h"

#include "python_hooks/torch/torch_api.h"
#include "python_hooks/torch/torch_symbols.h"
#include "shim/lifecycle/elf_lookup.h"

namespace grape::python::torch {
namespace {

constexpr std::int8_t kCuda = 1;    // c10::DeviceType
constexpr std::int32_t kFloat = 6;  // c10::ScalarType

// An exception of PyTorch's was caught here, by this library's own copy of the C++ runtime, which has counted it as
// caught in a place of its own. For PyTorch's copy it would be under way for ever (std::uncaught_exceptions()).
void count_as_caught() noexcept {
  struct Globals {  // __cxa_eh_globals, Itanium C++ ABI
    void* caught;
    unsigned int uncaught;
  };
  auto* get = reinterpret_cast<Globals* (*)()>(lifecycle::symbol_in("libstdc++.so.6", "__cxa_get_globals"));
  Globals* const globals = get != nullptr ? get() : nullptr;
  if (globals != nullptr && globals->uncaught > 0) --globals->uncaught;
}

}  // namespace

bool autocast_keeps_casts() noexcept { return g_torch.autocast_enabled(kCuda) && g_torch.autocast_cache(); }

bool kept_casts_are_known() noexcept {
  return g_torch.cached_cast != nullptr && g_torch.new_undefined_tensor != nullptr && g_torch.weak_count != 0;
}

std::int32_t autocast_type() noexcept { return g_torch.autocast_type(kCuda); }

bool is_castable_weight(Object* plain_tensor) noexcept {
  TensorView view;
  return requires_grad(plain_tensor) && view_tensor(plain_tensor, view) && view.type == kFloat &&
         view.device_type == kCudaDevice;
}

bool has_kept_cast(Object* plain_tensor) noexcept {
  const auto count = field<std::uint32_t>(impl_of(plain_tensor), g_torch.weak_count) & kWeakCountBits;
  return count > 1;
}

Object* keep_cast(Object* plain_tensor) noexcept {
  void* cast = nullptr;
  // An undefined tensor, which owns nothing, to be written over.
  if (g_torch.new_undefined_tensor(&cast) != 0) return nullptr;
  try {
    g_torch.cached_cast(cast, static_cast<std::int8_t>(autocast_type()), handle_of(plain_tensor), kCuda);
  } catch (...) {
    count_as_caught();
    g_torch.aoti_torch_delete_tensor_object(cast);
    return nullptr;
  }
  return wrapped(cast);
}

}  // namespace grape::python::torch
