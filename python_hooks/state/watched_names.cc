#include "python_hooks/state/watched_names.h"

#include <initializer_list>

#include "python_hooks/cpython_objects.h"
#include "python_hooks/state/code_origin.h"
#include "python_hooks/state/module_guard.h"

namespace grape::python::state {
namespace {

Object* member_of(const char* module, const char* name) noexcept {
  Object* found = imported_module(module);
  Object* dict = found != nullptr ? module_dict(found) : nullptr;
  return dict != nullptr ? dict_item(dict, name) : nullptr;
}

// Named by the user's code, but nothing that code reads of it can change, or it is guarded otherwise (loggers' levels,
// context variables' values, functions that ran): compiled expressions, operators, kernels, functions of libraries,
// also with caches.
bool stands_for_itself(Object* value) noexcept {
  if (is_function(value)) {
    const FunctionParts parts = function_parts(value);
    return origin_of(parts.code, parts.globals) != CodeOrigin::kUser;
  }
  if (type_of(value) == g_named_types.lru_cache) {
    Object* own = instance_dict(value);
    Object* function = own != nullptr ? dict_item(own, "__wrapped__") : nullptr;
    return function != nullptr && is_function(function) && stands_for_itself(function);
  }
  if (module_dict(value) != nullptr) return true;  // whose names are watched one by one
  const char* name = type::name(type_of(value));
  for (const char* known : {"re.Pattern", "numpy.ufunc", "torch._C.ScriptFunction", "torch.jit.ScriptFunction"}) {
    if (std::string(known) == name) return true;
  }
  const struct {
    const char *module, *type;
  } classes[] = {{"_contextvars", "ContextVar"},
                 {"logging", "Logger"},
                 {"logging", "LoggerAdapter"},
                 {"torch._ops", "OpOverload"},
                 {"torch._ops", "OpOverloadPacket"},
                 {"torch._ops", "_OpNamespace"},
                 {"triton.runtime.jit", "JITFunction"},
                 {"triton.runtime.autotuner", "Autotuner"},
                 {"triton.runtime.autotuner", "Heuristics"}};
  for (const auto& row : classes) {
    Object* type = member_of(row.module, row.type);
    if (type != nullptr && is_type(type) && g_api.PyType_IsSubtype(type_of(value), type) != 0) return true;
  }
  return false;
}

}  // namespace

WatchedNames::WatchedNames(Object* dict, bool users, std::string owner)
    : dict_(dict),
      users_(users),
      owner_(std::move(owner)),
      version_(dict_version(dict)),
      tells_(tells_of_changes(dict)) {
  g_api.Py_IncRef(dict);
}

WatchedNames::~WatchedNames() {
  for (const Named& named : names_) g_api.Py_DecRef(named.name);
  if (dict_ != nullptr) g_api.Py_DecRef(dict_);
}

WatchedNames::WatchedNames(WatchedNames&& other) noexcept
    : dict_(other.dict_),
      users_(other.users_),
      owner_(std::move(other.owner_)),
      version_(other.version_),
      tells_(other.tells_),
      names_(std::move(other.names_)) {
  other.dict_ = nullptr;
  other.names_.clear();
}

Object* WatchedNames::now(const Named& named) const noexcept {
  Object* value = g_api.PyDict_GetItemWithError(dict_, named.name);
  if (value == nullptr) g_api.PyErr_Clear();
  return value;
}

void WatchedNames::hold(Named& named, Object* value) const {
  named.by_identity = !users_ || (value != nullptr && stands_for_itself(value));
  named.value = Held(value, named.by_identity);
}

Object* WatchedNames::add(Object* name, bool set_by_code) {
  for (Named& named : names_) {
    if (named.name != name) continue;
    named.set_by_code = named.set_by_code || set_by_code;
    return now(named);
  }
  names_.push_back({name, Held(), set_by_code, false});
  g_api.Py_IncRef(name);
  Object* value = now(names_.back());
  hold(names_.back(), value);
  return value;
}

Object* WatchedNames::set_to_unknown() const noexcept {
  for (const Named& named : names_) {
    if (named.set_by_code && !named.value.held()) return named.name;
  }
  return nullptr;
}

bool WatchedNames::untouched() const noexcept { return tells_ && dict_version(dict_) == version_; }

WatchedNames::Change WatchedNames::compare_one(const Named& named, std::string& what) const {
  Object* value = now(named);
  // What is not held may have died, and its place may be another's by now.
  if (named.value.is(value)) return named.value.held() ? Change::kNone : Change::kMaybe;
  if (named.value.is_or_equals(value)) return Change::kNone;
  const bool there = value != nullptr, was_there = named.value.address() != nullptr;
  if (there && was_there && !named.by_identity && !named.set_by_code) return Change::kMaybe;
  what = name_of(named.name) + (!there ? " is gone" : !was_there ? " is new" : " was set");
  return Change::kOther;
}

WatchedNames::Change WatchedNames::compare(std::string& what) {
  Change change = Change::kNone;
  for (const Named& named : names_) {
    const Change one = compare_one(named, what);
    if (one == Change::kOther) return one;
    if (one == Change::kMaybe) change = one;
  }
  if (change == Change::kNone) version_ = dict_version(dict_);
  return change;
}

void WatchedNames::take_again() {
  for (Named& named : names_) hold(named, now(named));
  version_ = dict_version(dict_);
}

bool WatchedNames::walk(Walk& into) const {
  for (const Named& named : names_) {
    Object* value = now(named);
    if (value == nullptr || (named.by_identity && !named.value.plain())) continue;
    if (!into.add(value, name_of(named.name).c_str())) return false;
  }
  return true;
}

void WatchedNames::identify(std::vector<std::uint64_t>& out) const {
  out.push_back(reinterpret_cast<std::uint64_t>(dict_));
  for (const Named& named : names_) {
    out.push_back(reinterpret_cast<std::uint64_t>(named.name));
    out.push_back(named.set_by_code);
    const bool by_value = named.value.plain() || !named.by_identity;
    out.push_back(named.value.address() == nullptr ? 0 : by_value ? 1 : named.value.identity());
  }
}

std::string WatchedNames::name_of(Object* name) const {
  char text[256];
  return owner_ + "." + std::string(text, copy_text(name, text, sizeof(text)));
}

}  // namespace grape::python::state
