#include "python_hooks/walk/type_info.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <new>

#include "python_hooks/interpreter/code_origin.h"
#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/flat_map.h"
#include "python_hooks/torch/torch_api.h"
#include "python_hooks/walk/identity.h"
#include "python_hooks/walk/stand_ins.h"

namespace grape::python::walk {
namespace {

constexpr int kDeepest = 8;  // of plain values in a library's class

bool is_text_key(Object* key) noexcept { return is_exactly(key, g_api.PyUnicode_Type); }

// Does a module hold the class under the name that the class says it has there? Of C's it is taken to.
bool is_held_by(Object* globals, Object* type) noexcept {
  Object* name = type::is_heap(type) ? field<Object*>(type, type::g_texts[1]) : nullptr;
  char text[256];
  const std::size_t size = name != nullptr && is_text(name) ? copy_text(name, text, sizeof(text) - 1) : 0;
  if (size == 0) return true;
  text[size] = '\0';
  Object* found = nullptr;
  for (char* part = text; part != nullptr;) {
    char* dot = std::strchr(part, '.');
    if (dot != nullptr) *dot = '\0';
    Object* holder = found == nullptr ? globals : is_type(found) ? type::dict(found) : nullptr;
    found = holder != nullptr ? dict_item(holder, part) : nullptr;
    if (found == nullptr) return false;
    part = dot != nullptr ? dot + 1 : nullptr;
  }
  return found == type;
}

// Modules whose functions make classes for others, which then say that they are from there.
bool makes_classes(const char* module) noexcept {
  for (const char* known : {"types", "abc", "_py_abc", "collections", "dataclasses", "enum", "typing"}) {
    if (std::strcmp(known, module) == 0) return true;
  }
  return false;
}

bool is_c_descriptor(Object* type) noexcept {
  return type == g_api.PyMethodDescr_Type || type == g_api.PyGetSetDescr_Type || type == g_api.PyMemberDescr_Type ||
         type == g_api.PyWrapperDescr_Type || type == g_api.PyClassMethodDescr_Type;
}

// Null: its instances are not laid out as one reference behind their head.
Object* view_type(const char* module, const char* name) noexcept {
  Object* const type = module_member(module, name);
  return type != nullptr && is_type(type) && type::basic_size(type) == 24 && type::dict_offset(type) == 0 ? type
                                                                                                          : nullptr;
}

bool is_method_wrapper(Object* type) noexcept {
  return type == g_api.PyStaticMethod_Type || type == g_api.PyClassMethod_Type || type == g_api.PyProperty_Type;
}

bool is_container(Object* value) noexcept { return is(exact_kind(type_of(value)), kMutable); }

}  // namespace

bool is_library_function(Object* function) noexcept {
  const FunctionParts parts = function_parts(function);
  return origin_of(parts.code, parts.globals) != CodeOrigin::kUser;
}

Kind exact_kind(Object* type) noexcept {
  static const Object* const known[] = {
#define GRAPE_KIND(name, type, ...) type,
#include "python_hooks/walk/kinds.def"
#undef GRAPE_KIND
  };
  const auto* const found = std::find(std::begin(known), std::end(known), type);
  if (found != std::end(known)) return static_cast<Kind>(found - known);
  return is_c_descriptor(type) ? Kind::kDescriptor : Kind::kOpaque;
}

bool is_dunder(Object* name) noexcept {
  Text text;
  if (!is_text_key(name) || !text_of(name, text) || text.width != 1 || text.characters < 5) return false;
  const char* data = static_cast<const char*>(text.data);
  return std::memcmp(data, "__", 2) == 0 && std::memcmp(data + text.characters - 2, "__", 2) == 0;
}

bool is_library_class(Object* type) noexcept {
  Object* dict = type::dict(type);
  Object* name = dict_item(dict, "__module__");
  if (name == nullptr || !is_text(name)) return false;
  char module[256];
  module[copy_text(name, module, sizeof(module) - 1)] = '\0';
  Object* found = imported_module(module);
  Object* globals = found != nullptr ? module_dict(found) : nullptr;
  if (globals != nullptr && origin_of_globals(globals) == CodeOrigin::kUser) return false;
  if (globals != nullptr && is_held_by(globals, type)) return true;
  bool any = false;
  std::ptrdiff_t position = 0;
  for (Object *key, *value; g_api.PyDict_Next(dict, &position, &key, &value) != 0;) {
    if (!is_function(value)) continue;
    if (!is_library_function(value)) return false;
    any = true;
  }
  return any || (globals != nullptr && !makes_classes(module));
}

namespace {

// From 3.14, the function that makes a class's annotations when they are asked for; its closure holds all of the class.
bool is_annotate(Object* name) noexcept { return text_is(name, "__annotate_func__"); }

// What the interpreter and copy write into a class when they are first asked, to remember it.
bool is_note(Object* name, Object* value) noexcept {
  return text_is(name, "__slotnames__") || text_is(name, "__annotations__") || text_is(name, "__annotations_cache__") ||
         (value == g_api._Py_NoneStruct && is_annotate(name));
}

// A class by everything that it and its bases define: one more digest when anything of it is another.
class ClassDigest {
 public:
  explicit ClassDigest(TypeInfo& info) noexcept : info_(info) {}

