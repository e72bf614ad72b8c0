// Sources of random numbers: CUDA's generators, and those of the host.
#include <xxhash.h>

#include <cstring>
#include <vector>

#include "python_hooks/torch/torch_api.h"
#include "python_hooks/torch/torch_symbols.h"

namespace grape::python::state {
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
  const Reference result(call_method(object, method));
  if (!result) return false;
  value = g_api.PyLong_AsUnsignedLongLong(result.get());
  if (g_api.PyErr_Occurred() == nullptr) return true;
  g_api.PyErr_Clear();
  return false;
}

class Hash {
 public:
  void add(const void* data, std::size_t size) noexcept { hash_ = XXH3_64bits_withSeed(data, size, hash_); }
  void add_value(Object* value, int depth) noexcept;
  std::uint64_t get() const noexcept { return hash_; }

 private:
  std::uint64_t hash_ = 0;
};

// The values that states of generators consist of; others count by their type only.
void Hash::add_value(Object* value, int depth) noexcept {
  const char* name = type::name(type_of(value));
  add(name, std::strlen(name));
  if (depth > 8) return;
  Text text;
  Buffer view{};
  if (is_exactly(value, g_api.PyUnicode_Type) && text_of(value, text)) {
    add(text.data, text.characters * text.width);
  } else if (is_exactly(value, g_api.PyLong_Type)) {
    int overflow = 0;
    const long long number = g_api.PyLong_AsLongLongAndOverflow(value, &overflow);
    const Reference digits(overflow != 0 ? g_api.PyNumber_ToBase(value, 16) : nullptr);
    add(&number, sizeof number);
    if (digits) add_value(digits.get(), depth + 1);
  } else if (is_exactly(value, g_api.PyFloat_Type)) {
    const std::uint64_t bits = float_bits(value);
    add(&bits, sizeof bits);
  } else if (is_exactly(value, g_api.PyTuple_Type)) {
    for (std::size_t i = 0; i < item_count(value); ++i) add_value(tuple_data(value)[i], depth + 1);
  } else if (is_exactly(value, g_api.PyDict_Type)) {
    std::ptrdiff_t position = 0;
    for (Object *key, *item; g_api.PyDict_Next(value, &position, &key, &item) != 0;) {
      add_value(key, depth + 1);
      add_value(item, depth + 1);
    }
  } else if (g_api.PyObject_GetBuffer(value, &view, 0) == 0) {  // an array of NumPy's
    add(view.data, static_cast<std::size_t>(view.bytes));
    g_api.PyBuffer_Release(&view);
  } else {
    g_api.PyErr_Clear();
  }
}

Object* python_generator() noexcept { return module_member("random", "_inst"); }
Object* numpy_generator() noexcept { return module_member("numpy.random.mtrand", "_rand"); }

void add_python(Hash& hash) noexcept {
  Object* random = python_generator();
  Object* random_class = module_member("_random", "Random");
  if (random == nullptr || random_class == nullptr) return;
  g_api.Py_IncRef(random);
  const Reference state(call_method(random_class, "getstate", random));  // not Python's own wrapper
  if (state) hash.add_value(state.get(), 0);
}

void add_numpy(Hash& hash) noexcept {
  Object* random = numpy_generator();
  if (random == nullptr) return;
  g_api.Py_IncRef(g_api._Py_FalseStruct);
  const Reference state(call_method(random, "get_state", g_api._Py_FalseStruct));  // legacy=False: a dictionary
  if (state) hash.add_value(state.get(), 0);
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
  Object* number = g_api.PyLong_FromUnsignedLongLong(offset);
  if (number == nullptr) {
    g_api.PyErr_Clear();
    return false;
  }
  const Reference done(call_method(generator, "set_offset", number));
  return static_cast<bool>(done);
}

bool is_hashed_generator(Object* object) noexcept {
  return object == python_generator() || object == numpy_generator();
}

std::uint64_t python_random_hash() noexcept {
  const KeepException keep;
  Hash hash;
  add_python(hash);
  add_numpy(hash);
  return hash.get();
}

}  // namespace grape::python::state
