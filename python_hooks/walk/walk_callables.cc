// Functions and what wraps them; weak references.
#include <algorithm>
#include <cstring>
#include <vector>

#include "python_hooks/walk/identity.h"
#include "python_hooks/walk/instance.h"
#include "python_hooks/walk/walker.h"

namespace grape::python::walk {
namespace {

// What pybind11 keeps about a function of its own; it does not change.
bool is_function_record(Object* object) noexcept {
  const char* name = type::name(type_of(object));
  return std::strcmp(name, "PyCapsule") == 0 || std::strstr(name, "pybind11_detail_function_record") != nullptr;
}

}  // namespace

bool Walker::function(Object* function, Kind, const Path& path) {
  const FunctionParts parts = function_parts(function);
  if (parts.closure == nullptr && is_library_function(function)) {
    return by_identity(function) && function_texts(function, path) && function_attributes(function, path);
  }
  put_identity(parts.code);
  if (walk_.portable_) {
    put_name(dict_item(parts.globals, "__name__"));
  } else {
    put_address(parts.globals);
  }
  if (watch_ != nullptr) {
    watch_->function(function);
    watch_->keep(parts.code);
  }
  return function_texts(function, path) && optional(parts.defaults, path.attribute("__defaults__")) &&
         optional(parts.keyword_defaults, path.attribute("__kwdefaults__")) &&
         optional(parts.closure, path.attribute("__closure__")) && attributes(function, parts.attributes, path);
}

bool Walker::function_texts(Object* function, const Path& path) {
  constexpr const char* kNames[kFunctionTexts] = {"__name__", "__qualname__", "__doc__", "__module__"};
  for (std::size_t i = 0; i < kFunctionTexts; ++i) {
    if (watch_ != nullptr) watch_->reference(function, g_layout.function_texts[i]);
    if (!optional(function_text(function, i), path.attribute(kNames[i]))) return false;
  }
  return true;
}

bool Walker::partial(Object* partial, Kind kind, const Path& path) {
  if (watch_ != nullptr) watch_->object(partial);
  return parts(partial, kind, path) && attributes(partial, partial_parts(partial).attributes, path);
}

// Functions of C: of a module, or methods of the object that they are bound to.
bool Walker::builtin(Object* builtin, Kind, const Path& path) {
  Object* self = builtin_self(builtin);
  if (self != nullptr && is_function_record(self)) return by_identity(builtin);
  const void* definition = builtin_definition(builtin);
  put_c_name(*static_cast<const char* const*>(definition), definition);
  if (watch_ != nullptr) {
    for (std::size_t i = 0; i < 2; ++i) watch_->word(builtin, 16 + 8 * i);
  }
  // What a function does with its module is its own affair.
  if (self != nullptr && module_dict(self) != nullptr) return by_identity(self);
  return optional(self, path.attribute("__self__"));
}

// Of a class of C's, for which it stands; it cannot change.
bool Walker::descriptor(Object* descriptor, Kind, const Path&) {
  put_identity(field<Object*>(descriptor, 16));
  if (walk_.portable_) {
    put_name(field<Object*>(descriptor, 24));
  } else {
    put_address(field<const void*>(descriptor, 40));
  }
  if (watch_ != nullptr) {
    watch_->word(descriptor, 16);
    watch_->word(descriptor, 40);
    watch_->identity(field<Object*>(descriptor, 16));
  }
  return true;
}

bool Walker::by_identity(Object* object) {
  put(Mark::kIdentity);
  put_identity(object);
  if (watch_ != nullptr) watch_->identity(object);
  return true;
}

bool Walker::cached_property(Object* property, Kind, const Path& path) {
  if (watch_ != nullptr) watch_->object(property);
  Object* dict = instance_dict(property);
  if (watch_ != nullptr && dict != nullptr) watch_->items(dict, Kind::kDict);
  return optional(dict != nullptr ? dict_item(dict, "func") : nullptr, path);
}

// What it would return without running anything. Of a library's function it is the library's own affair.
bool Walker::cache(Object* cache, Kind, const Path& path) {
  Object* own = instance_dict(cache);
  Object* function = own != nullptr ? dict_item(own, "__wrapped__") : nullptr;
  if (function != nullptr && is_function(function) && is_library_function(function)) return by_identity(cache);
  if (watch_ != nullptr) watch_->object(cache);
  if (!attributes(cache, own, path)) return false;
  // Its results may be dictionaries as well; its own two are told last.
  std::vector<Item> referents;
  referents_of(cache, referents);
  const auto results = std::find_if(referents.rbegin(), referents.rend(), [own](const Item& item) {
    return item.value != own && is_exactly(item.value, g_api.PyDict_Type);
  });
  if (results == referents.rend()) return refuse(refusal::cache_unreadable, path);
  return entries(results->value, false, [&](Object* key, Object* held) {
    if (!cache_key(key, path)) return false;
    if (std::strstr(type::name(type_of(held)), "_lru_list_elem") != nullptr) {
      if (!is_cache_link(held, key)) return refuse(refusal::cache_unreadable, path);
      if (watch_ != nullptr) watch_->reference(held, kCacheLinkResult);
      held = field<Object*>(held, kCacheLinkResult);
    }
    return value(held, path.note("a result"));
  });
}

// One argument, or a tuple of all; between positional and keyword arguments stands a mark of functools' own.
bool Walker::cache_key(Object* key, const Path& path) {
  const bool several = is_exactly(key, g_api.PyTuple_Type);
  const std::size_t count = several ? item_count(key) : 1;
  put(static_cast<std::uint32_t>(count));
  for (std::size_t i = 0; i < count; ++i) {
    Object* part = several ? tuple_data(key)[i] : key;
    if (is_exactly(part, g_api.PyBaseObject_Type)) {
      put_pointer(part);
    } else if (!value(part, path.note("an argument"))) {
      return false;
    }
  }
  return true;
}

bool Walker::weak_reference(Object* reference, Kind, const Path& path) {
  if (weak_callback(reference) != nullptr) return refuse(refusal::weak_callback, path);
  if (watch_ != nullptr) watch_->word(reference, 16);
  return value(referent(reference), path);
}

}  // namespace grape::python::walk
