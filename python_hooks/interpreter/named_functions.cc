#include "python_hooks/interpreter/named_functions.h"

#include <cstring>

#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/patterns.h"

namespace grape::python {
namespace {

constexpr std::size_t kMaxName = 1000;
constexpr int kMaxNesting = 4;  // of classes

struct Search {
  const char* patterns;  // null: all
  const FoundFunction& found;
  char name[kMaxName];
  bool wants() const { return patterns == nullptr || matches(patterns, name); }
};

void look_into(Search& search, Object* items, std::size_t length, int nesting);

// A class's dictionary, or a view of it; a new reference. Where all are wanted, no metaclass is asked.
Object* dict_of(const Search& search, Object* type) {
  if (search.patterns != nullptr) return g_api.PyObject_GetAttrString(type, "__dict__");
  return new_reference(type::is_heap(type) ? type::dict(type) : nullptr);
}

void look_into_class(Search& search, Object* type, std::size_t length, int nesting) {
  const Reference attributes(dict_of(search, type));
  if (!attributes || length + 2 >= kMaxName) return;
  search.name[length] = '.';
  look_into(search, g_api.PyMapping_Items(attributes.get()), length + 1, nesting + 1);
}

// Asking any other object for a function may run code of the program's.
bool holds_function(Object* value) {
  return g_api.PyType_IsSubtype(type_of(value), g_api.PyStaticMethod_Type) != 0 ||
         g_api.PyType_IsSubtype(type_of(value), g_api.PyClassMethod_Type) != 0;
}

void look_at(Search& search, Object* value, std::size_t length, int nesting) {
  if (is_function(value)) {
    if (search.wants()) search.found(value, search.name);
  } else if (is_type(value)) {
    if (nesting < kMaxNesting) look_into_class(search, value, length, nesting);
  } else if (nesting > 0 && search.wants() && (search.patterns != nullptr || holds_function(value))) {
    // In a class: a static or a class method holds its function.
    const Reference inner(g_api.PyObject_GetAttrString(value, "__func__"));
    if (inner && is_function(inner.get())) search.found(inner.get(), search.name);
  }
}

// `items`: a list of (name, value), owned; may be null. The name so far is search.name[0, length).
void look_into(Search& search, Object* items, std::size_t length, int nesting) {
  each_pair(items, [&](Object* key, Object* value) {
    if (!is_text(key)) return;
    const std::size_t used = length + copy_text(key, search.name + length, kMaxName - length - 1);
    search.name[used] = 0;
    look_at(search, value, used, nesting);
  });
}

void look_into_module(Search& search, Object* key, Object* module) {
  if (!is_text(key)) return;
  const std::size_t length = copy_text(key, search.name, kMaxName - 2);
  search.name[length] = 0;
  if (search.patterns != nullptr && !may_match_module(search.patterns, search.name)) return;
  Object* dict = module_dict(module);
  if (dict == nullptr) return;
  search.name[length] = ':';
  look_into(search, g_api.PyDict_Items(dict), length + 1, 0);
}

}  // namespace

bool is_special(const char* name) noexcept {
  const char* last = name + std::strlen(name);
  while (last != name && last[-1] != '.' && last[-1] != ':') --last;
  const std::size_t length = std::strlen(last);
  return length > 4 && std::strncmp(last, "__", 2) == 0 && std::strcmp(last + length - 2, "__") == 0 &&
         std::strcmp(last, "__call__") != 0;
}

void each_function(const char* name, Object* module, const FoundFunction& found) {
  const Reference key(g_api.PyUnicode_FromString(name));
  Search search{nullptr, found, {}};
  if (key) look_into_module(search, key.get(), module);
}

void find_named_functions(const char* patterns, const FoundFunction& found) noexcept {
  static std::ptrdiff_t seen = 0;
  static int looks_left = 0;
  Object* modules = g_api.PyImport_GetModuleDict();
  if (modules == nullptr || !is_dict(modules)) return;
  const std::ptrdiff_t count = g_api.PyDict_Size(modules);
  // A module stands in sys.modules before its body has run: look a few times more after the last one came.
  if (count != seen) looks_left = 20;
  if (looks_left == 0) {  // scripts define functions when everything is imported and loaded
    const Reference name(g_api.PyUnicode_InternFromString("__main__"));
    Object* main = imported_module("__main__");
    Search search{patterns, found, {}};
    if (name && main != nullptr) look_into_module(search, name.get(), main);
    return;
  }
  --looks_left;
  seen = count;
  Search search{patterns, found, {}};
  each_pair(g_api.PyDict_Items(modules), [&](Object* key, Object* module) { look_into_module(search, key, module); });
}

}  // namespace grape::python
