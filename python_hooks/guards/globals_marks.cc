// The parts of a plan that are neither names nor functions: context variables, and what the interpreter keeps.
#include <new>

#include "python_hooks/guards/globals_plan.h"
#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/walk/walker.h"

namespace grape::python::guards {
namespace {

Object* warning_filters() noexcept {
  static Object* const module = g_api.PyUnicode_InternFromString("warnings");
  static Object* const name = g_api.PyUnicode_InternFromString("filters");
  Object* modules = g_api.PyImport_GetModuleDict();
  if (module == nullptr || name == nullptr) return nullptr;
  Object* warnings = modules != nullptr && is_dict(modules) ? dict_item(modules, module) : nullptr;
  Object* dict = warnings != nullptr ? module_dict(warnings) : nullptr;
  Object* filters = dict != nullptr ? dict_item(dict, name) : nullptr;
  return filters != nullptr && type_of(filters) == g_api.PyList_Type ? filters : nullptr;
}

bool same_filter(Object* one, Object* other) noexcept {
  if (one == other) return true;
  if (type_of(one) != g_api.PyTuple_Type || type_of(other) != g_api.PyTuple_Type) return false;
  const std::size_t count = item_count(one);
  if (count != item_count(other)) return false;
  for (std::size_t i = 0; i < count; ++i) {
    if (tuple_data(one)[i] != tuple_data(other)[i]) return false;
  }
  return true;
}

}  // namespace

long abstract_token() noexcept {
  static Object* ask = nullptr;  // the interpreter's own, held for good
  if (ask == nullptr) {
    ask = new_reference(module_member("_abc", "get_cache_token"));
  }
  const Reference token(ask != nullptr ? g_api.PyObject_CallObject(ask, nullptr) : nullptr);
  return token ? g_api.PyLong_AsLong(token.get()) : -1;
}

bool handles_exception() noexcept {
  Object *type = nullptr, *value = nullptr, *traceback = nullptr;
  g_api.PyErr_GetExcInfo(&type, &value, &traceback);
  const bool handles = value != nullptr && value != g_api._Py_NoneStruct;
  for (Object* object : {type, value, traceback}) {
    if (object != nullptr) g_api.Py_DecRef(object);
  }
  return handles;
}

Reference ContextVariable::now() const noexcept {
  Object* value = nullptr;
  if (g_api.PyContextVar_Get(variable_.get(), nullptr, &value) != 0) g_api.PyErr_Clear();
  return Reference(value);
}

bool ContextVariable::untouched() const noexcept { return value_.held() && value_.is(now().get()); }

void ContextVariable::take_again() { value_ = walk::Held(now().get(), false); }

bool ContextVariable::walk(walk::Walk& into) const {
  const Reference value = now();
  const bool there = static_cast<bool>(value);
  into.add_bytes(&there, sizeof there);
  if (!there) return true;
  const Reference name(g_api.PyObject_GetAttrString(variable_.get(), "name"));
  return into.add(value.get(), ("the context variable " + (name ? text_value(name.get()) : std::string())).c_str());
}

WarningFilters::WarningFilters() {
  Object* filters = warning_filters();
  known_ = filters != nullptr;
  for (std::size_t i = 0; known_ && i < item_count(filters); ++i) filters_.emplace_back(list_data(filters)[i]);
}

bool WarningFilters::hold() const noexcept {
  Object* filters = warning_filters();
  if (filters == nullptr || item_count(filters) != filters_.size()) return filters == nullptr && !known_;
  for (std::size_t i = 0; i < filters_.size(); ++i) {
    if (!same_filter(list_data(filters)[i], filters_[i].get())) return false;
  }
  return true;
}

}  // namespace grape::python::guards
