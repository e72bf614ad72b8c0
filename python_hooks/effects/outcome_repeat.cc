// Does what a call did, without the call: on the way of every replayed call.
#include <algorithm>

#include "python_hooks/effects/outcome_state.h"

namespace grape::python::state {
namespace {

Object* shared(Object* object) noexcept {
  if (object != nullptr) g_api.Py_IncRef(object);
  return object;
}

void exchange_slot(Object* object, std::size_t offset, Object* value) noexcept {
  Object* const before = slot_at(object, offset);
  slot_at(object, offset) = shared(value);
  if (before != nullptr) g_api.Py_DecRef(before);
}

class Repeat {
 public:
  Repeat(const OutcomeState& state, Object* const* tensors, const Walk& arguments, References& replaced) noexcept
      : state_(state), tensors_(tensors), arguments_(arguments), old_(replaced) {}

  // A new reference; null: nothing was changed.
  Object* run() noexcept {
    const std::size_t effects = state_.effects.size();
    if (!values_.make(state_.nodes.size()) || !targets_.make(effects) || !old_.make(effects)) return nullptr;
    if (!make_views() || !make() || !fill() || !prepare() || !apply()) return nullptr;
    move_versions();
    return shared(values_[state_.result]);
  }

 private:
  // First all objects, then what is in them, since they may refer to one another in a circle.
  bool make() noexcept {
    for (std::size_t i = 0; i < state_.nodes.size(); ++i) {
      values_[i] = make(state_.nodes[i]);
      if (values_[i] == nullptr) return false;
    }
    return true;
  }

  Object* make(const Node& node) noexcept {
    switch (node.kind) {
      case ValueKind::kPlain:
      case ValueKind::kIdentity:
      case ValueKind::kForm:
        return shared(node.held.get());
      case ValueKind::kArgument:
        return shared(arguments_.objects()[node.index]);
      case ValueKind::kModule:
        return shared(node.object);
      case ValueKind::kMade:
        return shared(tensors_[node.index]);
      case ValueKind::kView:
        return shared(views_[node.index]);
      case ValueKind::kBuilt:
        return new_instance(node.held.get(), node.shape, static_cast<std::ptrdiff_t>(node.items.count));
    }
    return nullptr;
  }

  // First those that others are views of.
  bool make_views() noexcept {
    const std::size_t count = state_.views.size();
    if (!views_.make(count)) return false;
    for (const bool of_another : {false, true}) {
      for (std::size_t i = 0; i < count; ++i) {
        if ((state_.views[i].view_of >= 0) != of_another) continue;
        views_[i] = make_view(i);
        if (views_[i] == nullptr) return false;
      }
    }
    return true;
  }

  Object* make_view(std::size_t index) noexcept {
    const View& view = state_.views[index];
    const bool of_another = view.view_of >= 0;
    Object* const of = of_another ? views_[static_cast<std::size_t>(view.view_of)] : tensor_of(view, arguments_);
    const auto dimensions = static_cast<std::int64_t>(view.sizes.size());
    if (of_another || view.is_view) {
      return new_view(of, dimensions, view.sizes.data(), view.strides.data(), view.offset, view.type);
    }
    Object* const made = new_alias(of, dimensions, view.sizes.data(), view.strides.data(), view.offset, view.type);
    if (made == nullptr) return nullptr;
    if (!view.own_version) {
      share_version(made, of);
    } else if (view.as_first == index) {
      set_version(made, view.version);
    } else {
      share_version(made, views_[view.as_first]);
    }
    return made;
  }

  void move_versions() noexcept {
    for (std::uint32_t i = 0; i < state_.writes.size(); ++i) {
      const Write& write = state_.writes[i];
      if (write.as_first == i) move_version(tensor_of(write, arguments_), write.times);
    }
    for (std::uint32_t i = 0; i < state_.made.size(); ++i) {
      const MadeTensor& made = state_.made[i];
      if (made.as_first == i) {
        set_version(tensors_[i], made.version);
      } else {
        share_version(tensors_[i], tensors_[made.as_first]);
      }
    }
  }

  bool fill() noexcept {
    for (std::size_t i = 0; i < state_.nodes.size(); ++i) {
      const Node& node = state_.nodes[i];
      if (!fill_attributes(node, values_[i])) return false;  // also of tensors
      if (node.kind != ValueKind::kBuilt) continue;
      if (!fill_items(node, values_[i])) return false;
      for (std::uint32_t slot = 0; slot < node.slots.count; ++slot) {
        const Link& link = state_.links[node.slots.first + slot];
        exchange_slot(values_[i], link.offset, values_[link.node]);
      }
    }
    return true;
  }

