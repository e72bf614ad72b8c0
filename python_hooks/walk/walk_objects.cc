// Containers, instances and classes.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "python_hooks/interpreter/code_origin.h"
#include "python_hooks/walk/identity.h"
#include "python_hooks/walk/instance.h"
#include "python_hooks/walk/portable.h"
#include "python_hooks/walk/walk_memo.h"
#include "python_hooks/walk/walker.h"

namespace grape::python::walk {
namespace {

// Of torch.nn.Module: what runs in a call of it beside its own code. Most are empty, and those are not walked.
constexpr const char* kHooks[] = {
    "_forward_hooks",     "_forward_hooks_with_kwargs",     "_forward_hooks_always_called",
    "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs",
};
// What runs after the call.
constexpr const char* kBackwardHooks[] = {"_backward_hooks", "_backward_pre_hooks"};
// And what a call does not look at.
constexpr const char* kLeftOut[] = {
    "_state_dict_hooks",           "_state_dict_pre_hooks",       "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks", "_non_persistent_buffers_set",
};

template <std::size_t count>
bool is_one_of(Object* key, const char* const (&names)[count]) noexcept {
  for (const char* name : names) {
    if (text_is(key, name)) return true;
  }
  return false;
}

// Exactly one of the interpreter's: of another class, truth and order may be what its code says.
bool is_plain_dict(Object* object) noexcept {
  return is_exactly(object, g_api.PyDict_Type) || is_exactly(object, g_named_types.ordered_dict);
}

// Few names are as long and end in an underscore.
bool shows_memory(Object* key) noexcept {
  Text text;
  return is_exactly(key, g_api.PyUnicode_Type) && text_of(key, text) && text.width == 1 && text.characters >= 16 &&
         static_cast<const char*>(text.data)[text.characters - 1] == '_' && is_one_of(key, kArrayInterfaces);
}

bool starts_with_underscore(Object* key) noexcept {
  Text text;
  return is_exactly(key, g_api.PyUnicode_Type) && text_of(key, text) && text.width == 1 && text.characters > 10 &&
         *static_cast<const char*>(text.data) == '_';
}

}  // namespace

bool Walker::container(Object* object, Kind kind, const Path& path) {
  if (kind == Kind::kList) touch(list_data(object));
  if (is(kind, kKeyed)) {
    touch_dict(object);
    note_dict(object);
  }
  if (walk_.portable_ && (kind == Kind::kDict || kind == Kind::kDefaultDict)) return dict_in_any_order(object, path);
  if (walk_.portable_ && (kind == Kind::kSet || kind == Kind::kFrozenSet)) return set_in_any_order(object);
  const auto each = [this](Object* item, const Path& item_path) { return optional(item, item_path); };
  if (items(object, kind, path, each)) return true;
  if (walk_.refusal_) return false;
  return refuse(kind == Kind::kDeque ? refusal::items_unreadable : refusal::ordered_dict_changed, path);
}

bool Walker::ordered_dict(Object* dict, Kind kind, const Path& path) {
  if (!is_exactly(dict, g_named_types.ordered_dict)) return container(dict, kind, path);
  if (watch_ != nullptr) watch_->object(dict);
  return container(dict, kind, path) && attributes(dict, instance_dict(dict), path);
}

bool Walker::default_dict(Object* dict, Kind kind, const Path& path) {
  if (watch_ != nullptr) watch_->reference(dict, kDefaultFactory);
  return optional(default_factory(dict), path.attribute("default_factory")) && container(dict, kind, path);
}

bool Walker::deque(Object* deque, Kind kind, const Path& path) {
  put(deque_limit(deque));
  return container(deque, kind, path);
}

// Dictionaries that were made of sets are in another order in each process. Names first, in alphabetical order.
bool Walker::dict_in_any_order(Object* dict, const Path& path) {
  std::vector<std::pair<std::string, Item>> all;
  std::ptrdiff_t position = 0;
  for (Object *key, *item; g_api.PyDict_Next(dict, &position, &key, &item) != 0;) {
    all.push_back({is_exactly(key, g_api.PyUnicode_Type) ? "." + text_value(key) : "", {key, item}});
  }
  // Those without a name come last.
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a.first.empty() || b.first.empty() ? a.first.size() > b.first.size() : a.first < b.first;
  });
  for (const auto& [name, item] : all) {
    if (!value(item.key, path.note("a key")) || !value(item.value, path.key(item.key))) return false;
  }
  put(Mark::kEnd);
  return true;
}

