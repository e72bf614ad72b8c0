// One way through an object graph: the working part of Walk.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/texts.h"
#include "python_hooks/walk/type_info.h"
#include "python_hooks/walk/walk.h"
#include "python_hooks/walk/watch.h"

namespace grape::python::state {

// How an object was reached, for reasons: a chain on the stack, innermost first.
struct Path {
  enum class Step : std::uint8_t { kRoot, kAttribute, kKey, kIndex, kNote };
  const Path* from = nullptr;
  Step step = Step::kRoot;
  const char* text = nullptr;  // kRoot, kAttribute (unless by object), kNote
  Object* object = nullptr;    // kKey, kAttribute: the key
  std::size_t index = 0;       // kIndex

  Path attribute(Object* name) const noexcept { return {this, Step::kAttribute, nullptr, name, 0}; }
  Path attribute(const char* name) const noexcept { return {this, Step::kAttribute, name, nullptr, 0}; }
  Path key(Object* name) const noexcept { return {this, Step::kKey, nullptr, name, 0}; }
  Path item(std::size_t at) const noexcept { return {this, Step::kIndex, nullptr, nullptr, at}; }
  Path note(const char* note_text) const noexcept { return {this, Step::kNote, note_text, nullptr, 0}; }
};
// "model.transformer.h.0.scale['x'][2]"; modules' children as Python code names them.
std::string render(const Path& path);

class Walker {
 public:
  explicit Walker(Walk& walk) noexcept : walk_(walk), watch_(walk.watch_) {}

  // All false: refused. May throw std::bad_alloc.
  bool value(Object* object, const Path& path);
  bool shallow(Object* object, const Path& path);  // see Walk::add_shallow
  template <std::size_t count, typename... Parts>
  bool refuse(refusal::Form<count> form, const Path& path, const Parts&... parts) {
    walk_.refusal_ = refusal::make(form, render(path), parts...);
    return false;
  }
  void flush();  // at the end

 private:
  enum class Tag : std::uint8_t;

  // What is written is gathered here and goes to the walk in pieces.
  void put(const void* data, std::size_t size) {
    if (size == 0) return;
    if (size > sizeof(ready_)) return put_much(data, size);
    if (ready_bytes_ + size > sizeof(ready_)) flush();
    std::memcpy(ready_ + ready_bytes_, data, size);
    ready_bytes_ += size;
  }
  void put_much(const void* data, std::size_t size);
  void touch(const void* place);
  void touch(const void* object, std::size_t offset) { touch(static_cast<const char*>(object) + offset); }
  void touch_type(const TypeInfo& info);
  void touch_dict(Object* dict);
  void touch_tensor(const TensorView& view);
  template <typename T>
  void put(const T& number) {
    static_assert(!std::is_pointer_v<T>, "see put_address");
    put(&number, sizeof number);
  }
  void put_address(const void* address) { put(reinterpret_cast<std::uint64_t>(address)); }
  void put(Tag tag) { put(static_cast<std::uint8_t>(tag)); }
  void put_identity(Object* object);
  void put_pointer(Object* object);  // that lives for good
  void put_c_name(const char* name, const void* address);
  void put_name(Object* text);  // null, or no text: as an empty one
  void put_text(Object* text);
  void put_int(Object* number);

  // Was the object met before? Then it is written as a reference back; else it is counted from now on.
  bool again(Object* object);
  void compare(const Path& path);

  bool value_of_kind(Object* object, const TypeInfo& info, const Path& path);
  bool content(Object* object, Kind kind, const Path& path);
  bool number_of_numpy(Object* number, const Path& path);
  bool class_reference(Object* type, const Path& path);
  bool instance(Object* object, const TypeInfo& info, const Path& path);
  bool module_attributes(Object* of, Object* dict, const Path& path);
  bool hooks(Object* name, Object* dict, bool backward, const Path& path);
  bool attributes(Object* of, Object* dict, const Path& path);
  void note_attributes(Object* of, Object* dict);
  void note_dict(Object* dict);
  bool items(Object* const* data, std::size_t count, const Path& path);
  bool dict_items(Object* dict, const Path& path);
  bool dict_in_any_order(Object* dict, const Path& path);
  bool ordered_items(Object* dict, const Path& path);
  bool set_items(Object* set, const Path& path);
  bool set_in_any_order(Object* set);
  bool deque_items(Object* deque, const Path& path);
  bool function(Object* function, const Path& path);
  bool function_texts(Object* function, const Path& path);
  bool function_attributes(Object* function, const Path& path);
  bool partial(Object* partial, const Path& path);
  bool builtin(Object* builtin, const Path& path);
  bool descriptor(Object* descriptor);
  bool by_identity(Object* object, Tag tag);
  bool shallow_at(Object* object, int depth, const Path& path);
  bool shallow_items(Object* object, const TypeInfo& info, int depth, const Path& path);
  bool shallow_attributes(Object* dict, int depth, const Path& path);
  bool shallow_closure(Object* function, int depth, const Path& path);
  bool shallow_partial(Object* partial, int depth, const Path& path);
  bool public_names(Object* dict, const Path& path);
  bool shallow_leaf(Object* object, const Path& path);
  bool python_module(Object* module, const Path& path);
  bool cached_property(Object* property, const Path& path);
  bool cache(Object* cache, const Path& path);
  bool cache_key(Object* key, const Path& path);
  bool wrapper(Object* wrapper, unsigned parts, const Path& path);
  bool weak_reference(Object* reference, const Path& path);
  bool enum_member(Object* member, const Path& path);
  bool logger(Object* logger, const Path& path);
  bool tensor(Object* tensor, const TypeInfo& info, const Path& path);
  bool tensor_content(const TensorView& view, const Path& path);
  bool optional(Object* object, const Path& path);  // null as well

  Walk& walk_;
  Watch* watch_;
  int depth_ = 0;
  std::size_t ready_bytes_ = 0;
  std::uint8_t ready_[512];
};

enum class Walker::Tag : std::uint8_t {
  kEnd,
  kNull,
  kBack,
  kSameDict,
  kSameAttributes,
  kNone,
  kEllipsis,
  kFalse,
  kTrue,
  kInt,
  kLongInt,
  kFloat,
  kComplex,
  kText,
  kBytes,
  kRange,
  kSlice,
  kTypeAlias,
  kTuple,
  kList,
  kDict,
  kSet,
  kFrozenSet,
  kOrderedDict,
  kDefaultDict,
  kDeque,
  kInstance,
  kContent,
  kEnum,
  kClass,
  kBuiltinClass,
  kModule,
  kFunction,
  kLibraryFunction,
  kMethod,
  kBuiltin,
  kBuiltinObject,
  kDescriptor,
  kWrapper,
  kCache,
  kPartial,
  kCell,
  kWeakReference,
  kByIdentity,
  kShallow,
  kTensor,
  kConstant,
  kDevice,
  kSize,
};

}  // namespace grape::python::state