  void add_class(Object* type) {
    Object* dict = type::dict(type);
    put(identity_of(type));
    put(identity_of(type_of(type)));
    if (dict == nullptr) return;
    const bool librarys = is_library_class(type), is_enum = is_enum_class(type), by_identity = librarys || is_enum;
    std::ptrdiff_t position = 0;
    for (Object *name, *value; g_api.PyDict_Next(dict, &position, &name, &value) != 0;) {
      if (is_note(name, value)) continue;
      put_value(name, 0);
      const bool members = is_enum && !librarys && is_content_of_enum(type, name, value);
      const bool kept = is_container(value) ? !is_dunder(name) : stands_in(name, value);
      const bool shallow = librarys && !is_enum && kept;
      const bool deep = !is_annotate(name) && (by_identity ? is_users_function(value) : counts_by_value(name, value));
      put(deep || shallow || members);
      if (deep || shallow || members) {
        put_address(type_of(value));
        info_.by_value.push_back({name, value, shallow});
      } else {
        put_value(value, 0);
      }
    }
  }

  void finish() noexcept {
    const XXH128_hash_t hash = XXH3_128bits(bytes_.data(), bytes_.size());
    info_.digest[0] = hash.low64;
    info_.digest[1] = hash.high64;
  }

  static bool is_enum_class(Object* type) noexcept {
    return g_api.PyType_IsSubtype(type_of(type), g_named_types.enum_meta) != 0;
  }

 private:
  template <typename T>
  void put(const T& value) {
    static_assert(!std::is_pointer_v<T>, "see put_address");
    put_bytes(&value, sizeof value);
  }
  void put_address(const void* address) { put(reinterpret_cast<std::uint64_t>(address)); }
  void put_bytes(const void* data, std::size_t size) {
    const auto* bytes = static_cast<const std::uint8_t*>(data);
    bytes_.insert(bytes_.end(), bytes, bytes + size);
  }

  static bool is_flag(Object* type) noexcept {
    Object* mro = type::mro(type);
    for (std::size_t i = 0; i < item_count(mro); ++i) {
      if (std::strcmp(type::name(tuple_data(mro)[i]), "Flag") == 0) return true;
    }
    return false;
  }

  // An enumeration's members are reached by their names here, and by their values, whatever stands for them in the
  // class. A Flag adds to its values as combinations are asked for. And containers that are no members.
  static bool is_content_of_enum(Object* type, Object* name, Object* value) noexcept {
    char first = '\0';
    if (text_is(name, "_member_map_") || text_is(name, "_member_names_")) return true;
    if (text_is(name, "_value2member_map_")) return !is_flag(type);
    return is_container(value) && is_text_key(name) && copy_text(name, &first, 1) == 1 && first != '_';
  }

  // A function of the user's, also one that was put into a library's class.
  static bool is_users_function(Object* value) noexcept {
    Object* function = is_method_wrapper(type_of(value)) ? wrapped_function(value) : value;
    return function != nullptr && is_function(function) && !is_library_function(function);
  }

  // In a library's class: what the program may have put in the place of something, and what the class counts with.
  static bool stands_in(Object* name, Object* value) noexcept {
    char first = '\0';
    const bool own = is_text_key(name) && copy_text(name, &first, 1) == 1 && first == '_' && !is_dunder(name);
    return own ? is_users_callable(value) : may_hold_state(value);
  }

  // May `value`, an attribute of a class of the user's, hold anything that can change while the attribute stays?
  static bool counts_by_value(Object* name, Object* value) noexcept {
    Object* type = type_of(value);
    if (is_plain_type(type) || type == g_api.PyBaseObject_Type) return false;
    if (is_c_descriptor(type) || type == g_named_types.tuple_getter) return false;
    if (type == g_api.PyCFunction_Type) return is_bound_builtin(value);
    if (is_type(value)) return type::is_heap(value) && !is_dunder(name);  // its attributes, as "Config.Model.scale"
    if (is_function(value)) {
      return function_parts(value).closure != nullptr || !is_library_function(value);
    }
    // What the interpreter and the libraries write into a class (__annotations__, _abc_impl, ...) is made once.
    return is_method_wrapper(type) || !(is_dunder(name) || text_is(name, "_abc_impl"));
  }