// Strings hash otherwise in each process. Elements that are no plain values count by what they are.
bool Walker::set_in_any_order(Object* set) {
  put(static_cast<std::uint32_t>(set_size(set)));
  std::vector<cache::Digest> elements;
  std::vector<Item> items;
  items_of(set, Kind::kSet, items);
  for (const Item& item : items) {
    Walk element = Walk::portable(walk_.keep_addresses_);
    const bool plain = is_plain_value(item.value) && element.add(item.value, "an element");
    elements.push_back(plain ? digest_of(element.bytes()) : cache::Digest{portable_name(item.value), 0});
  }
  put(digest_of_all(std::move(elements)));
  return true;
}

// Whoever else refers to an object's __dict__ may be met in this walk, or not: only if he is, it is written down, so
// that the bytes do not depend on strangers.
void Walker::note_attributes(Object* of, Object* dict) {
  if (!walk_.keep_addresses_ && reference_count(dict) == 1) {
    if (watch_ != nullptr && walk_.memo_ != nullptr) walk_.memo_->only_owner(dict);
    return;
  }
  if (const std::uint32_t* value = walk_.seen_.find(dict)) {
    put(Mark::kSameDict);
    put(*value);
  }
  bool added = false;
  const std::uint32_t known = walk_.dicts_.number_of(dict, added);
  if (added) {
    walk_.attribute_dicts_.push_back({dict, walk_.seen_.number_of(of, added)});
    return;
  }
  put(Mark::kSameAttributes);
  put(walk_.attribute_dicts_[known].object);
}

// A dictionary that is met as a value.
void Walker::note_dict(Object* dict) {
  if (walk_.attribute_dicts_.empty()) return;
  const std::uint32_t* known = walk_.dicts_.find(dict);
  if (known == nullptr) return;
  put(Mark::kSameAttributes);
  put(walk_.attribute_dicts_[*known].object);
}

bool Walker::entry(Object* name, Object* item, const Path& path) {
  if (shows_memory(name)) return refuse(refusal::memory_by_address, path.attribute(name));
  return value(name, path.note("a name")) && value(item, is_text(name) ? path.attribute(name) : path.key(name));
}

bool Walker::attributes(Object* of, Object* dict, const Path& path) {
  if (dict != nullptr) {
    touch_dict(dict);
    note_attributes(of, dict);
  }
  return entries(dict, false, [&](Object* name, Object* item) { return entry(name, item, path); });
}

bool Walker::hooks(Object* name, Object* dict, bool backward, const Path& path) {
  if (!is_plain_dict(dict) || g_api.PyDict_Size(dict) != 0) {
    if (backward) return refuse(refusal::module_hooks, path, text_value(name));
    return value(name, path.attribute(name)) && value(dict, path.attribute(name));
  }
  if (watch_ != nullptr) watch_->empty_dict(dict);
  put(Mark::kNull);
  if (walk_.expected_ != nullptr) compare(path.attribute(name));
  return true;
}

bool Walker::module_attributes(Object* of, Object* dict, const Path& path) {
  if (dict != nullptr) note_attributes(of, dict);
  return entries(dict, false, [&](Object* name, Object* item) {
    if (starts_with_underscore(name)) {
      if (is_one_of(name, kLeftOut)) return true;
      const bool backward = is_one_of(name, kBackwardHooks);
      if (backward || is_one_of(name, kHooks)) return hooks(name, item, backward, path);
    }
    return entry(name, item, path);
  });
}

