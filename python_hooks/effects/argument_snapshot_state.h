// The data of an ArgumentSnapshot. Internal to python_hooks/effects.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "python_hooks/effects/call_outcome.h"
#include "python_hooks/interpreter/strong.h"
#include "python_hooks/walk/instance.h"
#include "python_hooks/walk/versions.h"

namespace grape::python::effects {

// An entry as it was. A tensor, or a value whose end a program can see (finalizable.h), is known by its address and
// watched. It is not kept alive, so the call frees what it would free without Grape.
struct Entry {
  Strong key;
  Strong held;
  Object* value = nullptr;
  bool finalizable = false;
  Strong watch;              // finalizable, and no object of the walk: a weak reference to it
  std::vector<Entry> parts;  // of a finalizable tuple, which is told by what is in it
};

struct TensorSnapshot {
  Strong watch;   // weak reference
  Strong memory;  // another tensor with the same memory and version, which stay when the tensor itself is gone
  const void* base = nullptr;  // what autograd knows it as a view of
  torch::TensorView view;
  std::vector<std::int64_t> sizes, strides;
  torch::AutogradNotes autograd;
  std::uint64_t content = 0;  // hash of what a tensor on the CPU holds
  torch::VersionCounter* counter = nullptr;
  std::uint32_t version = 0;
};

// 0: it is on a device.
std::uint64_t content_of(const torch::TensorView& view) noexcept;

enum class Kept : std::uint8_t { kNothing, kTensor, kInstance, kClass, kReferents };

struct ObjectSnapshot {
  Kept kept = Kept::kNothing;
  Object* object = nullptr;
  Strong held;  // neither a tensor nor finalizable
  Strong type;
  bool finalizable = false;
  Strong watch;  // of what is finalizable: a weak reference; where it can have none, its parent's entry tells of it
  walk::Shape shape;
  std::vector<walk::TypeInfo::Slot> slot_places;
  Entry dict;                                   // the __dict__, not a tensor's
  std::vector<Entry> attributes, items, slots;  // items: kClass: definitions; kReferents: what it refers to
  std::uint32_t tensor = 0;                     // among tensors
  std::uint32_t parent = ~0U;                   // the object it was met in first; ~0U: a root
  std::string label;                            // what the parent calls it
};

struct ArgumentSnapshotState {
  std::vector<ObjectSnapshot> objects;  // as in the walk
  std::vector<TensorSnapshot> tensors;
  std::vector<walk::TensorVersion> module_versions;
  std::unordered_map<const Object*, std::uint32_t> places;
  bool counts = false;  // tensors of one float on the CPU may have one more behind the call

  // Of a finalizable object without a watch only after its parent was found to refer to it as before.
  bool alive(std::uint32_t place) const noexcept {
    const ObjectSnapshot& known = objects[place];
    const Strong& watch = known.kept == Kept::kTensor ? tensors[known.tensor].watch : known.watch;
    return watch.get() == nullptr || referent(watch.get()) == known.object;
  }
  // Was `value` there before the call, and is it still that object?
  bool same(const Entry& entry, Object* value) const noexcept;
  // Of a tensor of the walk: itself, or, where it is gone, one with the same memory and version.
  Object* tensor_at(std::uint32_t place) const noexcept {
    const ObjectSnapshot& known = objects[place];
    return alive(place) ? known.object : tensors[known.tensor].memory.get();
  }
  std::string path(std::uint32_t place) const;
};

}  // namespace grape::python::effects
