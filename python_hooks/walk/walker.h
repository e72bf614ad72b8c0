// One way through an object graph: the working part of Walk.
#pragma once

#include <cstdint>
#include <cstring>
#include <iterator>
#include <type_traits>

#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/texts.h"
#include "python_hooks/walk/instance.h"
#include "python_hooks/walk/walk.h"
#include "python_hooks/walk/watch.h"

namespace grape::python::walk {

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
  __attribute__((noinline)) void flush();  // at the end

 private:
  // What stands in the form where a Kind might.
  enum class Mark : std::uint8_t {
    kEnd = 128,
    kNull,
    kBack,
    kSameDict,
    kSameAttributes,
    kInstance,
    kClass,
    kBuiltinClass,
    kIdentity,
    kShallow,
  };
  static_assert(std::size(kTraits) < static_cast<std::size_t>(Mark::kEnd), "kinds and marks are told apart");
  // How a path names a part of an object: by its number, not at all, or else as an attribute.
  static constexpr char kItem[] = "[]", kSame[] = "";
  static constexpr std::size_t kHead = 16, kMostParts = 3;  // bytes ahead of the parts; how many there are
  static const char* const kParts[][kMostParts + 1];        // of each kind, as kinds.def says; null: no more

  // What is written is gathered here and goes to the walk in pieces.
  void put(const void* data, std::size_t size) {
    if (size == 0) return;
    if (size > sizeof(ready_)) return put_much(data, size);
    if (ready_bytes_ + size > sizeof(ready_)) flush();
    std::memcpy(ready_ + ready_bytes_, data, size);
    ready_bytes_ += size;
  }
  void put_much(const void* data, std::size_t size);
  void touch(const void* place) {
    if (watch_ == nullptr && walk_.touched_.size() < Walk::kMostAhead) walk_.touched_.push_back(place);
  }
  void touch(const void* object, std::size_t offset) { touch(static_cast<const char*>(object) + offset); }
  void touch_type(const TypeInfo& info);
  void touch_dict(Object* dict);
  void touch_tensor(const torch::TensorView& view);
  template <typename T>
  void put(const T& number) {
    static_assert(!std::is_pointer_v<T>, "see put_address");
    put(&number, sizeof number);
  }
  // See Walk::note_numbers().
  void put_numbers(const std::int64_t* numbers, std::size_t count) {
    if (walk_.notes_numbers_) note_numbers(count);
    put(numbers, count * sizeof *numbers);
  }
  void note_numbers(std::size_t count);  // that are put next
  void put_address(const void* address) { put(reinterpret_cast<std::uint64_t>(address)); }
  void put_identity(Object* object);
  void put_pointer(Object* object);  // that lives for good
  void put_c_name(const char* name, const void* address);
  void put_name(Object* text);  // null, or no text: as an empty one
  bool put_text(Object* text);  // false: of a kind that is made no more, written as an empty one

  // Was the object met before? Then it is written as a reference back; else it is counted from now on.
  bool again(Object* object);
  void compare(const Path& path);

  inline bool content(Object* object, Kind kind, const Path& path);
  // kinds.def
  bool opaque(Object* object, Kind kind, const Path& path);
  bool nothing(Object* object, Kind kind, const Path& path);
  bool boolean(Object* object, Kind kind, const Path& path);
  bool integer(Object* number, Kind kind, const Path& path);
  bool real(Object* number, Kind kind, const Path& path);
  bool complex(Object* number, Kind kind, const Path& path);
  bool text(Object* text, Kind kind, const Path& path);
  bool bytes(Object* bytes, Kind kind, const Path& path);
  bool buffer(Object* object, Kind kind, const Path& path);
  bool parts(Object* object, Kind kind, const Path& path);
  bool container(Object* object, Kind kind, const Path& path);
  bool ordered_dict(Object* dict, Kind kind, const Path& path);
  bool default_dict(Object* dict, Kind kind, const Path& path);
  bool deque(Object* deque, Kind kind, const Path& path);
  bool function(Object* function, Kind kind, const Path& path);
  bool partial(Object* partial, Kind kind, const Path& path);
  bool builtin(Object* builtin, Kind kind, const Path& path);
  bool descriptor(Object* descriptor, Kind kind, const Path& path);
  bool cached_property(Object* property, Kind kind, const Path& path);
  bool cache(Object* cache, Kind kind, const Path& path);
  bool weak_reference(Object* reference, Kind kind, const Path& path);
  bool class_object(Object* type, Kind kind, const Path& path);
  bool enum_member(Object* member, Kind kind, const Path& path);
  bool python_module(Object* module, Kind kind, const Path& path);
  bool logger(Object* logger, Kind kind, const Path& path);
  bool tensor(Object* tensor, Kind kind, const Path& path);
  bool constant(Object* constant, Kind kind, const Path& path);
  bool device(Object* device, Kind kind, const Path& path);