  bool fill_attributes(const Node& node, Object* object) noexcept {
    if (node.attributes.count == 0) return true;
    const Reference dict(own_dict(object));
    if (!dict) return false;
    for (std::uint32_t i = 0; i < node.attributes.count; ++i) {
      const Link& link = state_.links[node.attributes.first + i];
      if (g_api.PyDict_SetItem(dict.get(), link.key.get(), values_[link.node]) != 0) return false;
    }
    return true;
  }

  bool fill_items(const Node& node, Object* object) noexcept {
    if (node.shape.kind == Kind::kDeque) return put_in_deque(node, object);
    for (std::uint32_t i = 0; i < node.items.count; ++i) {
      const Link& link = state_.links[node.items.first + i];
      if (!put_item(node.shape, object, i, link.key.get(), values_[link.node])) return false;
    }
    return true;
  }

  static bool put_item(const Shape& shape, Object* object, std::uint32_t index, Object* key, Object* value) noexcept {
    switch (shape.kind) {
      case Kind::kTuple:
        new_tuple_data(object)[index] = shared(value);
        return true;
      case Kind::kList:
        return shape.exact ? g_api.PyList_SetItem(object, index, shared(value)) == 0
                           : g_api.PyList_Append(object, value) == 0;
      case Kind::kDict:
      case Kind::kDefaultDict:
        return g_api.PyDict_SetItem(object, key, value) == 0;
      case Kind::kOrderedDict:
        return g_api.PyODict_SetItem(object, key, value) == 0;
      case Kind::kSet:
        return g_api.PySet_Add(object, value) == 0;
      default:
        return false;
    }
  }

  bool put_in_deque(const Node& node, Object* deque) noexcept {
    const Reference items(g_api.PyTuple_New(static_cast<std::ptrdiff_t>(node.items.count)));
    if (!items) return false;
    for (std::uint32_t i = 0; i < node.items.count; ++i) {
      new_tuple_data(items.get())[i] = shared(values_[state_.links[node.items.first + i].node]);
    }
    return fill_deque(deque, items.get(), node.limit.get());
  }

  // What each effect is applied to, and what it replaces: held until all is done, since the end of an object may run
  // Python code.
  bool prepare() noexcept {
    for (std::size_t i = 0; i < state_.effects.size(); ++i) {
      const Effect& effect = state_.effects[i];
      Object* const object = arguments_.objects()[effect.place];
      if (!find_target(i, object)) return false;
      old_[i] = replaced_by(effect, targets_[i]);
      g_api.PyErr_Clear();
      if (old_[i] == nullptr && needs_old(effect.action)) return false;
    }
    return true;
  }

  static bool of_attribute(Action action) noexcept {
    return action == Action::kSetAttribute || action == Action::kDeleteAttribute;
  }

  static bool needs_old(Action action) noexcept {
    switch (action) {
      case Action::kDeleteAttribute:
      case Action::kDeleteEntry:
      case Action::kDeleteOrdered:
      case Action::kSetItem:
      case Action::kTruncate:
        return true;
      default:
        return false;
    }
  }

  bool find_target(std::size_t i, Object* object) noexcept {
    const Effect& effect = state_.effects[i];
    if (!of_attribute(effect.action)) {
      targets_[i] = shared(object);
      return true;
    }
    if (i > 0 && state_.effects[i - 1].place == effect.place && of_attribute(state_.effects[i - 1].action)) {
      targets_[i] = shared(targets_[i - 1]);
      return true;
    }
    targets_[i] = g_api.PyObject_GenericGetDict(object, nullptr);
    return targets_[i] != nullptr && type_of(targets_[i]) == g_api.PyDict_Type;
  }

  static Object* replaced_by(const Effect& effect, Object* target) noexcept {
    const auto offset = static_cast<std::ptrdiff_t>(effect.offset);
    switch (effect.action) {
      case Action::kSetSlot:
        return shared(slot_at(target, effect.offset));
      case Action::kSetItem:
        return shared(g_api.PyList_GetItem(target, offset));
      case Action::kAppend:
        return nullptr;
      case Action::kTruncate:
        return g_api.PyList_GetSlice(target, offset, g_api.PyList_Size(target));
      default:
        return shared(g_api.PyDict_GetItemWithError(target, effect.key.get()));
    }
  }

  bool apply() noexcept {
    for (std::size_t i = 0; i < state_.effects.size(); ++i) {
      const Effect& effect = state_.effects[i];
      if (apply(effect, targets_[i], effect.node != kNoNode ? values_[effect.node] : nullptr)) continue;
      g_api.PyErr_Clear();  // no memory
      while (i-- > 0) undo(state_.effects[i], targets_[i], old_[i]);
      return false;
    }
    return true;
  }

