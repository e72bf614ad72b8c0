// What a Before remembers. Internal to python_hooks/state.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "python_hooks/state/instance.h"
#include "python_hooks/state/outcome.h"
#include "python_hooks/state/versions.h"

namespace grape::python::state {

// A reference in a container that may be copied around; strong, or none.
class Held {
 public:
  Held() = default;
  explicit Held(Object* borrowed) noexcept : object_(borrowed) {
    if (object_ != nullptr) g_api.Py_IncRef(object_);
  }
  Held(Held&& other) noexcept : object_(other.object_) { other.object_ = nullptr; }
  Held(const Held& other) noexcept : Held(other.object_) {}
  Held& operator=(Held other) noexcept {
    Object* const before = object_;
    object_ = other.object_;
    other.object_ = before;
    return *this;
  }
  ~Held() noexcept {
    // At the interpreter's end nothing of it may be touched: what is left is its own affair.
    if (object_ != nullptr && !shutting_down()) g_api.Py_DecRef(object_);
  }
  Object* get() const noexcept { return object_; }

 private:
  Object* object_ = nullptr;
};

// An entry as it was. Tensors are told by address only (they are watched, not held: what eager would free during the
// call is freed).
struct Entry {
  Held key;
  Held held;
  Object* value = nullptr;
};

struct TensorBefore {
  Held watch;  // weak reference
  TensorView view;
  std::vector<std::int64_t> sizes, strides;
  bool requires_grad = false;
  std::uint64_t content = 0;  // hash of what a tensor on the CPU holds
  VersionCounter* counter = nullptr;
  std::uint32_t version = 0;
};

// 0: it is on a device.
std::uint64_t content_of(const TensorView& view) noexcept;

enum class Kept : std::uint8_t { kNothing, kTensor, kInstance, kClass, kReferents };

struct ObjectBefore {
  Kept kept = Kept::kNothing;
  Object* object = nullptr;
  Held held;  // not a tensor
  Held type;
  Shape shape;
  std::vector<TypeInfo::Slot> slot_places;
  Held dict;                                    // the __dict__, not a tensor's
  std::vector<Entry> attributes, items, slots;  // items: kClass: definitions; kReferents: what it refers to
  std::uint32_t tensor = 0;                     // among tensors
  std::uint32_t parent = ~0U;                   // the object it was met in first; ~0U: a root
  std::string label;                            // what the parent calls it
};

struct BeforeState {
  std::vector<ObjectBefore> objects;  // as in the walk
  std::vector<TensorBefore> tensors;
  std::vector<TensorVersion> module_versions;
  std::unordered_map<const Object*, std::uint32_t> places;

  bool alive(std::uint32_t place) const noexcept {
    const ObjectBefore& known = objects[place];
    return known.kept != Kept::kTensor || referent(tensors[known.tensor].watch.get()) == known.object;
  }
  // Was `value` there before the call, and is it still that object?
  bool same(const Entry& entry, const Object* value) const noexcept {
    if (entry.value != value) return false;
    if (entry.held.get() != nullptr || value == nullptr) return true;
    const auto place = places.find(value);
    return place != places.end() && alive(place->second);
  }
  std::string path(std::uint32_t place) const;
};

}  // namespace grape::python::state
