#include "python_hooks/guards/named_values.h"

#include <cstring>
#include <initializer_list>
#include <new>
#include <string_view>

#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/dict_versions.h"
#include "python_hooks/interpreter/texts.h"
#include "python_hooks/torch/torch_api.h"
#include "python_hooks/walk/stand_ins.h"
#include "python_hooks/walk/type_info.h"

namespace grape::python::guards {
namespace {

// Of numpy.frompyfunc(), which names it so.
bool calls_an_object(Object* ufunc) noexcept {
  constexpr std::string_view kEnd = " (vectorized)";
  const Reference name(g_api.PyObject_GetAttrString(ufunc, "__name__"));
  char text[256];
  if (!name) g_api.PyErr_Clear();
  if (!name || !is_text(name.get())) return true;
  const std::string_view whole(text, copy_text(name.get(), text, sizeof(text)));
  return whole.size() == sizeof(text) ||
         (whole.size() >= kEnd.size() && whole.substr(whole.size() - kEnd.size()) == kEnd);
}

// Named by the user's code, but nothing that code reads of it can change, or it is guarded otherwise (loggers' levels,
// context variables' values, functions that ran): compiled expressions, operators, kernels, functions of libraries,
// also with caches.
bool stands_for_itself(Object* value) noexcept {
  if (is_function(value)) return walk::is_library_function(value);
  if (type_of(value) == g_named_types.lru_cache) {
    Object* own = instance_dict(value);
    Object* function = own != nullptr ? dict_item(own, "__wrapped__") : nullptr;
    return function != nullptr && is_function(function) && stands_for_itself(function);
  }
  if (module_dict(value) != nullptr) return true;  // whose names are watched one by one
  const char* name = type::name(type_of(value));
  for (const char* known : {"re.Pattern", "torch._C.ScriptFunction", "torch.jit.ScriptFunction"}) {
    if (std::strcmp(known, name) == 0) return true;
  }
  if (std::strcmp(name, "numpy.ufunc") == 0) return !calls_an_object(value);
  const struct {
    const char *module, *type;
  } classes[] = {{"_contextvars", "ContextVar"},
                 {"logging", "Logger"},
                 {"torch._ops", "OpOverload"},
                 {"torch._ops", "OpOverloadPacket"},
                 {"torch._ops", "_OpNamespace"},
                 {"triton.runtime.jit", "JITFunction"},
                 {"triton.runtime.autotuner", "Autotuner"},
                 {"triton.runtime.autotuner", "Heuristics"}};
  for (const auto& row : classes) {
    Object* type = module_member(row.module, row.type);
    if (type == nullptr || !is_type(type) || g_api.PyType_IsSubtype(type_of(value), type) == 0) continue;
    return std::strcmp(row.type, "Logger") != 0 || walk::is_library_class(type_of(value));
  }
  return false;
}

bool has_buffer(Object* type) noexcept {
  const void* const protocol = field<const void*>(type, 160);
  return protocol != nullptr && field<const void*>(protocol, 0) != nullptr;
}

bool is_empty_container(Object* object) noexcept {
  Object* type = type_of(object);
  if (type == g_api.PyDict_Type || type == g_api.PyList_Type || type == g_named_types.ordered_dict) {
    return item_count(object) == 0;
  }
  return type == g_api.PySet_Type && set_size(object) == 0;
}

// What others hand to a library, which keeps it under a name of its own and calls it from its code: hooks of all
// registrations in modules, divergences of distributions, kernels of operators.
bool holds_others(Object* name) noexcept {
  for (const char* known :
       {"_global_buffer_registration_hooks", "_global_module_registration_hooks",
        "_global_parameter_registration_hooks", "_KL_MEMOIZE", "_KL_REGISTRY", "_backend_fns", "_disabled_kernel"}) {
    if (text_is(name, known)) return true;
  }
  return false;
}

// Of what counts by identity: which objects it refers to, is looked at too. Of what a library keeps for itself, as its
// caches, only where that holds nothing: it may be what is asked first. What the program has put there is no library's.
bool keeps_objects(Object* name, Object* value) {
  char first = '\0';
  if (is_function(value)) return function_parts(value).closure != nullptr;
  if (walk::is_users_callable(value)) return true;
  if (copy_text(name, &first, 1) == 1 && first == '_') return is_empty_container(value) || holds_others(name);
  if (walk::may_hold_state(value)) return true;
  return value != g_api.PyImport_GetModuleDict() && !stands_for_itself(value) && is_data(value);
}

// What the interpreter keeps in every module for itself.
bool is_interpreters(Object* name) noexcept {
  for (const char* own : {"__builtins__", "__spec__", "__loader__", "__cached__", "__warningregistry__",
                          "__annotations__", "__annotate__", "__conditional_annotations__"}) {
    if (text_is(name, own)) return true;
  }
  return false;
}

}  // namespace

bool is_data(Object* value) {
  Object* type = type_of(value);
  const walk::TypeInfo* info = walk::type_info(type);
  if (info == nullptr) throw std::bad_alloc();
  if (info->kind == walk::Kind::kPlain) return type != module_member("os", "_Environ");  // see EffectKind::kEnvironment
  if (info->kind != walk::Kind::kOpaque) return walk::is(info->kind, walk::kData) || info->made_in_python;
  return info->shows_memory ||
         (std::strncmp(type::name(type), "_io.", 4) != 0 && (*next_slot(type) != nullptr || has_buffer(type)));
}

NamedValues::NamedValues(Object* dict, bool users, std::string owner, bool module)
    : dict_(dict),
      users_(users),
      module_(module),
      owner_(std::move(owner)),
      version_(dict_version(dict)),
      tells_(tells_of_changes(dict)) {}

Object* NamedValues::now(const Named& named) const noexcept { return dict_item(dict(), named.name.get()); }

void NamedValues::hold(Named& named, Object* value) const {
  named.by_identity =
      value != nullptr ? stands_for_itself(value) || !(users_ || (named.by_value && is_data(value))) : !users_;
  named.value = walk::Held(value, named.by_identity);
}

Object* NamedValues::add(Object* name, bool set_by_code, bool by_value) {
  for (Named& named : names_) {
    if (named.name.get() != name) continue;
    named.set_by_code = named.set_by_code || set_by_code;
    Object* value = now(named);
    if (by_value && !named.by_value) {
      named.by_value = true;
      hold(named, value);
    }
    return value;
  }
  names_.push_back({Strong(name), walk::Held(), set_by_code, by_value, false});
  Object* value = now(names_.back());
  hold(names_.back(), value);
  return value;
}

bool NamedValues::counts(Object* name, bool users) noexcept {
  return users ? is_text(name) && !is_interpreters(name) : is_public_name(name);
}

std::size_t NamedValues::count() const noexcept {
  std::size_t count = 0;
  std::ptrdiff_t position = 0;
  for (Object *name, *value; g_api.PyDict_Next(dict(), &position, &name, &value) != 0;) count += counts(name, users_);
  return count;
}

void NamedValues::take_whole() { whole_ = count(); }

Object* NamedValues::set_to_unknown() const noexcept {
  for (const Named& named : names_) {
    if (named.set_by_code && !named.value.held()) return named.name.get();
  }
  return nullptr;
}

bool NamedValues::untouched() const noexcept { return tells_ && dict_version(dict()) == version_; }

void NamedValues::fetch() const noexcept { __builtin_prefetch(&dict_version(dict())); }

NamedValues::Change NamedValues::compare_one(const Named& named, std::string& what) const {
  Object* value = now(named);
  // What is not held may have died, and its place may be another's by now.
  if (named.value.is(value)) return named.value.held() ? Change::kNone : Change::kMaybe;
  if (named.value.is_or_equals(value)) return Change::kNone;
  const bool there = value != nullptr, was_there = named.value.address() != nullptr;
  if (there && was_there && !named.by_identity && !named.set_by_code) return Change::kMaybe;
  what = name_of(named.name.get()) + (!there ? " is gone" : !was_there ? " is new" : " was set");
  return Change::kOther;
}

NamedValues::Change NamedValues::compare(std::string& what) {
  Change change = Change::kNone;
  if (whole_ != 0 && whole_ != count()) {
    what = owner_ + " has other names";
    return Change::kOther;
  }
  for (const Named& named : names_) {
    const Change one = compare_one(named, what);
    if (one == Change::kOther) return one;
    if (one == Change::kMaybe) change = one;
  }
  if (change == Change::kNone) version_ = dict_version(dict());
  return change;
}

void NamedValues::take_again() {
  for (Named& named : names_) hold(named, now(named));
  version_ = dict_version(dict());
}

bool NamedValues::walk(walk::Walk& into) const {
  for (const Named& named : names_) {
    Object* value = now(named);
    if (value == nullptr) continue;
    const std::string name = name_of(named.name.get());
    if (named.by_identity && !named.value.plain()) {
      if (module_ && keeps_objects(named.name.get(), value) && !into.add_shallow(value, name.c_str())) return false;
    } else if (!into.add(value, name.c_str())) {
      return false;
    }
  }
  return true;
}

void NamedValues::identify(std::vector<std::uint64_t>& out) const {
  out.push_back(reinterpret_cast<std::uint64_t>(dict()));
  for (const Named& named : names_) {
    out.push_back(reinterpret_cast<std::uint64_t>(named.name.get()));
    out.push_back(named.set_by_code);
    const bool by_value = named.value.plain() || !named.by_identity;
    out.push_back(named.value.address() == nullptr ? 0 : by_value ? 1 : named.value.identity());
  }
}

std::string NamedValues::name_of(Object* name) const { return owner_ + "." + text_value<256>(name); }

}  // namespace grape::python::guards
