// What libraries keep: which objects, not what these are like.
#include <algorithm>
#include <cstring>

#include "python_hooks/walk/held.h"
#include "python_hooks/walk/identity.h"
#include "python_hooks/walk/stand_ins.h"
#include "python_hooks/walk/walker.h"

namespace grape::python::state {
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
  if (walk_.portable_) return by_identity(object, Tag::kByIdentity);
  if (is_callable_with_state(object)) return value(object, path);
  if (depth > kDeepest || is_weak_container(type_of(object))) return shallow_leaf(object, path);
  const TypeInfo* info = type_info(type_of(object));
  if (info == nullptr) throw std::bad_alloc();
  switch (info->kind) {
    case Kind::kFunction:
      return shallow_leaf(object, path) && (again(object) || shallow_closure(object, depth, path));
    case Kind::kPartial:
      return shallow_leaf(object, path) && (again(object) || shallow_partial(object, depth, path));
    case Kind::kStaticMethod:
    case Kind::kClassMethod:
      if (watch_ != nullptr) watch_->reference(object, 16);
      return shallow_at(wrapped_function(object), depth, path);
    case Kind::kPlain:
    case Kind::kTuple:
    case Kind::kList:
    case Kind::kDict:
    case Kind::kOrderedDict:
    case Kind::kDefaultDict:
    case Kind::kSet:
    case Kind::kFrozenSet:
      return shallow_items(object, *info, depth, path);
    default:
      return shallow_leaf(object, path);
  }
}

bool Walker::shallow_items(Object* object, const TypeInfo& info, int depth, const Path& path) {
  const Kind kind = info.kind;
  const bool made_in_python = info.made_in_python;
  if (again(object)) return true;
  put(Tag::kShallow);
  put_pointer(type_of(object));
  if (watch_ != nullptr) watch_->object(object);
  if (made_in_python) {
    Object* dict = instance_dict(object);
    if (dict != nullptr) note_attributes(object, dict);
    if (!shallow_leaf(object, path) || !shallow_attributes(dict, depth, path)) return false;
  }
  switch (kind) {
    case Kind::kTuple:
    case Kind::kList: {
      const bool list = kind == Kind::kList;
      if (watch_ != nullptr) list ? watch_->list(object) : watch_->tuple(object);
      Object* const* data = list ? list_data(object) : tuple_data(object);
      put(item_count(object));
      for (std::size_t i = 0; i < item_count(object); ++i) {
        if (!shallow_at(data[i], depth + 1, path.item(i))) return false;
      }
      return true;
    }
    case Kind::kSet:
    case Kind::kFrozenSet:
      if (watch_ != nullptr) watch_->set(object);
      put(set_size(object));
      for (std::size_t i = 0; i < set_table_size(object); ++i) {
        const SetEntry& entry = set_table(object)[i];
        if (entry.used() && !shallow_at(entry.key, depth + 1, path.note("an element"))) return false;
      }
      return true;
    case Kind::kDict:
    case Kind::kOrderedDict:
    case Kind::kDefaultDict:
      note_dict(object);
      return shallow_attributes(object, depth, path);
    default:
      return true;
  }
}

bool Walker::shallow_attributes(Object* dict, int depth, const Path& path) {
  if (dict != nullptr) {
    if (watch_ != nullptr) watch_->dict(dict, is_exactly(dict, g_named_types.ordered_dict));
    std::ptrdiff_t position = 0;
    for (Object *key, *item; g_api.PyDict_Next(dict, &position, &key, &item) != 0;) {
      if (!shallow_at(key, depth + 1, path.note("a key")) || !shallow_at(item, depth + 1, path.key(key))) return false;
    }
  }
  put(Tag::kEnd);
  return true;
}

// Of a library's: which objects its attributes are.
bool Walker::function_attributes(Object* function, const Path& path) {
  if (watch_ != nullptr) watch_->word(function, g_layout.function_attributes);
  return shallow_attributes(function_parts(function).attributes, kDeepest, path);
}

bool Walker::public_names(Object* dict, const Path& path) {
  if (watch_ != nullptr) watch_->dict(dict, false);
  std::ptrdiff_t position = 0;
  for (Object *name, *item; g_api.PyDict_Next(dict, &position, &name, &item) != 0;) {
    if (!is_public_name(name) || item == g_api.PyImport_GetModuleDict()) continue;
    if (!value(name, path.note("a name")) || !shallow_at(item, kDeepest, path.attribute(name))) return false;
  }
  put(Tag::kEnd);
  return true;
}

// Its level and what was set on it; which handlers and filters it has.
bool Walker::logger(Object* logger, const Path& path) {
  if (!by_identity(logger, Tag::kByIdentity) || !class_reference(type_of(logger), path)) return false;
  if (watch_ != nullptr) watch_->object(logger);
  Object* dict = instance_dict(logger);
  if (dict != nullptr && watch_ != nullptr) watch_->dict(dict, false);
  std::ptrdiff_t position = 0;
  for (Object *name, *item; dict != nullptr && g_api.PyDict_Next(dict, &position, &name, &item) != 0;) {
    if (text_is(name, "parent") || text_is(name, "manager") || text_is(name, "_cache")) continue;
    const bool list = text_is(name, "handlers") || text_is(name, "filters");
    const Path item_path = path.attribute(name);
    if (!value(name, path.note("a name"))) return false;
    if (!(list ? shallow_at(item, kDeepest, item_path) : value(item, item_path))) return false;
  }
  put(Tag::kEnd);
  return true;
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

bool Walker::shallow_leaf(Object* object, const Path&) {
  if (type::weak_list_offset(type_of(object)) != 0) return by_identity(object, Tag::kByIdentity);
  put(Tag::kByIdentity);
  put_pointer(object);
  return true;
}

}  // namespace grape::python::state
