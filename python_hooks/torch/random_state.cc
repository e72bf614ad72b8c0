// Sources of random numbers: CUDA's generators, and those of the host.
#include "python_hooks/torch/torch_api.h"
#include "python_hooks/torch/torch_symbols.h"

namespace grape::python::torch {
namespace {

// A generator and its methods, references held for good.
struct Generator {
  Object* object = nullptr;
  Object *seed = nullptr, *offset = nullptr, *set_offset = nullptr;
};

void replace(Object*& place, Object* by) noexcept {
  if (place != nullptr) g_api.Py_DecRef(place);
  place = by;
}

// False: it is no generator as PyTorch has them.
bool learn(Object* object, Generator& generator) noexcept {
  replace(generator.object, nullptr);
  replace(generator.seed, g_api.PyObject_GetAttrString(object, "initial_seed"));
  replace(generator.offset, g_api.PyObject_GetAttrString(object, "get_offset"));
  replace(generator.set_offset, g_api.PyObject_GetAttrString(object, "set_offset"));
  g_api.PyErr_Clear();
  if (generator.seed == nullptr || generator.offset == nullptr || generator.set_offset == nullptr) return false;
  generator.object = new_reference(object);
  return true;
}

// torch.cuda.default_generators; null: CUDA is not in use.
Object* default_generators() noexcept {
  static Object* dict = nullptr;
  static Object* const name = g_api.PyUnicode_InternFromString("default_generators");
  if (dict == nullptr) dict = new_reference(imported_dict("torch.cuda"));
  return dict != nullptr && name != nullptr ? g_api.PyDict_GetItemWithError(dict, name) : nullptr;
}

const Generator* generator_of(std::int32_t device) noexcept {
  constexpr std::size_t kMostDevices = 128;
  static Generator known[kMostDevices];
  Object* const generators = default_generators();
  const auto index = static_cast<std::size_t>(device);
  if (generators == nullptr || !is_exactly(generators, g_api.PyTuple_Type) || device < 0 || index >= kMostDevices ||
      index >= item_count(generators)) {
    return nullptr;
  }
  Object* const object = tuple_data(generators)[index];
  return known[index].object == object || learn(object, known[index]) ? &known[index] : nullptr;
}

bool ask(Object* method, std::uint64_t& value) noexcept {
  const Reference result(g_api.PyObject_CallObject(method, nullptr));
  if (!result) return false;
  value = g_api.PyLong_AsUnsignedLongLong(result.get());
  if (g_api.PyErr_Occurred() == nullptr) return true;
  g_api.PyErr_Clear();
  return false;
}

}  // namespace

bool random_state(std::int32_t device, std::uint64_t& seed, std::uint64_t& offset) noexcept {
  const KeepException keep;
  const Generator* const generator = generator_of(device);
  return generator != nullptr && ask(generator->seed, seed) && ask(generator->offset, offset);
}

bool set_random_offset(std::int32_t device, std::uint64_t offset) noexcept {
  const KeepException keep;
  const Generator* const generator = generator_of(device);
  if (generator == nullptr) return false;
  const Reference number(g_api.PyLong_FromUnsignedLongLong(offset));
  const Reference done(number ? g_api.PyObject_CallFunctionObjArgs(generator->set_offset, number.get(), nullptr)
                              : nullptr);
  return static_cast<bool>(done);
}

Object* python_generator() noexcept { return module_member("random", "_inst"); }
Object* numpy_generator() noexcept { return module_member("numpy.random.mtrand", "_rand"); }

}  // namespace grape::python::torch
