// The part of the door to CPython (cpython.h) that reads objects: where each built-in type keeps what it holds. Plain
// reads that run no code of anybody's; check_objects() compares them with the public API before first use. With the
// GIL.
#pragma once

#include <cstddef>
#include <cstdint>

#include "python_hooks/interpreter/cpython.h"

namespace grape::python {

// Are built-in objects laid out as below, and is every function of the API there that is needed? Asked once,
// remembered.
bool check_objects() noexcept;

// `module.name` of an imported module, borrowed from its dictionary; null: there is none.
Object* module_member(const char* module, const char* name) noexcept;

// Types that have no symbol; null: their module is not imported.
struct NamedTypes {
  Object* ordered_dict = nullptr;
  Object* default_dict = nullptr;
  Object* deque = nullptr;
  Object* partial = nullptr;
  Object* enum_meta = nullptr;
  Object* tuple_getter = nullptr;  // a named tuple's attribute
  Object* simple_namespace = nullptr;
  Object* cached_property = nullptr;
  Object* lru_cache = nullptr;
  Object *generic_alias = nullptr, *union_type = nullptr;  // list[int], int | str; null: their layout is not known
  Object* struct_sequence = nullptr;  // one of those that PyStructSequence_NewType makes: sys.float_info's
};
extern NamedTypes g_named_types;  // after check_objects()

// Keeps the collector of cycles, and so finalizers, from running while objects are looked at.
class NoCollection {
 public:
  NoCollection() noexcept : enable_(g_api.PyGC_Disable() != 0) {}
  ~NoCollection() noexcept;
  NoCollection(const NoCollection&) = delete;
  NoCollection& operator=(const NoCollection&) = delete;

 private:
  bool enable_;
};

// Of any thread, with the GIL or without, as autograd's are: it has it while this lives.
class WithGil {
 public:
  WithGil() noexcept : state_(g_api.PyGILState_Ensure()) {}
  ~WithGil() noexcept { g_api.PyGILState_Release(state_); }
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;

