// Containers, instances and classes.
#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "python_hooks/interpreter/code_origin.h"
#include "python_hooks/walk/identity.h"
#include "python_hooks/walk/instance.h"
#include "python_hooks/walk/portable.h"
#include "python_hooks/walk/walk_memo.h"
#include "python_hooks/walk/walker.h"

namespace grape::python::state {
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

bool Walker::number_of_numpy(Object* number, const Path& path) {
  Buffer view{};
  if (g_api.PyObject_GetBuffer(number, &view, 0) != 0) {
    g_api.PyErr_Clear();
    return refuse(refusal::opaque, path, full_type_name(type_of(number)));
  }
  put(Tag::kBytes);
  put(static_cast<std::size_t>(view.bytes));
  put(view.data, static_cast<std::size_t>(view.bytes));
  g_api.PyBuffer_Release(&view);
  return true;
}

bool Walker::content(Object* object, Kind kind, const Path& path) {
  switch (kind) {
    case Kind::kPlain:
      return true;
    case Kind::kInt:
      put_int(object);
      return true;
    case Kind::kFloat:
      put(Tag::kFloat);
      put(float_bits(object));
      return true;
    case Kind::kComplex:
      put(Tag::kComplex);
      put(float_bits(object));
      put(imaginary_bits(object));
      return true;
    case Kind::kStr: {
      Text text;
      if (!text_of(object, text)) return refuse(refusal::old_text, path);
      put(Tag::kText);
      put_text(object);
      return true;
    }
    case Kind::kBytes:
      put(Tag::kBytes);
      put(bytes_size(object));
      put(bytes_data(object), bytes_size(object));
      return true;
    case Kind::kNumpyScalar:
      return number_of_numpy(object, path);
    case Kind::kTuple:
    case Kind::kTorchSize:
      put(kind == Kind::kTuple ? Tag::kTuple : Tag::kSize);
      if (watch_ != nullptr) watch_->tuple(object);
      return items(tuple_data(object), item_count(object), path);
    case Kind::kList:
      touch(list_data(object));
      put(Tag::kList);
      if (watch_ != nullptr) watch_->list(object);
      return items(list_data(object), item_count(object), path);
    case Kind::kDict:
      touch_dict(object);
      put(Tag::kDict);
      note_dict(object);
      if (watch_ != nullptr) watch_->dict(object, false);
      return dict_items(object, path);
    case Kind::kDefaultDict:
      put(Tag::kDefaultDict);
      note_dict(object);
      if (watch_ != nullptr) {
        watch_->dict(object, false);
        watch_->reference(object, 48);
      }
      return optional(default_factory(object), path.attribute("default_factory")) && dict_items(object, path);
    case Kind::kOrderedDict:
      put(Tag::kOrderedDict);
      note_dict(object);
      if (watch_ != nullptr) watch_->dict(object, true);
      return ordered_items(object, path);
    case Kind::kSet:
    case Kind::kFrozenSet:
      put(kind == Kind::kSet ? Tag::kSet : Tag::kFrozenSet);
      if (watch_ != nullptr) watch_->set(object);
      return set_items(object, path);
    case Kind::kDeque:
      put(Tag::kDeque);
      if (watch_ != nullptr) watch_->give_up();
      return deque_items(object, path);
    default:
      return refuse(refusal::opaque, path, full_type_name(type_of(object)));
  }
}

bool Walker::items(Object* const* data, std::size_t count, const Path& path) {
  put(static_cast<std::uint32_t>(count));
  for (std::size_t i = 0; i < count; ++i) {
    if (!optional(data[i], path.item(i))) return false;
  }
  return true;
}

bool Walker::dict_items(Object* dict, const Path& path) {
  if (walk_.portable_) return dict_in_any_order(dict, path);
  std::ptrdiff_t position = 0;
  for (Object *key, *item; g_api.PyDict_Next(dict, &position, &key, &item) != 0;) {
    if (!value(key, path.note("a key")) || !value(item, path.key(key))) return false;
  }
  put(Tag::kEnd);
  return true;
}

// Dictionaries that were made of sets are in another order in each process. Names first, in alphabetical order.
bool Walker::dict_in_any_order(Object* dict, const Path& path) {
  std::vector<std::pair<std::string, Item>> named;
  std::vector<Item> others;
  std::ptrdiff_t position = 0;
  for (Object *key, *item; g_api.PyDict_Next(dict, &position, &key, &item) != 0;) {
    if (is_exactly(key, g_api.PyUnicode_Type)) {
      named.push_back({text_value(key), {key, item}});
    } else {
      others.push_back({key, item});
    }
  }
  std::stable_sort(named.begin(), named.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Item> items;
  items.reserve(named.size() + others.size());
  for (const auto& [text, item] : named) items.push_back(item);
  items.insert(items.end(), others.begin(), others.end());
  for (const Item& item : items) {
    if (!value(item.key, path.note("a key")) || !value(item.value, path.key(item.key))) return false;
  }
  put(Tag::kEnd);
  return true;
}

// In the order of its own list, which need not be that of its table. No key is looked up: that might run its __eq__.
bool Walker::ordered_items(Object* dict, const Path& path) {
  std::unordered_map<const Object*, Object*> items;
  const OrderedNode* node = first_node(dict);
  bool in_step = true;
  std::ptrdiff_t position = 0;
  for (Object *key, *item; g_api.PyDict_Next(dict, &position, &key, &item) != 0;) {
    in_step = in_step && node != nullptr && node->key == key;
    if (in_step) {
      if (!value(key, path.note("a key")) || !value(item, path.key(key))) return false;
      node = node->next;
    } else {
      items.emplace(key, item);
    }
  }
  for (; node != nullptr; node = node->next) {
    const auto found = items.find(node->key);
    if (found == items.end()) return refuse(refusal::ordered_dict_changed, path);
    if (!value(node->key, path.note("a key")) || !value(found->second, path.key(node->key))) return false;
  }
  put(Tag::kEnd);
  return true;
}

bool Walker::set_items(Object* set, const Path& path) {
  const SetEntry* table = set_table(set);
  const std::size_t size = set_table_size(set);
  put(static_cast<std::uint32_t>(set_size(set)));
  if (walk_.portable_) return set_in_any_order(set);
  for (std::size_t i = 0; i < size; ++i) {
    if (table[i].used() && !value(table[i].key, path.note("an element"))) return false;
  }
  return true;
}

// Strings hash otherwise in each process. Elements that are no plain values count by what they are.
bool Walker::set_in_any_order(Object* set) {
  std::vector<cache::Digest> elements;
  for (std::size_t i = 0; i < set_table_size(set); ++i) {
    const SetEntry& entry = set_table(set)[i];
    if (!entry.used()) continue;
    Walk element = Walk::portable(walk_.keep_addresses_);
    const bool plain = is_plain_value(entry.key) && element.add(entry.key, "an element");
    elements.push_back(plain ? digest_of(element.bytes()) : cache::Digest{portable_name(entry.key), 0});
  }
  put(digest_of_all(std::move(elements)));
  return true;
}

bool Walker::deque_items(Object* deque, const Path& path) {
  const std::size_t count = item_count(deque);
  put(static_cast<std::uint32_t>(count));
  put(deque_limit(deque));
  for (std::size_t i = 0; i < count; ++i) {
    const Reference item(type::sequence_item(g_named_types.deque, deque, static_cast<std::ptrdiff_t>(i)));
    if (!item) return refuse(refusal::deque_unreadable, path);
    if (!value(item.get(), path.item(i))) return false;
  }
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
    put(Tag::kSameDict);
    put(*value);
  }
  bool added = false;
  const std::uint32_t known = walk_.dicts_.number_of(dict, added);
  if (added) {
    walk_.attribute_dicts_.push_back({dict, walk_.seen_.number_of(of, added)});
    return;
  }
  put(Tag::kSameAttributes);
  put(walk_.attribute_dicts_[known].object);
}

// A dictionary that is met as a value.
void Walker::note_dict(Object* dict) {
  if (walk_.attribute_dicts_.empty()) return;
  const std::uint32_t* known = walk_.dicts_.find(dict);
  if (known == nullptr) return;
  put(Tag::kSameAttributes);
  put(walk_.attribute_dicts_[*known].object);
}

bool Walker::attributes(Object* of, Object* dict, const Path& path) {
  if (dict != nullptr) {
    touch_dict(dict);
    note_attributes(of, dict);
    if (watch_ != nullptr) watch_->dict(dict, false);
    std::ptrdiff_t position = 0;
    for (Object *key, *item; g_api.PyDict_Next(dict, &position, &key, &item) != 0;) {
      if (shows_memory(key)) return refuse(refusal::memory_by_address, path.attribute(key));
      if (!value(key, path.note("a name")) || !value(item, is_text(key) ? path.attribute(key) : path.key(key))) {
        return false;
      }
    }
  }
  put(Tag::kEnd);
  return true;
}

bool Walker::hooks(Object* name, Object* dict, bool backward, const Path& path) {
  if (!is_plain_dict(dict) || g_api.PyDict_Size(dict) != 0) {
    if (backward) return refuse(refusal::module_hooks, path, text_value(name));
    return value(name, path.attribute(name)) && value(dict, path.attribute(name));
  }
  if (watch_ != nullptr) watch_->empty_dict(dict);
  put(Tag::kNull);
  if (walk_.expected_ != nullptr) compare(path.attribute(name));
  return true;
}

bool Walker::module_attributes(Object* of, Object* dict, const Path& path) {
  if (dict != nullptr) {
    note_attributes(of, dict);
    if (watch_ != nullptr) watch_->dict(dict, false);
    std::ptrdiff_t position = 0;
    for (Object *key, *item; g_api.PyDict_Next(dict, &position, &key, &item) != 0;) {
      if (starts_with_underscore(key)) {
        if (is_one_of(key, kLeftOut)) continue;
        if (shows_memory(key)) return refuse(refusal::memory_by_address, path.attribute(key));
        const bool backward = is_one_of(key, kBackwardHooks);
        if (backward || is_one_of(key, kHooks)) {
          if (!hooks(key, item, backward, path)) return false;
          continue;
        }
      }
      if (!value(key, path.note("a name")) || !value(item, is_text(key) ? path.attribute(key) : path.key(key))) {
        return false;
      }
    }
  }
  put(Tag::kEnd);
  return true;
}

bool Walker::instance(Object* object, const TypeInfo& info, const Path& path) {
  // What `info` says may be made anew while the object's content is walked.
  const Kind kind = info.kind;
  const bool is_module = info.is_module_class;
  const std::vector<TypeInfo::Slot> slots = info.slots;
  put(Tag::kInstance);
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
  return content(object, kind, path);
}

bool Walker::class_reference(Object* type, const Path& path) {
  if (again(type)) return true;
  const TypeInfo* info = type_info(type);
  if (info == nullptr) throw std::bad_alloc();
  put(info->reference == nullptr ? Tag::kBuiltinClass : Tag::kClass);
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
bool Walker::python_module(Object* module, const Path& path) {
  Object* dict = module_dict(module);
  if (dict != nullptr && is_users_module(dict)) {
    return refuse(refusal::module_of_users, path, text_value(dict_item(dict, "__name__")));
  }
  if (!by_identity(module, Tag::kModule)) return false;
  // Of arguments, and of a result that is a module, only which module it is.
  const bool whole = dict != nullptr && walk_.keep_addresses_ && path.from != nullptr;
  return !whole || again(module) || public_names(dict, path);
}

bool Walker::enum_member(Object* member, const Path& path) {
  put(Tag::kEnum);
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

}  // namespace grape::python::state
