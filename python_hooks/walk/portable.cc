#include "python_hooks/walk/portable.h"

#include <xxhash.h>

#include <algorithm>
#include <new>
#include <string>
#include <unordered_map>

#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/torch/constant_names.h"
#include "python_hooks/walk/identity.h"
#include "python_hooks/walk/walker.h"

namespace grape::python::walk {
namespace {

std::string name_of(Object* object) {
  Object* type = type_of(object);
  if (is_type(object)) return full_type_name(object);
  if (is_function(object)) {
    char name[512];
    return qualified_name(object, name, sizeof name) ? name : "a function";
  }
  Object* dict = module_dict(object);
  Object* name = dict != nullptr ? dict_item(dict, "__name__") : nullptr;
  return name != nullptr && is_text(name) ? text_value(name) : full_type_name(type);
}

}  // namespace

std::uint64_t portable_name(Object* object) {
  if (type_of(object) == g_api.PyCode_Type) return digest_of_code(object).low;
  if (torch::torch_type(type_of(object)) == torch::TorchType::kConstant) return torch::portable_constant(object);
  const std::string name = name_of(object);
  return XXH3_64bits(name.data(), name.size());
}

cache::Digest digest_of(const std::vector<std::uint8_t>& bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

cache::Digest digest_of_all(std::vector<cache::Digest> digests) {
  std::sort(digests.begin(), digests.end());
  digests.erase(std::unique(digests.begin(), digests.end()), digests.end());
  const XXH128_hash_t hash = XXH3_128bits(digests.data(), digests.size() * sizeof(cache::Digest));
  return {hash.low64, hash.high64};
}

cache::Digest digest_of_code(Object* code) {
  static auto& known = *new std::unordered_map<std::uint64_t, cache::Digest>;  // by identity
  const std::uint64_t identity = identity_of(code);
  const auto found = known.find(identity);
  if (identity != 0 && found != known.end()) return found->second;
  Walk walk = Walk::portable(false);
  for (const char* part : {"co_name", "co_code", "co_consts", "co_names", "co_varnames", "co_freevars", "co_cellvars",
                           "co_flags", "co_argcount", "co_posonlyargcount", "co_kwonlyargcount"}) {
    const Reference value(g_api.PyObject_GetAttrString(code, part));
    if (value && walk.add(value.get(), part)) continue;
    g_api.PyErr_Clear();  // a part that cannot be read is like that of no other code
    walk.add_bytes(&identity, sizeof identity);
  }
  const Reference handlers(g_api.PyObject_GetAttrString(code, "co_exceptiontable"));  // from 3.11 on
  if (!handlers) g_api.PyErr_Clear();
  if (handlers) static_cast<void>(walk.add(handlers.get(), "co_exceptiontable"));
  const cache::Digest digest = digest_of(walk.bytes());
  if (identity != 0) known.emplace(identity, digest);
  return digest;
}

}  // namespace grape::python::walk
