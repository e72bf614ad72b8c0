#include "python_hooks/walk/stand_ins.h"

#include <cstring>

#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/torch/torch_api.h"
#include "python_hooks/walk/type_info.h"

namespace grape::python::walk {
namespace {

bool is_wrapper(Object* type) noexcept { return type == g_api.PyStaticMethod_Type || type == g_api.PyClassMethod_Type; }

bool is_users_function(Object* value) noexcept { return is_function(value) && !is_library_function(value); }

// Of a module a library's class says nothing: what it computes with is the program's.
bool is_users_instance(Object* value) noexcept {
  Object* type = type_of(value);
  if (is_type(value) || !type::made_in_python(type)) return false;
  if (torch::module_class() != nullptr && g_api.PyType_IsSubtype(type, torch::module_class()) != 0) return true;
  return !is_library_class(type);
}

// "next = itertools.count().__next__"
bool is_method_wrapper(Object* type) noexcept { return std::strcmp(type::name(type), "method-wrapper") == 0; }

}  // namespace

bool is_bound_builtin(Object* value) noexcept {
  if (g_api.PyType_IsSubtype(type_of(value), g_api.PyCFunction_Type) == 0) return false;
  Object* self = builtin_self(value);
  return self != nullptr && !is_type(self) && module_dict(self) == nullptr;
}

bool is_users_callable(Object* value) noexcept {
  if (type_of(value) == g_api.PyMethod_Type) {
    return is_users_function(method_function(value)) || is_users_instance(method_self(value));
  }
  return !is_function(value) && type::call(type_of(value)) != nullptr && is_users_instance(value);
}

bool is_callable_with_state(Object* value) noexcept {
  if (!is_bound_builtin(value) && !is_method_wrapper(type_of(value))) return is_users_callable(value);
  Object* self = builtin_self(value);  // a method-wrapper has it in the same place
  return is(exact_kind(type_of(self)), kMutable) || *next_slot(type_of(self)) != nullptr || is_users_instance(self);
}

bool may_hold_state(Object* value) noexcept {
  Object* type = type_of(value);
  if (type == g_named_types.partial) return true;
  Object* wrapped = is_wrapper(type) ? wrapped_function(value) : nullptr;
  return wrapped != nullptr ? may_hold_state(wrapped) : is_callable_with_state(value);
}

}  // namespace grape::python::walk
