// Instances of Python classes and of the interpreter's containers, read and made without running Python code: what
// stands in __dict__, in __slots__ and in the container below. After check_objects(), under NoCollection, with the GIL;
// no function leaves an exception set. Those that are not noexcept throw std::bad_alloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/walk/type_info.h"

namespace grape::python::state {

// What an object holds beside attributes.
enum class Content : std::uint8_t { kNothing, kTuple, kList, kDict, kOrderedDict, kSet, kDeque };

// How instances of a type are made.
struct Shape {
  Content content = Content::kNothing;
  bool exact = false;      // the container's own type: no attributes
  bool has_dict = false;   // instances have a __dict__
  Object* base = nullptr;  // the innermost type of C's
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
// The container's items in their order, borrowed. False: they cannot be read.
bool items_of(Object* object, Content content, std::vector<Item>& out);
// Every object that `object` refers to, for those that are known no better; borrowed. False: that cannot be told.
bool referents_of(Object* object, std::vector<Item>& out);
// What a class and its bases define.
void definitions_of(Object* type, std::vector<Item>& out);

// Does someone hold a weak reference to it?
bool weakly_held(Object* object) noexcept;

// A new instance without attributes and items (a tuple: with `items` empty ones); null: no memory.
Object* new_instance(Object* type, const Shape& shape, std::ptrdiff_t items) noexcept;
// Fills a new deque. `limit`: an int or None.
bool fill_deque(Object* deque, Object* items, Object* limit) noexcept;

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

}  // namespace grape::python::state
