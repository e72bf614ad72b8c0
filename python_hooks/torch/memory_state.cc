#include "python_hooks/torch/memory_state.h"

#include "python_hooks/interpreter/cpython.h"

namespace grape::python::torch {
namespace {

// What a function of torch._C says of the device; null: there is none, or it has raised.
Object* ask(const char* function, std::int32_t device) noexcept {
  Object* const dict = imported_dict("torch._C");
  Object* const callable = dict != nullptr ? dict_item(dict, function) : nullptr;
  const Reference number(callable != nullptr ? g_api.PyLong_FromLong(device) : nullptr);
  return number ? g_api.PyObject_CallFunctionObjArgs(callable, number.get(), nullptr) : nullptr;
}

bool read(Object* stats, const char* kind, const char* which, std::uint64_t& bytes) noexcept {
  Object* const pools = dict_item(stats, kind);
  Object* const all = pools != nullptr ? dict_item(pools, "all") : nullptr;
  Object* const value = all != nullptr ? dict_item(all, which) : nullptr;
  if (value == nullptr) return false;
  bytes = g_api.PyLong_AsUnsignedLongLong(value);
  if (g_api.PyErr_Occurred() == nullptr) return true;
  g_api.PyErr_Clear();
  return false;
}

}  // namespace

bool memory_state(std::int32_t device, MemoryState& out) noexcept {
  const Reference stats(ask("_cuda_memoryStats", device));
  const Reference fraction(ask("_cuda_getMemoryFraction", device));
  if (fraction) out.fraction = g_api.PyFloat_AsDouble(fraction.get());
  return stats && read(stats.get(), "allocated_bytes", "current", out.allocated) &&
         read(stats.get(), "allocated_bytes", "peak", out.peak) &&
         read(stats.get(), "reserved_bytes", "current", out.reserved);
}

}  // namespace grape::python::torch
