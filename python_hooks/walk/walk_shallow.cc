// What libraries keep: which objects, not what these are like.
#include <algorithm>
#include <cstring>

#include "python_hooks/walk/held.h"
#include "python_hooks/walk/identity.h"
#include "python_hooks/walk/stand_ins.h"
#include "python_hooks/walk/walker.h"

namespace grape::python::walk {
namespace {

constexpr int kDeepest = 2;

// Lets go of what it holds whenever that dies: a cache.
bool is_weak_container(Object* type) noexcept {
  const char* names[] = {"WeakKeyDictionary", "WeakValueDictionary", "WeakSet", "WeakIdKeyDictionary"};
  return std::any_of(std::begin(names), std::end(names),
                     [type](const char* name) { return std::strcmp(type::name(type), name) == 0; });
}

}  // namespace

bool Walker::shallow(Object* object, const Path& path) {
  const bool taken = shallow_at(object, 0, path);
  if (walk_.expected_ != nullptr && taken) compare(path);
  return taken;
}

bool Walker::shallow_at(Object* object, int depth, const Path& path) {
  if (object == nullptr) return optional(object, path);
  if (is_constant(object)) return value(object, path);
  if (walk_.portable_) return by_identity(object);
  if (is_callable_with_state(object)) return value(object, path);
  if (depth > kDeepest || is_weak_container(type_of(object))) return shallow_leaf(object);
  const TypeInfo* info = type_info(type_of(object));
  if (info == nullptr) throw std::bad_alloc();
  switch (info->kind) {
    case Kind::kFunction:
      return shallow_leaf(object) && (again(object) || shallow_closure(object, depth, path));
    case Kind::kPartial:
      return shallow_leaf(object) && (again(object) || shallow_partial(object, depth, path));
    case Kind::kStaticMethod:
    case Kind::kClassMethod:
      if (watch_ != nullptr) watch_->reference(object, 16);
      return shallow_at(wrapped_function(object), depth, path);
    default:
      return is(info->kind, kShallow) ? shallow_items(object, *info, depth, path) : shallow_leaf(object);
  }
}

bool Walker::shallow_items(Object* object, const TypeInfo& info, int depth, const Path& path) {
  const Kind kind = info.kind;
  const bool made_in_python = info.made_in_python;
  if (again(object)) return true;
  put(Mark::kShallow);
  put_pointer(type_of(object));
  if (watch_ != nullptr) watch_->object(object);
  if (made_in_python) {
    Object* dict = instance_dict(object);
    if (dict != nullptr) note_attributes(object, dict);
    if (!shallow_leaf(object) || !shallow_attributes(dict, depth, path)) return false;
  }
  if (kind == Kind::kPlain) return true;
  if (is(kind, kKeyed)) {
    note_dict(object);
    return shallow_attributes(object, depth, path);
  }
  return items(object, kind, path, [&](Object* item, const Path& at) { return shallow_at(item, depth + 1, at); });
}

bool Walker::shallow_attributes(Object* dict, int depth, const Path& path) {
  const bool ordered = dict != nullptr && is_exactly(dict, g_named_types.ordered_dict);
  return entries(dict, ordered, [&](Object* key, Object* item) {
    return shallow_at(key, depth + 1, path.note("a key")) && shallow_at(item, depth + 1, path.key(key));
  });
}

// Of a library's: which objects its attributes are.
bool Walker::function_attributes(Object* function, const Path& path) {
  if (watch_ != nullptr) watch_->word(function, g_layout.function_attributes);
  return shallow_attributes(function_parts(function).attributes, kDeepest, path);
}

bool Walker::public_names(Object* dict, const Path& path) {
  return entries(dict, false, [&](Object* name, Object* item) {
    if (!is_public_name(name) || item == g_api.PyImport_GetModuleDict()) return true;
    return value(name, path.note("a name")) && shallow_at(item, kDeepest, path.attribute(name));
  });
}

// Its level and what was set on it; which handlers and filters it has.
bool Walker::logger(Object* logger, Kind, const Path& path) {
  if (!by_identity(logger) || !class_reference(type_of(logger), path)) return false;
  if (watch_ != nullptr) watch_->object(logger);
  return entries(instance_dict(logger), false, [&](Object* name, Object* item) {
    if (text_is(name, "parent") || text_is(name, "manager") || text_is(name, "_cache")) return true;
    const bool list = text_is(name, "handlers") || text_is(name, "filters");
    const Path item_path = path.attribute(name);
    return value(name, path.note("a name")) && (list ? shallow_at(item, kDeepest, item_path) : value(item, item_path));
  });
}

bool Walker::shallow_closure(Object* function, int depth, const Path& path) {
  Object* closure = function_parts(function).closure;
  if (closure == nullptr) return true;
  if (watch_ != nullptr) watch_->word(function, g_layout.function_defaults + 16);
  for (std::size_t i = 0; i < item_count(closure); ++i) {
    Object* cell = tuple_data(closure)[i];
    if (watch_ != nullptr) watch_->reference(cell, 16);
    if (!shallow_at(cell_content(cell), depth + 1, path.attribute("__closure__"))) return false;
  }
  return true;
}

bool Walker::shallow_partial(Object* partial, int depth, const Path& path) {
  const PartialParts parts = partial_parts(partial);
  if (watch_ != nullptr) {
    for (std::size_t i = 0; i < 4; ++i) watch_->reference(partial, 16 + 8 * i);
  }
  return shallow_at(parts.function, depth, path.attribute("func")) &&
         shallow_at(parts.arguments, depth, path.attribute("args")) &&
         shallow_at(parts.keywords, depth, path.attribute("keywords")) &&
         shallow_attributes(parts.attributes, depth, path);
}

bool Walker::shallow_leaf(Object* object) {
  if (type::weak_list_offset(type_of(object)) != 0) return by_identity(object);
  put(Mark::kIdentity);
  put_pointer(object);
  return true;
}

}  // namespace grape::python::walk
