#include "python_hooks/torch/constant_names.h"

#include <xxhash.h>

#include <string>
#include <unordered_map>

#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/texts.h"

namespace grape::python::torch {
namespace {

// The least of the names that `torch` has for it.
std::string name_in_torch(Object* constant) {
  Object* dict = imported_dict("torch");
  std::string least;
  std::ptrdiff_t position = 0;
  for (Object *name, *value; dict != nullptr && g_api.PyDict_Next(dict, &position, &name, &value) != 0;) {
    if (value != constant || !is_text(name)) continue;
    const std::string text = text_value(name);
    if (least.empty() || text < least) least = text;
  }
  return least;
}

}  // namespace

std::uint64_t portable_constant(Object* constant) {
  static auto& names = *new std::unordered_map<Object*, std::string>;  // they live as long as torch does
  std::string& known = names[constant];
  if (known.empty()) known = name_in_torch(constant);
  const std::string name = full_type_name(type_of(constant)) + ' ' + known;
  return XXH3_64bits(name.data(), name.size());
}

}  // namespace grape::python::torch
