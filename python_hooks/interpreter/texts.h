// Texts and names of Python objects as C++ strings. With the GIL; throw std::bad_alloc.
#pragma once

#include <string>
#include <string_view>

#include "python_hooks/interpreter/cpython.h"

namespace grape::python {

// The first 128 bytes of a str.
std::string text_value(Object* text);
// "torch.nn.modules.linear.Linear", "_thread.lock"
std::string full_type_name(Object* type);
// "a/b/c.py" -> "b/c.py"
std::string_view last_two_parts(std::string_view path) noexcept;
// Is it a str that does not begin with an underscore?
bool is_public_name(Object* name) noexcept;

}  // namespace grape::python
