#include "python_hooks/discovery/outside_names.h"

#include <cstddef>
#include <set>
#include <string_view>
#include <unordered_map>

#include "python_hooks/discovery/outside_regions.h"
#include "python_hooks/interpreter/code_origin.h"
#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/named_functions.h"
#include "python_hooks/interpreter/patterns.h"
#include "python_hooks/proof/functions.h"
#include "shim/lifecycle/config.h"

namespace grape::python::replay {
namespace {

constexpr int kMostWrapped = 16;

std::string text_of(Object* text) {
  char copy[1024];
  return {copy, text != nullptr && is_text(text) ? copy_text(text, copy, sizeof copy) : 0};
}

// Triton's launcher: its caller is the one to name.
bool launches_for_others(std::string_view file) { return file.find("-packages/triton/") != std::string_view::npos; }

bool begins(std::string_view text, std::string_view start) { return text.substr(0, start.size()) == start; }

// The tail of a file of PyTorch's: what runs there changes parameters, or makes their gradients.
bool trains(std::string_view file) { return begins(file, "optim/") || file == "autograd/__init__.py"; }

class Names {
 public:
  explicit Names(const std::vector<SampledCode>& codes) : named_(codes.size()), functions_(codes.size()) {
    for (std::size_t i = 0; i < codes.size(); ++i) {
      std::string_view below;
      if (state::is_torch_file(codes[i].file, below)) {
        named_[i].called.training = trains(below);
      } else if (!state::is_standard_file(codes[i].file) && !launches_for_others(codes[i].file)) {
        by_hash_[codes[i].hash] = i;
        files_.insert(codes[i].file);
      }
    }
  }

  // In the modules that the code is from, and in the script, whose functions may be from anywhere (a notebook's cells).
  void look() {
    Object* modules = g_api.PyImport_GetModuleDict();
    if (by_hash_.empty() || modules == nullptr || !is_dict(modules)) return;
    const Reference items(g_api.PyDict_Items(modules));
    const std::ptrdiff_t count = items ? g_api.PyList_Size(items.get()) : 0;
    for (std::ptrdiff_t i = 0; i < count; ++i) {
      Object* pair = g_api.PyList_GetItem(items.get(), i);
      const std::string name = text_of(g_api.PyTuple_GetItem(pair, 0));
      Object* module = g_api.PyTuple_GetItem(pair, 1);
      globals_ = module_dict(module);
      if (globals_ == nullptr || name.empty()) continue;
      if (name != "__main__" && files_.count(text_of(dict_item(globals_, "__file__"))) == 0) continue;
      each_function(name.c_str(), module, [this](Object* function, const char* found) { note(function, found); });
    }
  }

  std::vector<NamedCode> take() { return std::move(named_); }

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
    if (found == by_hash_.end() || parts.globals != globals_ || deferred(function) != nullptr) return;
    if (deferred(inner) != nullptr) return;
    NamedCode& named = named_[found->second];
    Object*& known = functions_[found->second];
    // Several functions have this code (a factory's): nobody knows which of them it was.
    named.called.candidate = known == nullptr || (known == inner && named.called.candidate);
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

  std::vector<NamedCode> named_;
  std::vector<Object*> functions_;  // that the names are of
  std::unordered_map<std::uint64_t, std::size_t> by_hash_;
  std::set<std::string> files_;
  Object* globals_ = nullptr;  // of the module that is looked through
};

}  // namespace

std::vector<NamedCode> name_codes(const std::vector<SampledCode>& codes) {
  if (!check_objects()) return std::vector<NamedCode>(codes.size());
  const KeepException exception;
  Names names(codes);
  names.look();
  return names.take();
}

}  // namespace grape::python::replay