  // Each tells the watch of the container, and gives its keys and values to `each` until that refuses.
  template <typename Each>
  bool items(Object* object, Kind kind, const Path& path, const Each& each);
  template <typename Each>
  bool entries(Object* dict, bool ordered, const Each& each);
  bool entry(Object* name, Object* item, const Path& path);
  bool class_reference(Object* type, const Path& path);
  bool instance(Object* object, const TypeInfo& info, const Path& path);  // but for its content
  bool module_attributes(Object* of, Object* dict, const Path& path);
  bool hooks(Object* name, Object* dict, bool backward, const Path& path);
  bool attributes(Object* of, Object* dict, const Path& path);
  void note_attributes(Object* of, Object* dict);
  void note_dict(Object* dict);
  bool dict_in_any_order(Object* dict, const Path& path);
  bool set_in_any_order(Object* set);
  bool function_texts(Object* function, const Path& path);
  bool function_attributes(Object* function, const Path& path);
  bool by_identity(Object* object);
  bool shallow_at(Object* object, int depth, const Path& path);
  bool shallow_items(Object* object, const TypeInfo& info, int depth, const Path& path);
  bool shallow_attributes(Object* dict, int depth, const Path& path);
  bool shallow_closure(Object* function, int depth, const Path& path);
  bool shallow_partial(Object* partial, int depth, const Path& path);
  bool public_names(Object* dict, const Path& path);
  bool shallow_leaf(Object* object);
  bool cache_key(Object* key, const Path& path);
  bool tensor_content(const torch::TensorView& view, const Path& path);
  // Null as well.
  bool optional(Object* object, const Path& path) {
    if (object != nullptr) return value(object, path);
    put(Mark::kNull);
    return true;
  }

  Walk& walk_;
  Watch* watch_;
  int depth_ = 0;
  std::size_t ready_bytes_ = 0;
  std::uint8_t ready_[512];
};

template <typename Each>
bool Walker::items(Object* object, Kind kind, const Path& path, const Each& each) {
  if (watch_ != nullptr) watch_->items(object, kind);
  if (!is(kind, kKeyed)) {
    const bool in_set = kind == Kind::kSet || kind == Kind::kFrozenSet;
    put(static_cast<std::uint32_t>(size_of(object, kind)));
    return each_item(object, kind, [&](Object*, Object* item, std::size_t index) {
      return in_set ? each(item, path.note("an element")) : each(item, path.item(index));
    });
  }
  const bool taken = each_item(object, kind, [&](Object* key, Object* item, std::size_t) {
    return each(key, path.note("a key")) && each(item, path.key(key));
  });
  put(Mark::kEnd);
  return taken;
}

template <typename Each>
bool Walker::entries(Object* dict, bool ordered, const Each& each) {
  if (dict != nullptr) {
    if (watch_ != nullptr) watch_->items(dict, ordered ? Kind::kOrderedDict : Kind::kDict);
    std::ptrdiff_t position = 0;
    for (Object *key, *item; g_api.PyDict_Next(dict, &position, &key, &item) != 0;) {
      if (!each(key, item)) return false;
    }
  }
  put(Mark::kEnd);
  return true;
}

}  // namespace grape::python::walk
