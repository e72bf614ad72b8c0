// Whose code is it? With the GIL.
#pragma once

#include <cstdint>
#include <string_view>

#include "python_hooks/interpreter/cpython.h"

namespace grape::python::state {

enum class CodeOrigin {
  kUser,       // everything else, and files that count as such
  kInstalled,  // below a site-packages or dist-packages folder, or where PyTorch lies
  kStandard,   // the standard library, frozen modules too
};

// What an installed package's globals hold counts by identity, since nobody sets them. Not so where the user names one
// of its functions as a region: from now on the file of that `name`'s module ("package.module:Qualified.name") counts
// as the user's, and those of the functions that `function` wraps. Not the whole package: its classes would be compared
// by what they hold, and in a large one there is always something that cannot be. PyTorch and the standard library stay
// what they are.
void count_as_users(Object* function, const char* name) noexcept;
// Another number after each file that was added.
std::uint32_t origins_epoch() noexcept;

// By the file of `code`; where that is no file ("<string>"), by the module that `globals` (may be null) are of.
CodeOrigin origin_of(Object* code, Object* globals) noexcept;
// A module's, a class's or a plain function's; anything else is the user's.
CodeOrigin origin_of_globals(Object* globals) noexcept;
// Is the file PyTorch's own? `below`: its path in PyTorch's folder.
bool is_torch_file(std::string_view file, std::string_view& below) noexcept;
bool is_standard_file(std::string_view file) noexcept;
// Of a module's dictionary: may anybody set its names, as settings and counts?
bool is_users_module(Object* dict) noexcept;

}  // namespace grape::python::state
