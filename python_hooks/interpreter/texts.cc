#include "python_hooks/interpreter/texts.h"

#include "python_hooks/interpreter/cpython_objects.h"

namespace grape::python {

std::string full_type_name(Object* type) {
  std::string name = type::name(type);
  if (!type::is_heap(type) || name.find('.') != std::string::npos) return name;
  Object* dict = type::dict(type);
  Object* module = dict != nullptr ? dict_item(dict, "__module__") : nullptr;
  return module != nullptr && is_text(module) ? text_value(module) + "." + name : name;
}

std::string_view last_two_parts(std::string_view path) noexcept {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos || slash == 0) return path;
  const std::size_t before = path.rfind('/', slash - 1);
  return before == std::string_view::npos ? path : path.substr(before + 1);
}

bool is_public_name(Object* name) noexcept {
  char first = '\0';
  return is_text(name) && copy_text(name, &first, 1) == 1 && first != '_';
}

}  // namespace grape::python
