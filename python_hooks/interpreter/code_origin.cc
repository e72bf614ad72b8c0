#include "python_hooks/interpreter/code_origin.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "python_hooks/interpreter/cpython_objects.h"
#include "shim/lifecycle/lifecycle.h"

namespace grape::python {
namespace {

constexpr std::size_t kMostPath = 1024;

std::string_view copy_path(Object* text, char (&out)[kMostPath]) {
  return {out, text != nullptr && is_text(text) ? copy_text(text, out, sizeof(out)) : 0};
}

// Folders that a module's file lies in, with a slash at the end. Empty: not imported yet.
struct Folders {
  char standard[kMostPath] = "", torch[kMostPath] = "";
};

void find_folder(char (&folder)[kMostPath], const char* module) {
  if (folder[0] != '\0') return;
  const std::size_t behind = copy_path(module_member(module, "__file__"), folder).rfind('/') + 1;
  folder[behind < kMostPath ? behind : 0] = '\0';
}

const Folders& folders() {
  static Folders found;
  find_folder(found.standard, "os");
  find_folder(found.torch, "torch");
  return found;
}

bool begins(std::string_view text, std::string_view start) {
  return !start.empty() && text.substr(0, start.size()) == start;
}

// Files of installed packages that count as the user's.
std::vector<std::string>& users_files() {
  static auto* found = new std::vector<std::string>;
  return *found;
}

bool is_in_package(std::string_view path) {
  return path.rfind("/site-packages/") != std::string_view::npos ||
         path.rfind("/dist-packages/") != std::string_view::npos;
}

CodeOrigin origin_of_path(std::string_view path) {
  if (begins(path, "<frozen ")) return CodeOrigin::kStandard;
  if (begins(path, folders().torch)) return CodeOrigin::kInstalled;
  if (std::find(users_files().begin(), users_files().end(), path) != users_files().end()) return CodeOrigin::kUser;
  if (is_in_package(path)) return CodeOrigin::kInstalled;
  return begins(path, folders().standard) ? CodeOrigin::kStandard : CodeOrigin::kUser;
}

void add_users_file(std::string_view file) {
  if (begins(file, folders().torch) || !is_in_package(file) || origin_of_path(file) == CodeOrigin::kUser) return;
  users_files().emplace_back(file);
}

}  // namespace

void count_as_users(Object* function, const char* name) noexcept {
  constexpr int kMostWrapped = 16;
  const KeepException exception;
  try {
    char path[kMostPath];
    const std::string module(name, std::strcspn(name, ":"));
    add_users_file(copy_path(module_member(module.c_str(), "__file__"), path));
    for (int i = 0; i < kMostWrapped && function != nullptr && is_function(function); ++i) {
      add_users_file(copy_path(field<Object*>(function_parts(function).code, g_layout.code_file), path));
      Object* attributes = function_parts(function).attributes;
      function = attributes != nullptr ? dict_item(attributes, "__wrapped__") : nullptr;
    }
  } catch (const std::bad_alloc&) {
    lifecycle::give_up("out of memory");  // rather than trust what may change
  }
}

std::uint32_t origins_epoch() noexcept { return static_cast<std::uint32_t>(users_files().size()); }

CodeOrigin origin_of(Object* code, Object* globals) noexcept {
  char path[kMostPath];
  const std::string_view file = copy_path(field<Object*>(code, g_layout.code_file), path);
  if (globals != nullptr && begins(file, "<") && !begins(file, "<frozen ")) return origin_of_globals(globals);
  return origin_of_path(file);
}

bool is_torch_code(Object* code) noexcept {
  char path[kMostPath];
  std::string_view below;
  return is_torch_file(copy_path(field<Object*>(code, g_layout.code_file), path), below);
}

bool is_torch_file(std::string_view file, std::string_view& below) noexcept {
  const std::string_view folder = folders().torch;
  if (!begins(file, folder)) return false;
  below = file.substr(folder.size());
  return true;
}

bool is_standard_file(std::string_view file) noexcept { return origin_of_path(file) == CodeOrigin::kStandard; }

bool is_users_module(Object* dict) noexcept {
  if (origin_of_globals(dict) != CodeOrigin::kUser) return false;
  // One that an extension made (torch._C._nn) has neither file nor specification: it is its package's.
  Object* spec = dict_item(dict, "__spec__");
  if (dict_item(dict, "__file__") != nullptr || (spec != nullptr && spec != g_api._Py_NoneStruct)) return true;
  char name[kMostPath] = "";
  copy_path(dict_item(dict, "__name__"), name);
  char* dot = std::strchr(name, '.');
  if (dot == nullptr) return true;
  *dot = '\0';
  Object* globals = imported_dict(name);
  return globals == nullptr || origin_of_globals(globals) == CodeOrigin::kUser;
}

CodeOrigin origin_of_globals(Object* globals) noexcept {
  char path[kMostPath];
  Object* file = dict_item(globals, "__file__");
  if (file != nullptr) return origin_of_path(copy_path(file, path));
  // Builtin and frozen modules have none.
  Object* spec = dict_item(globals, "__spec__");
  if (spec == nullptr || spec == g_api._Py_NoneStruct) return CodeOrigin::kUser;
  Object* attributes = instance_dict(spec);
  const std::string_view text =
      attributes != nullptr ? copy_path(dict_item(attributes, "origin"), path) : std::string_view();
  return text == "built-in" || text == "frozen" ? CodeOrigin::kStandard : CodeOrigin::kUser;
}

}  // namespace grape::python