bool Walker::instance(Object* object, const TypeInfo& info, const Path& path) {
  // What `info` says may be made anew while the object's attributes are walked.
  const Kind kind = info.kind;
  const bool is_module = info.is_module_class;
  const std::vector<TypeInfo::Slot> slots = info.slots;
  put(Mark::kInstance);
  if (watch_ != nullptr) {
    if (kind == Kind::kTuple || kind == Kind::kInt || kind == Kind::kBytes) watch_->word(object, 16);
    watch_->object(object);
  }
  if (!class_reference(type_of(object), path)) return false;
  Object* dict = instance_dict(object);
  if (!(is_module ? module_attributes(object, dict, path) : attributes(object, dict, path))) return false;
  for (const TypeInfo::Slot& slot : slots) {
    if (watch_ != nullptr) watch_->reference(object, slot.offset);
    if (!optional(field<Object*>(object, slot.offset), path.attribute(slot.name))) return false;
  }
  return true;
}

bool Walker::class_object(Object* type, Kind, const Path& path) { return class_reference(type, path); }

bool Walker::class_reference(Object* type, const Path& path) {
  if (again(type)) return true;
  const TypeInfo* info = type_info(type);
  if (info == nullptr) throw std::bad_alloc();
  put(info->reference == nullptr ? Mark::kBuiltinClass : Mark::kClass);
  put(walk_.portable_ ? portable_name(type) : info->identity);
  if (info->reference == nullptr) return true;
  if (watch_ != nullptr) watch_->type(type);
  if (!walk_.portable_) put(info->digest);
  Object* bases = type::mro(type);  // with itself
  touch(bases);
  for (std::size_t i = 0; i < item_count(bases); ++i) {
    Object* const base = tuple_data(bases)[i];
    for (const std::size_t text : type::g_texts) {
      touch(base, type::kFlags);
      if (!type::is_heap(base)) continue;
      touch(base, text);
      touch(field<Object*>(base, text));
      if (watch_ != nullptr) watch_->reference(base, text);
      put_text(field<Object*>(base, text));
    }
  }
  const std::vector<TypeInfo::Attribute> by_value = info->by_value;
  // A metaclass of its own is where its attributes are looked up, too.
  if (type_of(type) != g_api.PyType_Type && !class_reference(type_of(type), path)) return false;
  const Path class_path = path.note(type::name(type));
  for (const TypeInfo::Attribute& attribute : by_value) {
    const Path attribute_path = class_path.attribute(attribute.name);
    if (attribute.shallow && walk_.portable_) continue;
    if (!(attribute.shallow ? shallow(attribute.value, attribute_path) : value(attribute.value, attribute_path))) {
      return false;
    }
  }
  return true;
}

// A library's by the objects that its names stand for. Of the user's anything may be set at any time.
bool Walker::python_module(Object* module, Kind, const Path& path) {
  Object* dict = module_dict(module);
  if (dict != nullptr && is_users_module(dict)) {
    return refuse(refusal::module_of_users, path, text_value(dict_item(dict, "__name__")));
  }
  if (!by_identity(module)) return false;
  // Of arguments, and of a result that is a module, only which module it is.
  const bool whole = dict != nullptr && walk_.keep_addresses_ && path.from != nullptr;
  return !whole || again(module) || public_names(dict, path);
}

bool Walker::enum_member(Object* member, Kind, const Path& path) {
  if (watch_ != nullptr) watch_->object(member);
  if (!class_reference(type_of(member), path)) return false;
  Object* dict = instance_dict(member);
  Object* name = dict != nullptr ? dict_item(dict, "_name_") : nullptr;
  const bool named = name != nullptr && is_text(name);
  put(named);
  if (named) {
    if (!value(name, path)) return false;
    // A library's are constants; the user's may have attributes, and these be set.
    const TypeInfo* info = type_info(type_of(member));
    if (info == nullptr) throw std::bad_alloc();
    return info->librarys || attributes(member, dict, path);
  }
  if (walk_.portable_) return optional(dict != nullptr ? dict_item(dict, "_value_") : nullptr, path);
  put_address(member);  // a combination of flags: its class keeps it
  return true;
}

}  // namespace grape::python::walk
