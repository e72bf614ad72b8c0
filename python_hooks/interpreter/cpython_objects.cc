#include "python_hooks/interpreter/cpython_objects.h"

#include <cstring>
#include <initializer_list>

namespace grape::python {

NamedTypes g_named_types;
std::size_t type::g_texts[type::kTexts];

namespace {

constexpr unsigned long kValidVersion = 1UL << 19;    // up to 3.12
constexpr unsigned long kManagedDict = 1UL << 4;      // 3.11
constexpr unsigned long kManagedWeakList = 1UL << 3;  // 3.12
constexpr int kObjectMember = 16;                     // PyMemberDef's type of an attribute in __slots__

// PyMemberDef, the same in every version.
struct Member {
  const char* name;
  int type;
  std::ptrdiff_t offset;
  int flags;
  const char* documentation;
};

const void* g_instance_dealloc = nullptr;  // of every class made in Python

const Member* members(const Object* type) noexcept { return field<const Member*>(type, 240); }

// What the checks look at, made by Python code.
constexpr char kSamples[] =
    "import collections, functools, enum, weakref\n"
    "def outer(x):\n"
    "  def function(a, b=5, *, c=7): return x\n"
    "  return function\n"
    "function = outer([])\n"
    "function.attribute = 1\n"
    "function.__doc__, function.__module__ = 'about', 'somewhere'\n"
    "name, qualified_name, about, somewhere = function.__name__, function.__qualname__, 'about', 'somewhere'\n"
    "code, closure = function.__code__, function.__closure__\n"
    "defaults, keyword_defaults = function.__defaults__, function.__kwdefaults__\n"
    "attributes, cell, inside = function.__dict__, closure[0], closure[0].cell_contents\n"
    "class Base:\n"
    "  __slots__ = ('first', 'second')\n"
    "  def method(self): pass\n"
    "class Plain(Base): value = 3\n"
    "Plain.__name__, Plain.__qualname__ = 'short name', 'long name'\n"
    "short_name, long_name = Plain.__name__, Plain.__qualname__\n"
    "class Slots(list): __slots__ = ('third', '__weakref__')\n"
    "class Ending:\n"
    "  def __del__(self): pass\n"
    "class Pair(tuple): pass\n"
    "plain = Plain()\n"
    "plain.first, plain.one, plain.two = inside, code, closure\n"
    "method = plain.method\n"
    "method_function, builtin = Base.method, inside.append\n"
    "partial = functools.partial(function, code, k=closure)\n"
    "partial.extra = 1\n"
    "partial_arguments, partial_keywords, partial_dict = partial.args, partial.keywords, partial.__dict__\n"
    "static, klass, prop = staticmethod(function), classmethod(function), property(function, outer, None)\n"
    "ordered = collections.OrderedDict([('one', 1), ('two', 2), ('three', 3)])\n"
    "ordered.move_to_end('one')\n"
    "default = collections.defaultdict(outer)\n"
    "deque = collections.deque([code, closure], 7)\n"
    "some = {'one', 'two', 'three', 'four', 'five', 'six'}\n"
    "some.discard('two')\n"
    "weak = weakref.ref(plain, outer)\n"
    "span, part, pair = range(1, 9, 2), slice(code, closure, cell), Pair((code, closure))\n"
    "real, complex_number = 1.5, 1.5 - 2j\n"
    "two_wide = chr(0x8461) * 2\n"
    "alias, union = list[int], int | str\n"
    "globals_here = globals()\n";

class Samples {
 public:
  explicit Samples(Object* dict) noexcept : dict_(dict) {}
  Object* operator[](const char* name) const noexcept {
    Object* object = dict_item(dict_, name);
    if (object == nullptr) missing_ = true;
    return object != nullptr ? object : dict_;
  }
  bool complete() const noexcept { return !missing_; }

