#include <set>
#include <string_view>
#include <unordered_map>

#include "python_hooks/discovery/outside_regions.h"
#include "python_hooks/discovery/outside_stacks.h"
#include "python_hooks/interpreter/code_origin.h"
#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/named_functions.h"
#include "python_hooks/interpreter/patterns.h"
#include "python_hooks/interpreter/texts.h"
#include "python_hooks/proof/functions.h"
#include "shim/lifecycle/config.h"

namespace grape::python::discovery {
namespace {

constexpr int kMostWrapped = 16;

// Triton's launcher: its caller is the one to name.
bool launches_for_others(std::string_view file) { return file.find("-packages/triton/") != std::string_view::npos; }

bool begins(std::string_view text, std::string_view start) { return text.substr(0, start.size()) == start; }

// The tail of a file of PyTorch's: what runs there changes parameters, or makes their gradients.
bool trains(std::string_view file) { return begins(file, "optim/") || file == "autograd/__init__.py"; }

class Names {
 public:
  explicit Names(std::vector<SampledCode>& codes) {
    for (SampledCode& code : codes) {
      std::string_view below;
      if (is_torch_file(code.file, below)) {
        code.training = trains(below);
      } else if (!is_standard_file(code.file) && !launches_for_others(code.file)) {
        by_hash_[code.hash].code = &code;
        files_.insert(code.file);
      }
    }
  }

  // In the modules that the code is from, and in the script, whose functions may be from anywhere (a notebook's cells).
  void look() {
    Object* modules = g_api.PyImport_GetModuleDict();
    if (by_hash_.empty() || modules == nullptr || !is_dict(modules)) return;
    each_pair(g_api.PyDict_Items(modules), [this](Object* key, Object* module) {
      const std::string name = text_or_empty<1024>(key);
      globals_ = module_dict(module);
      if (globals_ == nullptr || name.empty()) return;
      if (name != "__main__" && files_.count(text_or_empty<1024>(dict_item(globals_, "__file__"))) == 0) return;
      each_function(name.c_str(), module, [this](Object* function, const char* found) { note(function, found); });
    });
  }

 private:
  // What decorators wrapped is the function meant: their own code is that of many. It must be of this module: others
  // are named where they are from.
  void note(Object* function, const char* name) {
    if (is_special(name) || matches(config().exclude, name) || matches(config().regions, name)) return;
    if (matches(found_regions().c_str(), name)) return;
    Object* inner = innermost(function);
    if (inner == nullptr) return;
    const FunctionParts parts = function_parts(inner);
    SampledCode code;
    read_code(parts.code, code, false);
    const auto found = by_hash_.find(code.hash);
    if (found == by_hash_.end() || parts.globals != globals_ || proof::deferred(function) != nullptr) return;
    if (proof::deferred(inner) != nullptr) return;
    SampledCode& named = *found->second.code;
    Object*& known = found->second.inner;
    // Several functions have this code (a factory's): nobody knows which of them it was.
    named.candidate = known == nullptr || (known == inner && named.candidate);
    if (known == nullptr) {
      named.region = name;
      named.function = function;
    }
    known = inner;
  }

  // Null: it wraps something else, or too much.
  static Object* innermost(Object* function) {
    for (int i = 0; i < kMostWrapped && function != nullptr && is_function(function); ++i) {
      Object* attributes = function_parts(function).attributes;
      Object* wrapped = attributes != nullptr ? dict_item(attributes, "__wrapped__") : nullptr;
      if (wrapped == nullptr) return function;
      function = wrapped;
    }
    return nullptr;
  }

  struct Meant {
    SampledCode* code = nullptr;
    Object* inner = nullptr;  // the function that the name is of, without decorators
  };
  std::unordered_map<std::uint64_t, Meant> by_hash_;
  std::set<std::string> files_;
  Object* globals_ = nullptr;  // of the module that is looked through
};

}  // namespace

void name_codes(std::vector<SampledCode>& codes) {
  if (!check_objects()) return;
  const KeepException exception;
  Names(codes).look();
}

}  // namespace grape::python::discovery