  static bool apply(const Effect& effect, Object* target, Object* value) noexcept {
    Object* const key = effect.key.get();
    switch (effect.action) {
      case Action::kSetAttribute:
      case Action::kSetEntry:
        return g_api.PyDict_SetItem(target, key, value) == 0;
      case Action::kDeleteAttribute:
      case Action::kDeleteEntry:
        return g_api.PyDict_DelItem(target, key) == 0;
      case Action::kSetOrdered:
        return g_api.PyODict_SetItem(target, key, value) == 0;
      case Action::kDeleteOrdered:
        return g_api.PyODict_DelItem(target, key) == 0;
      case Action::kSetSlot:
        exchange_slot(target, effect.offset, value);
        return true;
      case Action::kSetItem:
        return g_api.PyList_SetItem(target, static_cast<std::ptrdiff_t>(effect.offset), shared(value)) == 0;
      case Action::kAppend:
        return g_api.PyList_Append(target, value) == 0;
      case Action::kTruncate:
        return g_api.PyList_SetSlice(target, static_cast<std::ptrdiff_t>(effect.offset), g_api.PyList_Size(target),
                                     nullptr) == 0;
    }
    return false;
  }

  static void undo(const Effect& effect, Object* target, Object* old) noexcept {
    Object* const key = effect.key.get();
    const auto offset = static_cast<std::ptrdiff_t>(effect.offset);
    switch (effect.action) {
      case Action::kSetAttribute:
      case Action::kSetEntry:
      case Action::kDeleteAttribute:
      case Action::kDeleteEntry:
        old != nullptr ? g_api.PyDict_SetItem(target, key, old) : g_api.PyDict_DelItem(target, key);
        break;
      case Action::kSetOrdered:
      case Action::kDeleteOrdered:
        old != nullptr ? g_api.PyODict_SetItem(target, key, old) : g_api.PyODict_DelItem(target, key);
        break;
      case Action::kSetSlot:
        exchange_slot(target, effect.offset, old);
        break;
      case Action::kSetItem:
        g_api.PyList_SetItem(target, offset, shared(old));
        break;
      case Action::kAppend:
        g_api.PyList_SetSlice(target, g_api.PyList_Size(target) - 1, g_api.PyList_Size(target), nullptr);
        break;
      case Action::kTruncate:
        g_api.PyList_SetSlice(target, offset, offset, old);
        break;
    }
    g_api.PyErr_Clear();
  }

  const OutcomeState& state_;
  Object* const* tensors_;
  const Walk& arguments_;
  References values_, targets_, views_;
  References& old_;
};

bool view_fits(const View& view, const Walk& arguments) noexcept {
  TensorView memory;
  return view_tensor(tensor_of(view, arguments), memory) && view.end <= memory.storage_bytes;
}

// Do those that shared a version share one again?
bool versions_fit(const std::vector<Write>& writes, const Walk& arguments) noexcept {
  return std::all_of(writes.begin(), writes.end(), [&](const Write& write) {
    return version_counter(tensor_of(write, arguments)) ==
           version_counter(tensor_of(writes[write.as_first], arguments));
  });
}

// Can what was a view of the one not be one of the other now?
bool faces_fit(const std::vector<Face>& faces, const Walk& arguments) noexcept {
  const auto root_of = [&](const Face& face) {
    Object* const tensor = arguments.objects()[face.place];
    const void* const base = base_of_tensor(tensor);
    return base != nullptr ? base : identity_of_tensor(tensor);
  };
  return std::all_of(faces.begin(), faces.end(), [&](const Face& face) {
    const Face &version = faces[face.as_version], &root = faces[face.as_root];
    return version_counter(arguments.objects()[face.place]) == version_counter(arguments.objects()[version.place]) &&
           root_of(face) == root_of(root);
  });
}

}  // namespace

bool outcome_fits(const OutcomeState& state, const Walk& arguments) noexcept {
  if (arguments.objects().size() != state.argument_objects) return false;
  for (const Effect& effect : state.effects) {
    if (type_of(arguments.objects()[effect.place]) != effect.type.get()) return false;
  }
  return versions_fit(state.writes, arguments) && faces_fit(state.faces, arguments) &&
         std::all_of(state.views.begin(), state.views.end(),
                     [&](const View& view) { return view_fits(view, arguments); });
}

Object* repeat_outcome(const OutcomeState& state, Object* const* tensors, const Walk& arguments,
                       References& replaced) noexcept {
  if (!outcome_fits(state, arguments)) return nullptr;
  Object* result = nullptr;
  {
    Repeat repeat(state, tensors, arguments, replaced);
    const NoCollection no_collection;  // what is half made is nobody's to see
    result = repeat.run();
  }
  if (result == nullptr) g_api.PyErr_Clear();
  return result;
}

}  // namespace grape::python::state