 private:
  Object* dict_;
  mutable bool missing_ = false;
};

bool check_functions(const Samples& samples) noexcept {
  Object* function = samples["function"];
  const FunctionParts parts = function_parts(function);
  const PartialParts partial = partial_parts(samples["partial"]);
  return parts.code == samples["code"] && parts.globals == samples["globals_here"] &&
         parts.defaults == samples["defaults"] && parts.keyword_defaults == samples["keyword_defaults"] &&
         parts.closure == samples["closure"] && parts.attributes == samples["attributes"] &&
         cell_content(samples["cell"]) == samples["inside"] && method_self(samples["method"]) == samples["plain"] &&
         method_function(samples["method"]) == samples["method_function"] &&
         builtin_self(samples["builtin"]) == samples["inside"] && partial.function == function &&
         partial.arguments == samples["partial_arguments"] && partial.keywords == samples["partial_keywords"] &&
         partial.attributes == samples["partial_dict"] && wrapped_function(samples["static"]) == function &&
         wrapped_function(samples["klass"]) == function && property_part(samples["prop"], 0) == function &&
         property_part(samples["prop"], 1) == samples["outer"] && referent(samples["weak"]) == samples["plain"] &&
         weak_callback(samples["weak"]) == samples["outer"];
}

bool check_texts(const Samples& samples) noexcept {
  const char* const of_function[] = {"name", "qualified_name", "about", "somewhere"};
  for (std::size_t i = 0; i < kFunctionTexts; ++i) {
    if (function_text(samples["function"], i) != samples[of_function[i]]) return false;
  }
  // A class's stand behind what all types have, one after the other.
  constexpr std::size_t kBegin = 408;
  const char* const of_class[] = {"short_name", "long_name"};
  const Object* type = samples["Plain"];
  const auto size = static_cast<std::size_t>(type::basic_size(g_api.PyType_Type));
  for (std::size_t i = 0; i < type::kTexts; ++i) {
    std::size_t at = kBegin;
    while (at < size && field<Object*>(type, at) != samples[of_class[i]]) at += sizeof(void*);
    if (at >= size) return false;
    type::g_texts[i] = at;
  }
  return true;
}

bool check_containers(const Samples& samples) noexcept {
  Object *code = samples["code"], *closure = samples["closure"];
  const OrderedNode* node = first_node(samples["ordered"]);
  bool right = true;
  for (const char* name : {"two", "three", "one"}) {
    right = right && node != nullptr && text_is(node->key, name);
    node = right ? node->next : nullptr;
  }
  std::size_t used = 0;
  Object* some = samples["some"];
  for (std::size_t i = 0; i < set_table_size(some) && i < 64; ++i) used += set_table(some)[i].used() ? 1 : 0;
  const Reference second(type::sequence_item(g_named_types.deque, samples["deque"], 1));
  Text text;
  return right && node == nullptr && used == 5 && set_size(some) == 5 && second.get() == closure &&
         deque_limit(samples["deque"]) == 7 && default_factory(samples["default"]) == samples["outer"] &&
         item_count(samples["pair"]) == 2 && tuple_data(samples["pair"])[0] == code &&
         tuple_data(samples["pair"])[1] == closure && three_parts(samples["part"])[0] == code &&
         three_parts(samples["part"])[2] == samples["cell"] &&
         g_api.PyLong_AsLong(three_parts(samples["span"])[1]) == 9 &&
         float_bits(samples["real"]) == 0x3FF8000000000000U &&
         imaginary_bits(samples["complex_number"]) == 0xC000000000000000U && text_of(samples["two_wide"], text) &&
         text.width == 2 && text.characters == 2 && field<std::uint16_t>(text.data, 2) == 0x8461;
}

bool has_part(Object* object, std::size_t part, const char* name) noexcept {
  const Reference value(g_api.PyObject_GetAttrString(object, name));
  return value && three_parts(object)[part] == value.get();
}

// Where one of them is laid out otherwise it is not known.
void find_aliases(const Samples& samples) noexcept {
  Object *alias = samples["alias"], *of_types = samples["union"];
  const bool alias_fits = has_part(alias, 0, "__origin__") && has_part(alias, 1, "__args__");
  g_named_types.generic_alias = alias_fits ? type_of(alias) : nullptr;
  g_named_types.union_type = has_part(of_types, 0, "__args__") ? type_of(of_types) : nullptr;
}

void count_slots(const char*, std::size_t, void* data) { ++*static_cast<std::size_t*>(data); }

bool check_types(const Samples& samples) noexcept {
  Object *base = samples["Base"], *plain = samples["Plain"], *slots = samples["Slots"], *object = samples["plain"];
  g_instance_dealloc = type::deallocate(base);
  if (type::deallocate(plain) != g_instance_dealloc || type::deallocate(slots) != g_instance_dealloc) return false;
  Object* mro = type::mro(plain);
  if (type::base(plain) != base || !is_exactly(mro, g_api.PyTuple_Type) || item_count(mro) != 3) return false;
  if (type::flags(plain) != g_api.PyType_GetFlags(plain)) return false;
  if (!type::made_in_python(base) || !type::made_in_python(plain) || !type::made_in_python(slots)) return false;
  if (type::made_in_python(g_api.PyList_Type) || type::made_in_python(g_named_types.deque)) return false;
  if (!type::has_finalizer(samples["Ending"]) || type::has_finalizer(plain)) return false;
  std::size_t own[3] = {};
  type::own_slots(base, count_slots, &own[0]);
  type::own_slots(plain, count_slots, &own[1]);
  type::own_slots(slots, count_slots, &own[2]);
  Object* dict = instance_dict(object);
  Object** place = instance_dict_place(object);
  return own[0] == 2 && own[1] == 0 && own[2] == 1 && tuple_data(mro)[1] == base && dict != nullptr &&
         dict_item(dict, "two") == samples["closure"] && place != nullptr && *place == dict &&
         field<Object*>(object, 16) == samples["inside"] && dict_item(type::dict(plain), "value") != nullptr;
}

// A class without a version, or with another one than before, after each change; its subclasses too.
bool check_class_versions(const Samples& samples) noexcept {
  Object *base = samples["Base"], *plain = samples["Plain"];
  std::uint32_t last = type::renew_version(plain);
  if (last == 0) return false;
  for (const char* change : {"Base.method = 1\n", "Plain.value = 4\n", "Base.method = 1\n"}) {
    const Reference done(run_text(change, samples["globals_here"]));
    if (!done || type::version(plain) == last) return false;
    const std::uint32_t now = type::renew_version(plain);
    if (now == 0 || now == last) return false;
    last = now;
  }
  return type::renew_version(base) != 0 && type::version(base) == type::renew_version(base);
}

bool run_checks() noexcept {
  if (g_api._PyObject_GetDictPtr == nullptr || g_api.PyODict_Type == nullptr || !check_text()) return false;
  if (g_api._PyType_Lookup == nullptr && g_api.PyUnstable_Type_AssignVersionTag == nullptr) return false;
  const Reference dict(g_api.PyDict_New());
  const Reference done(dict ? run_text(kSamples, dict.get()) : nullptr);
  if (!done) return false;
  g_named_types.ordered_dict = g_api.PyODict_Type;
  g_named_types.default_dict = module_member("collections", "defaultdict");
  g_named_types.deque = module_member("collections", "deque");
  g_named_types.partial = module_member("functools", "partial");
  g_named_types.enum_meta = module_member("enum", "EnumMeta");
  g_named_types.simple_namespace = module_member("types", "SimpleNamespace");
  g_named_types.cached_property = module_member("functools", "cached_property");
  g_named_types.lru_cache = module_member("functools", "_lru_cache_wrapper");
  Object* const float_info = module_member("sys", "float_info");
  g_named_types.struct_sequence = float_info != nullptr ? type_of(float_info) : nullptr;
  g_named_types.tuple_getter = module_member("_collections", "_tuplegetter");
  const NamedTypes& named = g_named_types;
  if (named.default_dict == nullptr || named.deque == nullptr || named.partial == nullptr ||
      named.enum_meta == nullptr) {
    return false;
  }
  const Samples samples(dict.get());
  const NoCollection no_collection;
  find_aliases(samples);
  const bool right = check_functions(samples) && check_texts(samples) && check_containers(samples) &&
                     check_types(samples) && check_class_versions(samples) && samples.complete();
  g_api.PyDict_Clear(dict.get());  // functions and their globals are a cycle
  return right;
}

}  // namespace

Object* module_member(const char* module, const char* name) noexcept {
  Object* dict = imported_dict(module);
  return dict != nullptr ? dict_item(dict, name) : nullptr;
}

bool check_objects() noexcept {
  static int known = -1;
  if (known < 0) {
    const KeepException keep;
    known = run_checks() ? 1 : 0;
    g_api.PyErr_Clear();
  }
  return known == 1;
}

NoCollection::~NoCollection() noexcept {
  if (enable_) g_api.PyGC_Enable();
}

std::uint32_t type::version(const Object* type) noexcept {
  const bool valid = g_layout.minor >= 13 || (type::flags(type) & kValidVersion) != 0;
  return valid ? field<std::uint32_t>(type, 384) : 0;
}

std::uint32_t type::renew_version(Object* type) noexcept {
  const std::uint32_t now = type::version(type);
  if (now != 0) return now;
  if (g_api.PyUnstable_Type_AssignVersionTag != nullptr) {
    g_api.PyUnstable_Type_AssignVersionTag(type);
  } else {
    static Object* name = g_api.PyUnicode_InternFromString("__module__");
    if (name != nullptr) g_api._PyType_Lookup(type, name);
  }
  return type::version(type);
}

bool type::made_in_python(const Object* type) noexcept {
  if (!type::is_heap(type) || type::deallocate(type) != g_instance_dealloc || type::methods(type) != nullptr)
    return false;
  // What the class adds to its base must be its slots, and the places of a __dict__ and of weak references.
  const Object* under = type::base(type);
  std::ptrdiff_t own = type::basic_size(type) - type::basic_size(under);
  for (const Member* member = members(type); member != nullptr && member->name != nullptr; ++member) {
    if (member->type != kObjectMember || member->offset < type::basic_size(under) ||
        member->offset >= type::basic_size(type)) {
      return false;
    }
    own -= 8;
  }
  const unsigned long added = type::flags(type) & ~type::flags(under);
  if (type::dict_offset(type) != type::dict_offset(under) && (added & kManagedDict) == 0) own -= 8;
  const bool managed_weak_list = g_layout.minor >= 12 && (added & kManagedWeakList) != 0;
  if (type::weak_list_offset(type) != type::weak_list_offset(under) && !managed_weak_list) own -= 8;
  return own == 0;
}

void type::own_slots(const Object* type, void (*found)(const char* name, std::size_t offset, void* data),
                     void* data) noexcept {
  for (const Member* member = members(type); member != nullptr && member->name != nullptr; ++member) {
    found(member->name, static_cast<std::size_t>(member->offset), data);
  }
}

bool type::is_struct_sequence(Object* type) noexcept {
  const Object *known = g_named_types.struct_sequence, *tuple = g_api.PyTuple_Type;
  // All of them, and only they, end by one function. It is given away to no subclass, since they allow none.
  if (known == nullptr || type::deallocate(type) != type::deallocate(known) || type::base(type) != tuple ||
      type_of(type) != g_api.PyType_Type) {
    return false;
  }
  if (type::basic_size(type) != type::basic_size(tuple) || type::item_size(type) != type::item_size(tuple) ||
      type::allocate(type) != type::allocate(tuple) || type::dict_offset(type) != 0 ||
      type::weak_list_offset(type) != 0) {
    return false;
  }
  const auto count = [type](const char* name) {
    const Reference number(g_api.PyObject_GetAttrString(type, name));
    return number ? g_api.PyLong_AsLong(number.get()) : -1;
  };
  const bool all_are_items = count("n_fields") == count("n_sequence_fields") && count("n_unnamed_fields") == 0;
  g_api.PyErr_Clear();
  return all_are_items;
}

Object* type::new_tuple(Object* type, std::size_t items) noexcept {
  using Allocate = Object* (*)(Object*, std::ptrdiff_t);
  Object* tuple =
      reinterpret_cast<Allocate>(const_cast<void*>(type::allocate(type)))(type, static_cast<std::ptrdiff_t>(items));
  if (tuple == nullptr) {
    g_api.PyErr_Clear();
  } else if (g_layout.tuple_items > 24) {  // from 3.14 a tuple keeps its hash; -1: not known yet
    *reinterpret_cast<std::ptrdiff_t*>(reinterpret_cast<char*>(tuple) + 24) = -1;
  }
  return tuple;
}

Object* type::sequence_item(const Object* type, Object* object, std::ptrdiff_t index) noexcept {
  const void* protocol = field<const void*>(type, 104);
  if (protocol == nullptr) return nullptr;
  auto* item = field<Object* (*)(Object*, std::ptrdiff_t)>(protocol, 24);
  return item != nullptr ? item(object, index) : nullptr;
}

Object** instance_dict_place(Object* object) noexcept {
  return type::dict_offset(type_of(object)) != 0 ? g_api._PyObject_GetDictPtr(object) : nullptr;
}

Object* instance_dict(Object* object) noexcept {
  Object** place = instance_dict_place(object);
  return place != nullptr ? *place : nullptr;
}

bool text_is(const Object* text, const char* ascii) noexcept {
  Text parts;
  const std::size_t length = std::strlen(ascii);
  return type_of(text) == g_api.PyUnicode_Type && text_of(text, parts) && parts.width == 1 &&
         parts.characters == length && std::memcmp(parts.data, ascii, length) == 0;
}

}  // namespace grape::python