  void put_value(Object* value, int depth);
  void put_items(Object* const* items, std::size_t count, int depth) {
    put(count);
    for (std::size_t i = 0; i < count; ++i) put_value(items[i], depth + 1);
  }

  TypeInfo& info_;
  std::vector<std::uint8_t> bytes_;
};

void ClassDigest::put_value(Object* value, int depth) {
  put(value != nullptr);
  if (value == nullptr) return;
  Object* type = type_of(value);
  put_address(type);
  Text text;
  if (depth > kDeepest) {
    put_address(value);
  } else if (type == g_api.PyUnicode_Type && text_of(value, text)) {
    put(text.characters * text.width);
    put_bytes(text.data, text.characters * text.width);
  } else if (type == g_api.PyFloat_Type) {
    put(float_bits(value));
  } else if (type == g_api.PyLong_Type) {
    int overflow = 0;
    put(g_api.PyLong_AsLongLongAndOverflow(value, &overflow));
    put_address(overflow == 0 ? nullptr : value);
  } else if (type == g_api.PyTuple_Type) {
    put_items(tuple_data(value), item_count(value), depth);
  } else if (type == g_api.PyList_Type) {
    put_items(list_data(value), item_count(value), depth);
  } else if (type == g_api.PyDict_Type) {
    put(g_api.PyDict_Size(value));
    std::ptrdiff_t position = 0;
    for (Object *key, *item; g_api.PyDict_Next(value, &position, &key, &item) != 0;) {
      put_value(key, depth + 1);
      put_value(item, depth + 1);
    }
  } else if (type == g_api.PyStaticMethod_Type || type == g_api.PyClassMethod_Type) {
    put_value(wrapped_function(value), depth + 1);
  } else if (type == g_api.PyProperty_Type) {
    for (unsigned part = 0; part < 3; ++part) put_value(property_part(value, part), depth + 1);
  } else if (type == g_api.PyCFunction_Type) {
    put_address(builtin_definition(value));
  } else if (is_c_descriptor(type)) {
    put_address(field<const void*>(value, 40));
  } else {
    const std::uint64_t identity = type::is_heap(type) || is_function(value) || is_type(value) ? identity_of(value) : 0;
    put(identity);
    if (identity == 0) put_address(value);
  }
}

// Is it typing.Generic, as C has it from 3.12 on, whose instances hold nothing?
bool is_generic(Object* type) noexcept {
  return type == module_member("typing", "Generic") && type::base(type) == g_api.PyBaseObject_Type &&
         type::basic_size(type) == type::basic_size(g_api.PyBaseObject_Type) && type::item_size(type) == 0 &&
         type::dict_offset(type) == 0 && type::weak_list_offset(type) == 0;
}

// Of instances of a class made in Python, by the first base that was not. Slots on the way are collected.
Kind base_kind(Object* type, TypeInfo& info) {
  const auto collect = [](const char* name, std::size_t offset, void* slots) {
    static_cast<std::vector<TypeInfo::Slot>*>(slots)->push_back({name, static_cast<std::uint32_t>(offset)});
  };
  while (type::made_in_python(type)) {
    type::own_slots(type, collect, &info.slots);
    type = type::base(type);
  }
  if (is_generic(type)) type = type::base(type);
  if (type == g_api.PyBaseObject_Type || type == g_named_types.simple_namespace) return Kind::kPlain;
  if (g_api.PyType_IsSubtype(type, g_api.PyModule_Type) != 0) return Kind::kModule;
  const Kind kind = exact_kind(type);
  return is(kind, kBase) ? kind : Kind::kOpaque;
}

bool is_logger(Object* type) noexcept {
  Object* logger = module_member("logging", "Logger");
  return logger != nullptr && is_type(logger) && g_api.PyType_IsSubtype(type, logger) != 0;
}

// numpy.float64 and its like: a float under another name.
bool is_bare_float(Object* type) noexcept {
  return g_api.PyType_IsSubtype(type, g_api.PyFloat_Type) != 0 && !type::is_heap(type) &&
         type::dict_offset(type) == 0 && type::basic_size(type) == type::basic_size(g_api.PyFloat_Type);
}

// numpy.int64, numpy.bool_, numpy.float32: a number that never changes, and nothing beside it. Of a time the unit is.
bool is_numpy_scalar(Object* type) noexcept {
  if (type::is_heap(type) || type::dict_offset(type) != 0) return false;
  const auto is = [type](const char* name) {
    Object* base = module_member("numpy", name);
    return base != nullptr && is_type(base) && g_api.PyType_IsSubtype(type, base) != 0;
  };
  return (is("number") || is("bool_")) && !is("timedelta64");
}

// Does a class made in Python tell others where memory of its objects lies?
bool shows_memory(Object* type) noexcept {
  Object* mro = type::mro(type);
  for (std::size_t i = 0; i < item_count(mro); ++i) {
    Object* dict = type::dict(tuple_data(mro)[i]);
    for (const char* name : kArrayInterfaces) {
      if (dict != nullptr && dict_item(dict, name) != nullptr) return true;
    }
  }
  return false;
}

Kind kind_of(Object* type, TypeInfo& info) {
  switch (torch::torch_type(type)) {
    case torch::TorchType::kTensor:
      return Kind::kTensor;
    case torch::TorchType::kConstant:
      return Kind::kTorchConstant;
    case torch::TorchType::kDevice:
      return Kind::kTorchDevice;
    case torch::TorchType::kSize:
      return Kind::kTorchSize;
    case torch::TorchType::kOther:
      break;
  }
  if ((type::flags(type) & (1UL << 31)) != 0) return Kind::kType;  // metaclasses
  if (ClassDigest::is_enum_class(type)) return Kind::kEnum;
  if (is_logger(type)) return Kind::kLogger;
  if (const Kind exact = exact_kind(type); exact != Kind::kOpaque) return exact;
  info.made_in_python = type::made_in_python(type);
  info.shows_memory = info.made_in_python && shows_memory(type);
  if (info.made_in_python) return info.shows_memory ? Kind::kOpaque : base_kind(type, info);
  const Kind named = type == g_named_types.simple_namespace ? Kind::kPlain
                     : is_bare_float(type)                  ? Kind::kFloat
                     : is_numpy_scalar(type)                ? Kind::kNumpyScalar
                     : type::is_struct_sequence(type)       ? Kind::kTuple
                                                            : Kind::kOpaque;
  info.made_in_python = named != Kind::kOpaque;
  if (info.made_in_python) return named;
  return g_api.PyType_IsSubtype(type, g_api.PyModule_Type) != 0 ? Kind::kModule : Kind::kOpaque;
}

bool is_current(const TypeInfo& info) noexcept {
  if (info.type == nullptr || (!info.with_torch && torch::module_class() != nullptr)) return false;
  if (info.reference == nullptr) return true;  // a type of C's cannot change
  return info.origins == origins_epoch() && referent(info.reference) == info.type && info.version != 0 &&
         type::version(info.type) == info.version;
}

void describe(Object* type, TypeInfo& info) {
  Object* reference = info.reference;
  info = TypeInfo();
  if (reference != nullptr) g_api.Py_DecRef(reference);
  info.with_torch = torch::module_class() != nullptr;
  info.origins = origins_epoch();
  info.kind = kind_of(type, info);
  info.is_module_class = torch::module_class() != nullptr && g_api.PyType_IsSubtype(type, torch::module_class()) != 0;
  if (!type::is_heap(type)) {
    info.identity = reinterpret_cast<std::uint64_t>(type);
    info.type = type;
    return;
  }
  info.identity = identity_of(type);
  info.librarys = is_library_class(type);
  info.reference = g_api.PyWeakref_NewRef(type, nullptr);
  if (info.reference == nullptr) throw std::bad_alloc();
  ClassDigest digest(info);
  Object* mro = type::mro(type);
  for (std::size_t i = 0; i < item_count(mro); ++i) {
    if (type::is_heap(tuple_data(mro)[i])) digest.add_class(tuple_data(mro)[i]);
  }
  digest.finish();
  info.version = type::renew_version(type);
  info.type = type;
}

using KnownTypes = FlatMap<AddressKey, TypeInfo*>;

__attribute__((noinline)) const TypeInfo* described(Object* type, TypeInfo* const* before, KnownTypes& known) {
  TypeInfo* info = before != nullptr ? *before : new TypeInfo;
  if (before == nullptr && !known.put({type}, info)) {
    delete info;
    return nullptr;
  }
  describe(type, *info);
  return info;
}

}  // namespace

const TypeInfo* type_info(Object* type) {
  static auto& known = *new KnownTypes;
  TypeInfo** found = known.find({type});
  return found != nullptr && is_current(**found) ? *found : described(type, found, known);
}

}  // namespace grape::python::walk
