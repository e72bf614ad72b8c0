// The generators of random numbers of the host, compared.
#include <xxhash.h>

#include <cstring>

#include "python_hooks/host_draws/host_draws.h"
#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/torch/torch_api.h"

namespace grape::python::host_draws {
namespace {

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

// A hash over the states of Python's `random` and NumPy's global generator, as far as they are imported.
std::uint64_t hash_of_others() noexcept {
  Hash hash;
  Object *random = torch::python_generator(), *random_class = module_member("_random", "Random"),
         *numpy = torch::numpy_generator();
  if (random != nullptr && random_class != nullptr && is_type(random_class) &&
      g_api.PyType_IsSubtype(type_of(random), random_class) != 0) {
    // Its 624 numbers and the place among them, which getstate() makes as many objects of.
    std::size_t bytes = 0;
    const void* const numbers = type::own_part(random, random_class, bytes);
    hash.add(numbers, bytes);
  }
  if (numpy != nullptr) {
    // legacy=False: a dictionary.
    const Reference state(g_api.PyObject_CallMethod(numpy, "get_state", "O", g_api._Py_FalseStruct));
    if (state) hash.add_value(state.get(), 0);
  }
  return hash.get();
}

bool equal_bytes(Object* one, Object* other) noexcept {
  torch::TensorView a, b;
  if (!torch::is_plain_tensor(one) || !torch::is_plain_tensor(other) || !torch::view_tensor(one, a) ||
      !torch::view_tensor(other, b))
    return false;
  return a.device_type == 0 && b.device_type == 0 && a.storage_bytes == b.storage_bytes &&
         std::memcmp(reinterpret_cast<const void*>(a.storage), reinterpret_cast<const void*>(b.storage),
                     a.storage_bytes) == 0;
}

}  // namespace

Object* generator_state() noexcept {
  Object* generator = module_member("torch._C", "default_generator");
  return generator != nullptr ? g_api.PyObject_CallMethod(generator, "get_state", nullptr) : nullptr;
}

bool set_generator_state(Object* state) noexcept {
  Object* generator = module_member("torch._C", "default_generator");
  if (generator == nullptr || state == nullptr) return false;
  const Reference set(g_api.PyObject_CallMethod(generator, "set_state", "O", state));
  return static_cast<bool>(set);
}

void HostRandom::take() noexcept {
  const KeepException keep;
  others_ = hash_of_others();
  const Reference state(generator_state());
  torch_ = Strong(state.get());
}

bool HostRandom::moved_by(const HostDraws& draws) const noexcept {
  const KeepException keep;
  if (hash_of_others() != others_) return false;
  const Reference now(generator_state());
  if (!now || torch_.get() == nullptr) return !now && torch_.get() == nullptr;
  if (draws.empty()) return equal_bytes(torch_.get(), now.get());
  const Reference expected(draws.state_behind(torch_.get()));
  return expected && equal_bytes(expected.get(), now.get());
}

}  // namespace grape::python::host_draws
