// Reads and makes objects without running Python code: containers of the interpreter, and instances of Python classes
// with what stands in their __dict__, their __slots__ and the container below. After check_objects(), under
// NoCollection, with the GIL; no function leaves an exception set. Those that are not noexcept throw std::bad_alloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/walk/type_info.h"

namespace grape::python::walk {

// How instances of a type are made.
struct Shape {
  Kind kind = Kind::kPlain;  // what they hold beside attributes
  bool exact = false;        // the container's own type: no attributes
  Object* base = nullptr;    // the innermost type of C's
};

// False: neither a known container nor a class made by a `class` statement over one (or over object).
// `slots`: the attributes that are kept in words of the instance.
bool shape_of(Object* type, Shape& out, std::vector<TypeInfo::Slot>& slots);

inline Object*& slot_at(Object* object, std::size_t offset) noexcept {
  return *reinterpret_cast<Object**>(reinterpret_cast<char*>(object) + offset);
}

struct Item {
  Object* key = nullptr;  // null in tuples, lists, sets, deques
  Object* value = nullptr;
};
// What stands in the instance's __dict__, borrowed. False: that is no plain dictionary.
bool read_attributes(Object* object, std::vector<Item>& out);
// The instance's __dict__, a new reference (made if it was not there yet); null: it has none, no memory, or it is no
// plain dictionary.
Object* own_dict(Object* object) noexcept;

// A dictionary's entries, borrowed.
void entries_of(Object* dict, std::vector<Item>& out);
// An OrderedDict has a list of its own for its order. Is that the order of its table?
bool is_in_table_order(Object* dict) noexcept;
// Its items by that list, borrowed. False: they cannot be read.
bool ordered_items(Object* dict, std::vector<Item>& out);
// How many items the container has.
inline std::size_t size_of(const Object* object, Kind kind) noexcept {
  return kind == Kind::kSet || kind == Kind::kFrozenSet ? set_size(object) : item_count(object);
}
// Gives the container's items in their order, each(key, value, index), until that is false; in tuples, lists, sets and
// deques the key is null. False: it was, or they cannot be read.
template <typename Each>
bool each_item(Object* object, Kind kind, const Each& each);
// The same, borrowed. False: they cannot be read.
bool items_of(Object* object, Kind kind, std::vector<Item>& out);
// Every object that `object` refers to, for those that are known no better; borrowed. May throw std::bad_alloc.
void referents_of(Object* object, std::vector<Item>& out);
// What a class and its bases define.
void definitions_of(Object* type, std::vector<Item>& out);

// Does someone hold a weak reference to it?
bool weakly_held(Object* object) noexcept;

// A new instance without attributes and items (a tuple: with `items` empty ones); null: no memory.
Object* new_instance(Object* type, const Shape& shape, std::ptrdiff_t items) noexcept;
// None, bool, int, float, complex, str, bytes, Ellipsis, range; slices and tuples of these.
bool is_plain_value(Object* object) noexcept;
// The same type and the same value, to the bit; for plain values.
bool same_plain_value(Object* a, Object* b) noexcept;
// Are hash and comparison of it done without Python code?
bool is_plain_key(Object* object) noexcept;
// Is a plain value a NaN, or has one in it? As a key it is found by the very object only.
bool has_nan(Object* object) noexcept;
// As a dictionary finds plain keys: 1, 1.0 and True are the same one.
struct PlainKeyHash {
  std::size_t operator()(Object* key) const noexcept;
};
struct PlainKeyEqual {
  bool operator()(Object* a, Object* b) const noexcept;
};

// How a person names an item or attribute: ".name", "[3]", "['key']".
std::string item_label(const Item& item, std::size_t index);
std::string attribute_label(Object* name);

template <typename Each>
bool each_item(Object* object, Kind kind, const Each& each) {
  std::size_t index = 0;
  switch (kind) {
    case Kind::kTuple:
    case Kind::kTorchSize:
    case Kind::kList: {
      Object* const* const data = kind == Kind::kList ? list_data(object) : tuple_data(object);
      for (const std::size_t count = item_count(object); index < count; ++index) {
        if (!each(nullptr, data[index], index)) return false;
      }
      return true;
    }
    case Kind::kOrderedDict:
      if (!is_in_table_order(object)) {
        std::vector<Item> items;
        if (!ordered_items(object, items)) return false;
        for (; index < items.size(); ++index) {
          if (!each(items[index].key, items[index].value, index)) return false;
        }
        return true;
      }
      [[fallthrough]];
    case Kind::kDict:
    case Kind::kDefaultDict: {
      std::ptrdiff_t position = 0;
      for (Object *key, *item; g_api.PyDict_Next(object, &position, &key, &item) != 0;) {
        if (!each(key, item, index++)) return false;
      }
      return true;
    }
    case Kind::kSet:
    case Kind::kFrozenSet: {
      const SetEntry* const table = set_table(object);
      for (const std::size_t size = set_table_size(object); index < size; ++index) {
        if (table[index].used() && !each(nullptr, table[index].key, index)) return false;
      }
      return true;
    }
    case Kind::kDeque:
      for (const std::size_t count = item_count(object); index < count; ++index) {
        const Reference item(type::sequence_item(g_named_types.deque, object, static_cast<std::ptrdiff_t>(index)));
        if (!item || !each(nullptr, item.get(), index)) return false;  // the deque holds it
      }
      return true;
    default:
      return true;
  }
}

}  // namespace grape::python::walk
