// What the walk knows of a class: how to read its instances, and in few bytes what the class itself is like now. Kept
// for the process, and made anew when the class or one of its bases has changed. With the GIL.
#pragma once

#include <cstdint>
#include <vector>

#include "python_hooks/interpreter/cpython.h"

namespace grape::python::state {

enum class Kind : std::uint8_t {
  kOpaque,  // refused
  kNone,
  kEllipsis,
  kBool,
  kInt,
  kFloat,
  kComplex,
  kStr,
  kBytes,
  kNumpyScalar,  // numpy.int64 and its like, but for numpy.float64
  kRange,
  kSlice,
  kTypeAlias,  // list[int], int | str
  kTuple,
  kList,
  kDict,
  kSet,
  kFrozenSet,
  kOrderedDict,
  kDefaultDict,
  kDeque,
  kPlain,  // nothing but attributes
  kEnum,
  kType,
  kModule,
  kFunction,
  kMethod,
  kBuiltin,
  kDescriptor,
  kStaticMethod,
  kClassMethod,
  kProperty,
  kPartial,
  kCell,
  kWeakReference,
  kLogger,          // what is asked of its parents and handlers shows in the code that runs (executed_code.h)
  kCache,           // functools.lru_cache: the results that it holds
  kCachedProperty,  // by its function: up to 3.11 it holds a lock as well
  kTensor,
  kTorchConstant,  // torch.dtype, layout, memory_format
  kTorchDevice,
  kTorchSize,
};

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
  std::uint64_t digest[2] = {};     // the class, its bases and what they define
  std::vector<Slot> slots;          // its own and its bases'
  std::vector<Attribute> by_value;  // its own and its bases'

  mutable std::uint64_t walk = 0;  // the last one that met it: see Walker::touch_type
};

// By these names other libraries get memory by its address.
constexpr const char* kArrayInterfaces[] = {"__array_interface__", "__array_struct__", "__cuda_array_interface__"};

// By the module that the class says it is from; by its functions where no module goes by that name, or it does not hold
// the class: types.new_class, or who copies a name, says so of classes of the user's.
bool is_library_class(Object* type) noexcept;
// "__name__"
bool is_dunder(Object* name) noexcept;

// Null: no memory. Valid until the next call for the same type. Call under NoCollection.
const TypeInfo* type_info(Object* type);

}  // namespace grape::python::state
