#include "python_hooks/guards/class_names.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <unordered_set>

#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/walk/type_info.h"

namespace grape::python::guards {
namespace {

// Data of a class that is made with it, and what modules have.
constexpr char kUsual[] =
    " __slots__ __match_args__ __annotations__ __abstractmethods__ __orig_bases__ __parameters__ __type_params__ "
    "__dataclass_fields__ __dataclass_params__ __static_attributes__ __members__ __firstlineno__ __classcell__ "
    "__classdict__ __classdictcell__ __annotate__ __annotate_func__ __conditional_annotations__ __constants__ "
    "__version__ __file__ __all__ __path__ __spec__ __loader__ __package__ __builtins__ ";

// Of a function, a class, a number, a container: "__init__", "__name__", "__len__", "__dict__".
bool is_languages(const char* name) noexcept {
  for (Object* const type : {g_api.PyType_Type, g_api.PyFunction_Type, g_api.PyMethod_Type, g_api.PyLong_Type,
                             g_api.PyDict_Type, g_api.PyModule_Type}) {
    const Reference found(g_api.PyObject_GetAttrString(type, name));
    if (found) return true;
    g_api.PyErr_Clear();
  }
  return false;
}

}  // namespace

bool is_own_dunder(Object* name) noexcept {
  if (!walk::is_dunder(name)) return false;
  char text[64] = " ";
  const std::size_t size = copy_text(name, text + 1, sizeof(text) - 3) + 1;
  text[size] = ' ';
  if (std::strstr(kUsual, text) != nullptr) return false;
  text[size] = '\0';
  return !is_languages(text + 1);
}

std::vector<Object*> classes_that_define(const std::vector<Object*>& names) {
  std::vector<Object*> found;
  if (names.empty()) return found;
  const NoCollection no_collection;  // until they are looked at nothing here holds them
  const Reference subclasses_of(g_api.PyObject_GetAttrString(g_api.PyType_Type, "__subclasses__"));
  std::vector<Object*> left{g_api.PyBaseObject_Type};
  std::unordered_set<Object*> seen{g_api.PyBaseObject_Type};
  while (subclasses_of && !left.empty()) {
    Object* type = left.back();
    left.pop_back();
    Object* dict = type::is_heap(type) ? type::dict(type) : nullptr;
    const auto defines = [dict](Object* name) { return dict_item(dict, name) != nullptr; };
    if (dict != nullptr && std::any_of(names.begin(), names.end(), defines)) found.push_back(type);
    const Reference subclasses(g_api.PyObject_CallFunctionObjArgs(subclasses_of.get(), type, nullptr));
    if (!subclasses) throw std::bad_alloc();
    for (std::size_t i = 0; i < item_count(subclasses.get()); ++i) {
      Object* one = list_data(subclasses.get())[i];
      if (seen.insert(one).second) left.push_back(one);
    }
  }
  return found;
}

}  // namespace grape::python::guards