 private:
  const int state_;
};

inline std::size_t item_count(const Object* sized) noexcept { return field<std::size_t>(sized, 16); }
inline bool is_exactly(const Object* object, const Object* type) noexcept { return type_of(object) == type; }

// Types.
namespace type {
constexpr std::size_t kFlags = 168;
// In the lines of a cache that hold what is asked most: its own class, the flags, where instances keep their
// attributes, the version.
constexpr std::size_t kOften[] = {8, kFlags, 288, 384};
constexpr unsigned long kHeap = 1UL << 9;
constexpr unsigned long kCollected = 1UL << 14;  // by the collector of cycles
using Traverse = int (*)(Object*, int (*)(Object*, void*), void*);
using Make = Object* (*)(Object* type, Object* arguments, Object* keywords);
using Initialise = int (*)(Object* object, Object* arguments, Object* keywords);
inline const char* name(const Object* type) noexcept { return field<const char*>(type, 24); }
inline std::ptrdiff_t basic_size(const Object* type) noexcept { return field<std::ptrdiff_t>(type, 32); }
// What a class in C keeps in its instance, behind the header.
inline const void* own_part(const Object* instance, const Object* type, std::size_t& bytes) noexcept {
  constexpr std::size_t kHeader = 16;  // number of references, class
  bytes = static_cast<std::size_t>(basic_size(type)) - kHeader;
  return reinterpret_cast<const char*>(instance) + kHeader;
}
inline std::ptrdiff_t item_size(const Object* type) noexcept { return field<std::ptrdiff_t>(type, 40); }
inline const void* deallocate(const Object* type) noexcept { return field<const void*>(type, 48); }
inline const void* hash(const Object* type) noexcept { return field<const void*>(type, 120); }
inline const void* call(const Object* type) noexcept { return field<const void*>(type, 128); }  // __call__
inline unsigned long flags(const Object* type) noexcept { return field<unsigned long>(type, kFlags); }
inline Traverse traverse(const Object* type) noexcept { return field<Traverse>(type, 184); }
inline const void* comparison(const Object* type) noexcept { return field<const void*>(type, 200); }
inline std::ptrdiff_t weak_list_offset(const Object* type) noexcept { return field<std::ptrdiff_t>(type, 208); }
inline const void* methods(const Object* type) noexcept { return field<const void*>(type, 232); }
// Does code run when an instance ends, be it Python's (__del__) or the type's own?
inline bool has_finalizer(const Object* type) noexcept {
  return field<const void*>(type, 376) != nullptr || field<const void*>(type, 392) != nullptr;
}
inline Object* base(const Object* type) noexcept { return field<Object*>(type, 256); }
inline Object* dict(const Object* type) noexcept { return field<Object*>(type, 264); }
inline std::ptrdiff_t dict_offset(const Object* type) noexcept { return field<std::ptrdiff_t>(type, 288); }
inline Initialise initialise(const Object* type) noexcept { return field<Initialise>(type, 296); }  // __init__
inline Make make(const Object* type) noexcept { return field<Make>(type, 312); }                    // __new__
inline Object* mro(const Object* type) noexcept { return field<Object*>(type, 344); }
// Where a heap type keeps its name and its qualified name, which may be set; its version does not tell of it.
constexpr std::size_t kTexts = 2;
extern std::size_t g_texts[kTexts];
inline bool is_heap(const Object* type) noexcept { return (flags(type) & kHeap) != 0; }
// A number that is another one after every change of the class or of one of its bases, and that no other class has or
// had; 0: none now (see renew_version).
std::uint32_t version(const Object* type) noexcept;
// Lets the interpreter give the class a version if it has none. 0: it gives none any more.
std::uint32_t renew_version(Object* type) noexcept;
// Was the class made by a class statement (or by calling type), so that its instances hold nothing but references in
// __slots__, their __dict__, and what its base holds?
bool made_in_python(const Object* type) noexcept;
// The attributes in __slots__ of a class made in Python, its bases' not: calls `found(name, offset, data)` for each.
void own_slots(const Object* type, void (*found)(const char* name, std::size_t offset, void* data),
               void* data) noexcept;
inline const void* allocate(const Object* type) noexcept { return field<const void*>(type, 304); }
// Is it a tuple whose items have names, as C functions return (torch.return_types.max, os.terminal_size), and nothing
// beside them? Those of others (time.struct_time) have fields that are no items.
bool is_struct_sequence(Object* type) noexcept;
// A tuple of a class made in Python over tuple, or of a struct sequence's, its items empty; null (exception cleared):
// no memory.
Object* new_tuple(Object* type, std::size_t items) noexcept;
// What the type's sequence protocol gives for an index, a new reference; for a built-in type's own protocol only.
Object* sequence_item(const Object* type, Object* object, std::ptrdiff_t index) noexcept;
}  // namespace type

// The attributes of an instance; null: it has none, or none yet. Gives attributes that the interpreter keeps inside of
// the instance a dictionary of their own, as reading __dict__ does. Call under NoCollection.
Object* instance_dict(Object* object) noexcept;
// Where the instance keeps that dictionary; null: nowhere.
Object** instance_dict_place(Object* object) noexcept;

// Dictionaries: a number that is another one after every change, where the dictionary keeps one (module_guard.h).
inline const std::uint64_t& dict_version(const Object* dict) noexcept { return place<std::uint64_t>(dict, 24); }

// Does the dictionary keep its values apart from its table, maybe inside of the instance whose attributes they are?
inline bool has_split_values(const Object* dict) noexcept { return field<const void*>(dict, 40) != nullptr; }

struct OrderedNode {
  Object* key;
  std::ptrdiff_t hash;
  const OrderedNode* next;
  const OrderedNode* previous;
};
inline const OrderedNode* first_node(const Object* ordered) noexcept { return field<const OrderedNode*>(ordered, 48); }
inline const std::uint64_t& order_version(const Object* ordered) noexcept { return place<std::uint64_t>(ordered, 88); }
constexpr std::size_t kDefaultFactory = 48;  // of a defaultdict: where its factory is
inline Object* default_factory(const Object* default_dict) noexcept {
  return field<Object*>(default_dict, kDefaultFactory);
}

// The most that a deque holds; -1: no limit.
inline std::ptrdiff_t deque_limit(const Object* deque) noexcept { return field<std::ptrdiff_t>(deque, 64); }

// Tuples and lists.
inline Object* const* tuple_data(const Object* tuple) noexcept {
  return reinterpret_cast<Object* const*>(reinterpret_cast<const char*>(tuple) + g_layout.tuple_items);
}
// Of a tuple that is just being made: its items, empty, to be filled with references.
inline Object** new_tuple_data(Object* tuple) noexcept {
  return reinterpret_cast<Object**>(reinterpret_cast<char*>(tuple) + g_layout.tuple_items);
}
inline Object* const* list_data(const Object* list) noexcept { return field<Object* const*>(list, 24); }

// Sets: a table with gaps.
struct SetEntry {
  Object* key;          // null: never used
  std::ptrdiff_t hash;  // -1: a removed one
  bool used() const noexcept { return key != nullptr && hash != -1; }
};
inline std::size_t set_size(const Object* set) noexcept { return field<std::size_t>(set, 24); }
inline std::size_t set_table_size(const Object* set) noexcept { return field<std::size_t>(set, 32) + 1; }
inline const SetEntry* set_table(const Object* set) noexcept { return field<const SetEntry*>(set, 40); }

// Numbers.
inline std::uint64_t float_bits(const Object* number) noexcept { return field<std::uint64_t>(number, 16); }
inline std::uint64_t imaginary_bits(const Object* number) noexcept { return field<std::uint64_t>(number, 24); }

// Text as it is kept: `width` bytes a character, the fewest that hold all of them.
struct Text {
  const void* data = nullptr;
  std::size_t characters = 0;
  std::uint32_t width = 0;
};
// False: of a kind that is made no more.
inline bool text_of(const Object* text, Text& out) noexcept {
  const std::uint32_t state = field<std::uint32_t>(text, 32) >> g_layout.text_kind_shift;
  out.width = state & 7;
  out.characters = item_count(text);
  const std::uint32_t header = (state & 16) != 0 ? g_layout.ascii_text : g_layout.compact_text;
  if ((state & 8) != 0) {
    out.data = reinterpret_cast<const char*>(text) + header;
  } else {
    out.data = field<const void*>(text, g_layout.compact_text);  // of subclasses of str
  }
  return out.data != nullptr && (out.width == 1 || out.width == 2 || out.width == 4);
}
bool text_is(const Object* text, const char* ascii) noexcept;

// Ranges and slices: start, stop, step.
inline Object* const* three_parts(const Object* object) noexcept {
  return reinterpret_cast<Object* const*>(reinterpret_cast<const char*>(object) + 16);
}

// Callables.
struct FunctionParts {
  Object *code, *globals, *defaults, *keyword_defaults, *closure, *attributes;  // null: none
};
inline FunctionParts function_parts(const Object* function) noexcept {
  const auto at = [function](std::uint32_t offset) { return field<Object*>(function, offset); };
  const Layout& layout = g_layout;
  return {at(layout.function_code),         at(layout.function_globals),       at(layout.function_defaults),
          at(layout.function_defaults + 8), at(layout.function_defaults + 16), at(layout.function_attributes)};
}
// A function's name, qualified name, documentation and module; null: none.
constexpr std::size_t kFunctionTexts = 4;
inline Object* function_text(const Object* function, std::size_t index) noexcept {
  return field<Object*>(function, g_layout.function_texts[index]);
}
inline Object* method_function(const Object* method) noexcept { return field<Object*>(method, 16); }
inline Object* method_self(const Object* method) noexcept { return field<Object*>(method, 24); }
inline const void* builtin_definition(const Object* builtin) noexcept { return field<const void*>(builtin, 16); }
inline Object* builtin_self(const Object* builtin) noexcept { return field<Object*>(builtin, 24); }
inline Object* cell_content(const Object* cell) noexcept { return field<Object*>(cell, 16); }
struct PartialParts {
  Object *function, *arguments, *keywords, *attributes;
};
inline PartialParts partial_parts(const Object* partial) noexcept { return field<PartialParts>(partial, 16); }
// staticmethod, classmethod: the function; property: getter, setter, deleter.
inline Object* wrapped_function(const Object* descriptor) noexcept { return field<Object*>(descriptor, 16); }
inline Object* property_part(const Object* property, unsigned index) noexcept {
  return field<Object*>(property, 16 + 8 * std::size_t{index});
}
// A function with functools.lru_cache: its results by its arguments. A dictionary's values are the results, or where
// the cache is bounded links that hold them.
inline bool is_cache_link(const Object* value, const Object* key) noexcept {
  return type::basic_size(type_of(value)) == 56 && field<Object*>(value, 40) == key;
}
constexpr std::size_t kCacheLinkResult = 48;
inline Object* weak_callback(const Object* reference) noexcept { return field<Object*>(reference, 24); }

}  // namespace grape::python
