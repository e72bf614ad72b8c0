// Sources of random numbers: CUDA's generators, and those of the host.
#include "python_hooks/torch/torch_api.h"
#include "python_hooks/torch/torch_symbols.h"

namespace grape::python::torch {
namespace {

// torch.cuda.default_generators[device], borrowed; null: CUDA is not in use.
Object* generator_of(std::int32_t device) noexcept {
  Object* generators = module_member("torch.cuda", "default_generators");
  if (generators == nullptr || !is_exactly(generators, g_api.PyTuple_Type) || device < 0 ||
      static_cast<std::size_t>(device) >= item_count(generators)) {
    return nullptr;
  }
  return tuple_data(generators)[device];
}

bool ask(Object* object, const char* method, std::uint64_t& value) noexcept {
  const Reference result(g_api.PyObject_CallMethod(object, method, nullptr));
  if (!result) return false;
  value = g_api.PyLong_AsUnsignedLongLong(result.get());
  if (g_api.PyErr_Occurred() == nullptr) return true;
  g_api.PyErr_Clear();
  return false;
}

}  // namespace

bool random_state(std::int32_t device, std::uint64_t& seed, std::uint64_t& offset) noexcept {
  const KeepException keep;
  Object* generator = generator_of(device);
  return generator != nullptr && ask(generator, "initial_seed", seed) && ask(generator, "get_offset", offset);
}

bool set_random_offset(std::int32_t device, std::uint64_t offset) noexcept {
  const KeepException keep;
  Object* generator = generator_of(device);
  if (generator == nullptr) return false;
  const Reference done(g_api.PyObject_CallMethod(generator, "set_offset", "K", offset));
  return static_cast<bool>(done);
}

Object* python_generator() noexcept { return module_member("random", "_inst"); }
Object* numpy_generator() noexcept { return module_member("numpy.random.mtrand", "_rand"); }

}  // namespace grape::python::torch
