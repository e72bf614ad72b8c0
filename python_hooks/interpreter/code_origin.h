// Whether code is the user's, an installed package's, or the standard library's. With the GIL.
#pragma once

#include <cstdint>
#include <string_view>

#include "python_hooks/interpreter/cpython.h"

namespace grape::python {

enum class CodeOrigin {
  kUser,       // everything else, and files that count as such
  kInstalled,  // below a site-packages or dist-packages folder, or where PyTorch lies
  kStandard,   // the standard library, frozen modules too
};

// Guards compare the globals of installed packages by identity, since nobody sets them. If the user names a function of
// a package as a region, the file of that `name`'s module ("package.module:Qualified.name") counts as the user's from
// now on, and so do the files of the functions that `function` wraps. The rest of the package does not: its classes
// would be compared by their contents, and some contents of a large package cannot be compared. PyTorch and the
// standard library keep their origin.
void count_as_users(Object* function, const char* name) noexcept;
// Changes with each file that is added.
std::uint32_t origins_epoch() noexcept;

// By the file of `code`. For code without a file ("<string>"): by the module of `globals`, which may be null.
CodeOrigin origin_of(Object* code, Object* globals) noexcept;
// By the file of a module's dictionary; of anything else the user's.
CodeOrigin origin_of_globals(Object* globals) noexcept;
// Is the file PyTorch's own? `below`: its path in PyTorch's folder.
bool is_torch_file(std::string_view file, std::string_view& below) noexcept;
bool is_torch_code(Object* code) noexcept;
bool is_standard_file(std::string_view file) noexcept;
// May anybody set the names in this module's dictionary, as settings and counts?
bool is_users_module(Object* dict) noexcept;

}  // namespace grape::python
