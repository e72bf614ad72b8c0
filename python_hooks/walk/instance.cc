#include "python_hooks/walk/instance.h"

#include <algorithm>
#include <new>
#include <unordered_map>

namespace grape::python::walk {
namespace {

int visit(Object* referent, void* out) {
  try {
    static_cast<std::vector<Item>*>(out)->push_back({nullptr, referent});
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
  }
}

bool identity_hashed(Object* type) noexcept {
  return type::hash(type) == type::hash(g_api.PyBaseObject_Type) &&
         type::comparison(type) == type::comparison(g_api.PyBaseObject_Type);
}

// The parts of a plain value that consists of others. False: it has none.
bool parts_of(const Object* object, Object* const*& parts, std::size_t& count) noexcept {
  if (is_exactly(object, g_api.PyTuple_Type)) {
    parts = tuple_data(object);
    count = item_count(object);
  } else if (is_exactly(object, g_api.PySlice_Type) || is_exactly(object, g_api.PyRange_Type)) {
    parts = three_parts(object);
    count = 3;
  } else {
    return false;
  }
  return true;
}

}  // namespace

bool shape_of(Object* type, Shape& out, std::vector<TypeInfo::Slot>& slots) {
  const TypeInfo* info = type_info(type);
  if (info == nullptr) throw std::bad_alloc();
  out = {info->kind, !info->made_in_python, type};
  if (!is(info->kind, kMadeAgain)) return false;
  while (type::made_in_python(out.base)) out.base = type::base(out.base);
  slots = info->slots;
  if (info->kind == Kind::kDefaultDict)
    slots.push_back({"default_factory", static_cast<std::uint32_t>(kDefaultFactory)});
  return true;
}

bool read_attributes(Object* object, std::vector<Item>& out) {
  Object* dict = instance_dict(object);
  if (dict == nullptr) return true;
  if (!is_exactly(dict, g_api.PyDict_Type)) return false;
  entries_of(dict, out);
  return true;
}

Object* own_dict(Object* object) noexcept {
  Object* dict = type::dict_offset(type_of(object)) != 0 ? g_api.PyObject_GenericGetDict(object, nullptr) : nullptr;
  if (dict == nullptr) {
    g_api.PyErr_Clear();
  } else if (!is_exactly(dict, g_api.PyDict_Type)) {
    g_api.Py_DecRef(dict);
    dict = nullptr;
  }
  return dict;
}

void entries_of(Object* dict, std::vector<Item>& out) {
  std::ptrdiff_t position = 0;
  Item entry;
  while (g_api.PyDict_Next(dict, &position, &entry.key, &entry.value) != 0) out.push_back(entry);
}

bool is_in_table_order(Object* dict) noexcept {
  const OrderedNode* node = first_node(dict);
  std::ptrdiff_t position = 0;
  for (Object *key, *item; g_api.PyDict_Next(dict, &position, &key, &item) != 0; node = node->next) {
    if (node == nullptr || node->key != key) return false;
  }
  return node == nullptr;
}

// No key is looked up: that might run its __eq__.
bool ordered_items(Object* dict, std::vector<Item>& out) {
  std::unordered_map<const Object*, Object*> values;
  std::vector<Item> entries;
  entries_of(dict, entries);
  for (const Item& entry : entries) values.emplace(entry.key, entry.value);
  for (const OrderedNode* node = first_node(dict); node != nullptr; node = node->next) {
    const auto value = values.find(node->key);
    if (value == values.end()) return false;
    out.push_back({node->key, value->second});
  }
  return out.size() == entries.size();
}

bool items_of(Object* object, Kind kind, std::vector<Item>& out) {
  return each_item(object, kind, [&](Object* key, Object* item, std::size_t) {
    out.push_back({key, item});
    return true;
  });
}

void referents_of(Object* object, std::vector<Item>& out) {
  if ((type::flags(type_of(object)) & type::kCollected) == 0) return;
  const type::Traverse traverse = type::traverse(type_of(object));  // each type that is collected has one
  if (traverse == nullptr || traverse(object, visit, &out) != 0) throw std::bad_alloc();
}

void definitions_of(Object* type, std::vector<Item>& out) {
  Object* mro = type::mro(type);
  for (std::size_t i = 0; i < item_count(mro); ++i) {
    Object* const base = tuple_data(mro)[i];
    if (type::is_heap(base) && type::dict(base) != nullptr) entries_of(type::dict(base), out);
  }
}

bool weakly_held(Object* object) noexcept {
  const std::ptrdiff_t offset = type::weak_list_offset(type_of(object));
  return offset != 0 && *reinterpret_cast<Object**>(reinterpret_cast<char*>(object) + offset) != nullptr;
}

Object* new_instance(Object* type, const Shape& shape, std::ptrdiff_t items) noexcept {
  Object* made = nullptr;
  if (shape.kind == Kind::kTuple) {
    made = shape.exact ? g_api.PyTuple_New(items) : type::new_tuple(type, static_cast<std::size_t>(items));
  } else if (shape.exact && shape.kind == Kind::kList) {
    made = g_api.PyList_New(items);
  } else if (type == g_api.PyDict_Type) {
    made = g_api.PyDict_New();
  } else {
    const Reference nothing(g_api.PyTuple_New(0));
    made = nothing ? type::make(shape.base)(type, nothing.get(), nullptr) : nullptr;
  }
  if (made == nullptr) g_api.PyErr_Clear();
  return made;
}

bool is_plain_value(Object* object) noexcept {
  if (is_plain_type(type_of(object))) return true;
  Object* const* parts = nullptr;
  std::size_t count = 0;
  if (!parts_of(object, parts, count)) return false;
  for (std::size_t i = 0; i < count; ++i) {
    if (parts[i] == nullptr || !is_plain_value(parts[i])) return false;
  }
  return true;
}

bool same_plain_value(Object* a, Object* b) noexcept {
  if (a == b) return true;
  if (type_of(a) != type_of(b)) return false;
  if (is_exactly(a, g_api.PyFloat_Type)) return float_bits(a) == float_bits(b);
  if (is_exactly(a, g_api.PyComplex_Type)) {
    return float_bits(a) == float_bits(b) && imaginary_bits(a) == imaginary_bits(b);
  }
  Object *const *left = nullptr, *const *right = nullptr;
  std::size_t count = 0, other_count = 0;
  if (parts_of(a, left, count) && parts_of(b, right, other_count)) {
    if (count != other_count) return false;
    for (std::size_t i = 0; i < count; ++i) {
      if (!same_plain_value(left[i], right[i])) return false;
    }
    return true;
  }
  return PlainKeyEqual()(a, b);
}

bool is_plain_key(Object* object) noexcept { return is_plain_value(object) || identity_hashed(type_of(object)); }

bool has_nan(Object* object) noexcept {
  const auto is_nan = [](std::uint64_t bits) { return bits << 1 > std::uint64_t{0x7FF} << 53; };  // without the sign
  if (is_exactly(object, g_api.PyFloat_Type)) return is_nan(float_bits(object));
  if (is_exactly(object, g_api.PyComplex_Type)) return is_nan(float_bits(object)) || is_nan(imaginary_bits(object));
  Object* const* parts = nullptr;
  std::size_t count = 0;
  return parts_of(object, parts, count) && std::any_of(parts, parts + count, has_nan);
}

std::size_t PlainKeyHash::operator()(Object* key) const noexcept {
  const std::ptrdiff_t hash = g_api.PyObject_Hash(key);
  if (hash == -1) g_api.PyErr_Clear();
  return static_cast<std::size_t>(hash);
}

bool PlainKeyEqual::operator()(Object* a, Object* b) const noexcept {
  constexpr int kEqual = 2;  // Py_EQ
  const int same = g_api.PyObject_RichCompareBool(a, b, kEqual);
  if (same < 0) g_api.PyErr_Clear();
  return same == 1;
}

std::string item_label(const Item& item, std::size_t index) {
  if (item.key == nullptr) return "[" + std::to_string(index) + "]";
  if (is_exactly(item.key, g_api.PyUnicode_Type)) {
    char text[64];
    return "['" + std::string(text, copy_text(item.key, text, sizeof(text))) + "']";
  }
  if (is_exactly(item.key, g_api.PyLong_Type)) {
    const long number = g_api.PyLong_AsLong(item.key);
    g_api.PyErr_Clear();
    return "[" + std::to_string(number) + "]";
  }
  return std::string("[<") + type::name(type_of(item.key)) + ">]";
}

std::string attribute_label(Object* name) {
  char text[64];
  return "." + std::string(text, is_text(name) ? copy_text(name, text, sizeof(text)) : 0);
}

}  // namespace grape::python::walk
