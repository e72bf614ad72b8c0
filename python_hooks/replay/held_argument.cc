#include "python_hooks/replay/held_argument.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/torch/torch_api.h"
#include "python_hooks/walk/instance.h"

namespace grape::python::replay {
namespace {

// Is the object made of parts alone, so that another one of the same parts can stand for it?
enum class Made : std::uint8_t { kOtherwise, kOfAttributes, kOfItems };
Made made_of(Object* type, walk::Shape& shape) {
  std::vector<walk::TypeInfo::Slot> slots;
  if (!walk::shape_of(type, shape, slots)) return Made::kOtherwise;
  if (shape.kind != walk::Kind::kPlain) return Made::kOfItems;
  return !shape.exact && slots.empty() ? Made::kOfAttributes : Made::kOtherwise;
}

HeldArgument strongly(Object* argument) noexcept {
  g_api.Py_IncRef(argument);
  return {argument, false};
}

void keep_attributes(Object* argument, HeldArgument& held) noexcept {
  const Reference attributes(walk::own_dict(argument));
  held.attributes = attributes ? g_api.PyDict_Copy(attributes.get()) : nullptr;
  if (held.attributes == nullptr) return g_api.PyErr_Clear();
  held.type = new_reference(type_of(argument));
}

bool is_list(Object* object) noexcept { return is_exactly(object, g_api.PyList_Type); }

void keep_items(Object* container, HeldArgument& held) noexcept {
  if (is_list(container)) held.copy = g_api.PyList_GetSlice(container, 0, g_api.PyList_Size(container));
  if (is_exactly(container, g_api.PyDict_Type)) held.copy = g_api.PyDict_Copy(container);
  if (held.copy == nullptr) g_api.PyErr_Clear();
}

bool same_items(const std::vector<walk::Item>& some, const std::vector<walk::Item>& others) {
  return std::equal(
      some.begin(), some.end(), others.begin(), others.end(),
      [](const walk::Item& one, const walk::Item& other) { return one.key == other.key && one.value == other.value; });
}

// Of the top alone: what a list in a list has now is what it has.
bool has_items(const HeldArgument& held) {
  if (held.copy == nullptr) return true;
  const walk::Kind kind = is_list(held.copy) ? walk::Kind::kList : walk::Kind::kDict;
  std::vector<walk::Item> now, then;
  return walk::items_of(held.object, kind, now) && walk::items_of(held.copy, kind, then) && same_items(now, then);
}

// Has the instance the attributes that it had? Both dictionaries are plain ones, in the order of their making.
bool has_attributes(Object* argument, Object* attributes) {
  std::vector<walk::Item> now, then;
  if (!walk::read_attributes(argument, now)) return false;
  walk::entries_of(attributes, then);
  return same_items(now, then);
}

// An instance with the attributes that `held` had; null: none can be made.
Reference another(const HeldArgument& held) {
  walk::Shape shape;
  if (made_of(held.type, shape) != Made::kOfAttributes) return Reference(nullptr);
  Reference made(walk::new_instance(held.type, shape, 0));
  const Reference attributes(made ? walk::own_dict(made.get()) : nullptr);
  if (!attributes) return Reference(nullptr);
  std::vector<walk::Item> items;
  walk::entries_of(held.attributes, items);
  const bool good = std::all_of(items.begin(), items.end(), [&](const walk::Item& item) {
    return g_api.PyDict_SetItem(attributes.get(), item.key, item.value) == 0;
  });
  return good ? std::move(made) : Reference(nullptr);
}

// The argument, or one that stands for it; null: it is gone.
Reference again(const HeldArgument& held) {
  if (!held.weak) return Reference(new_reference(has_items(held) ? held.object : held.copy));
  const NoCollection no_collection;
  Object* const living = referent(held.object);
  const bool is_there = living != g_api._Py_NoneStruct;
  if (is_there && (held.type == nullptr || has_attributes(living, held.attributes)))
    return Reference(new_reference(living));
  return held.type != nullptr ? another(held) : Reference(nullptr);
}

}  // namespace

HeldArgument hold_argument(Object* argument) {
  if (argument == nullptr) return {};
  if (torch::is_tensor_or_subclass(argument)) return strongly(argument);
  const NoCollection no_collection;
  walk::Shape shape;
  const Made made = made_of(type_of(argument), shape);
  Object* const weak = made == Made::kOfItems ? nullptr : g_api.PyWeakref_NewRef(argument, nullptr);
  if (weak == nullptr) {
    g_api.PyErr_Clear();
    HeldArgument held = strongly(argument);
    keep_items(argument, held);
    return held;
  }
  HeldArgument held{weak, true};
  if (made == Made::kOfAttributes) keep_attributes(argument, held);
  return held;
}

void release(const HeldArgument& held) noexcept {
  for (Object* object : {held.object, held.type, held.attributes, held.copy}) {
    if (object != nullptr) g_api.Py_DecRef(object);
  }
}

ArgumentsAgain::ArgumentsAgain(const std::vector<HeldArgument>& held, Object* root) {
  for (const HeldArgument& each : held) {
    // An object has one weak reference of this kind.
    const auto first =
        std::find_if(held.begin(), held.end(), [&](const auto& one) { return one.object == each.object; });
    const auto index = static_cast<std::size_t>(first - held.begin());
    Object* const before = index < objects_.size() ? objects_[index] : nullptr;
    const bool is_root = each.object == nullptr;
    owned_.push_back(before != nullptr || is_root ? Reference(new_reference(is_root ? root : before)) : again(each));
    objects_.push_back(owned_.back().get());
    good_ = good_ && objects_.back() != nullptr;
  }
}

}  // namespace grape::python::replay
