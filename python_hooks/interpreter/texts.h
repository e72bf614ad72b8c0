// Texts and names of Python objects as C++ strings. With the GIL; throw std::bad_alloc.
#pragma once

#include <string>
#include <string_view>

#include "python_hooks/interpreter/cpython.h"

namespace grape::python {

// The first bytes of a str.
template <std::size_t room = 128>
std::string text_value(const Object* text) {
  char copy[room];
  return std::string(copy, copy_text(text, copy, room));
}
// The same; "" of null, and of what is no str.
template <std::size_t room>
std::string text_or_empty(Object* text) {
  return text != nullptr && is_text(text) ? text_value<room>(text) : std::string();
}
// "torch.nn.modules.linear.Linear", "_thread.lock"
std::string full_type_name(Object* type);
// "a/b/c.py" -> "b/c.py"
std::string_view last_two_parts(std::string_view path) noexcept;
// Is it a str that does not begin with an underscore?
bool is_public_name(Object* name) noexcept;

}  // namespace grape::python
