// Tells for each class how a walk reads its instances, and keeps a digest of all that the class and its bases define.
// An entry lives as long as the process; a change of the class or of one of its bases renews it. With the GIL, after
// check_objects().
#pragma once

#include <cstdint>
#include <vector>

#include "python_hooks/interpreter/cpython.h"

namespace grape::python::walk {

enum class Kind : std::uint8_t {
#define GRAPE_KIND(name, ...) k##name,
#include "python_hooks/walk/kinds.def"
#undef GRAPE_KIND
};

// Traits of a kind, combined as a mask.
enum Trait : std::uint16_t {
  kCounted = 1 << 0,     // has an identity: written once in a walk, then referred to
  kBase = 1 << 1,        // classes made in Python may have it as their base
  kData = 1 << 2,        // code that reads it may read another content later
  kShallow = 1 << 3,     // of a library's, the objects that it refers to are written (Walk::add_shallow)
  kMutable = 1 << 4,     // a container that classes keep for all their instances
  kKeyed = 1 << 5,       // its items have keys
  kMadeAgain = 1 << 6,   // a replay makes a new one from its parts
  kByIdentity = 1 << 7,  // there is one of it: a replay gives the very object
  kByForm = 1 << 8,      // immutable: a replay gives the object, and an equal walk means an equal object
  kLasting = 1 << 9,     // lives as long as the program
};
constexpr std::uint16_t kTraits[] = {
#define GRAPE_KIND(name, type, traits, ...) traits,
#include "python_hooks/walk/kinds.def"
#undef GRAPE_KIND
};
// Has the kind any of these traits?
constexpr bool is(Kind kind, unsigned traits) noexcept { return (kTraits[static_cast<unsigned>(kind)] & traits) != 0; }

struct TypeInfo {
  struct Slot {
    const char* name;
    std::uint32_t offset;
  };
  // An attribute of a class of the user's that counts by value, or a library's container. Borrowed, valid as long as
  // this TypeInfo is.
  struct Attribute {
    Object *name, *value;
    bool shallow;  // a library's: which objects it refers to, not what these are like
  };

  Object* type = nullptr;
  Object* reference = nullptr;  // weak; null: the type lives for good
  std::uint64_t identity = 0;
  std::uint32_t version = 0;
  Kind kind = Kind::kOpaque;        // what instances hold
  bool made_in_python = false;      // instances have attributes beside that, or are of a class of C's that adds nothing
  bool shows_memory = false;        // by its address: opaque
  bool librarys = false;            // see is_library_class
  bool is_module_class = false;     // torch.nn.Module or a class below it
  bool with_torch = false;          // described when PyTorch's types were known
  std::uint32_t origins = 0;        // see origins_epoch()
  std::uint64_t digest[2] = {};     // the class, its bases and what they define
  std::vector<Slot> slots;          // its own and its bases'
  std::vector<Attribute> by_value;  // its own and its bases'

  mutable std::uint64_t walk = 0;  // the last one that met it: see Walker::touch_type
};

// By these names other libraries get memory by its address.
constexpr const char* kArrayInterfaces[] = {"__array_interface__", "__array_struct__", "__cuda_array_interface__"};

// Is the Python function's code a library's? `function`: see is_function().
bool is_library_function(Object* function) noexcept;
// By the module that the class says it is from; by its functions where no module goes by that name, or it does not hold
// the class: types.new_class, or who copies a name, says so of classes of the user's.
bool is_library_class(Object* type) noexcept;
// Of instances of exactly this class, as its row in kinds.def says; kOpaque: it has none.
Kind exact_kind(Object* type) noexcept;
// None, Ellipsis, bool, int, float, complex, str or bytes: the class itself, none below it.
inline bool is_plain_type(const Object* type) noexcept {
  return type == g_api.PyUnicode_Type || type == g_api.PyLong_Type || type == g_api.PyFloat_Type ||
         type == g_api.PyBytes_Type || type == g_api.PyComplex_Type || type == type_of(g_api._Py_NoneStruct) ||
         type == type_of(g_api._Py_TrueStruct) || type == type_of(g_api._Py_EllipsisObject);
}
// "__name__"
bool is_dunder(Object* name) noexcept;

// Null: no memory. Valid until the next call for the same type. Call under NoCollection.
const TypeInfo* type_info(Object* type);

}  // namespace grape::python::walk
