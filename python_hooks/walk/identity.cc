#include "python_hooks/walk/identity.h"

#include <new>

#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/flat_map.h"

namespace grape::python::walk {
namespace {

struct Known {
  Object* reference;
  std::uint64_t number;
};

}  // namespace

std::uint64_t identity_of(Object* object) noexcept {
  static FlatMap<AddressKey, Known>* const known = new (std::nothrow) FlatMap<AddressKey, Known>;
  if (known == nullptr) return 0;
  static std::uint64_t last = 0;
  const AddressKey key{object};
  const Known* entry = known->find(key);
  if (entry != nullptr && referent(entry->reference) == object) return entry->number;
  Object* before = entry != nullptr ? entry->reference : nullptr;
  Object* reference = g_api.PyWeakref_NewRef(object, nullptr);
  if (reference == nullptr || !known->put(key, {reference, last + 1})) {
    g_api.PyErr_Clear();
    if (reference != nullptr) g_api.Py_DecRef(reference);
    return 0;
  }
  if (before != nullptr) g_api.Py_DecRef(before);
  return ++last;
}

}  // namespace grape::python::walk
