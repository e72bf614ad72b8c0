// Does what a call did, without the call: on the way of every replayed call.
#include <algorithm>
#include <cstring>

#include "python_hooks/effects/call_outcome_state.h"

namespace grape::python::effects {
namespace {

void exchange_slot(Object* object, std::size_t offset, Object* value) noexcept {
  Object* const before = walk::slot_at(object, offset);
  walk::slot_at(object, offset) = new_reference(value);
  if (before != nullptr) g_api.Py_DecRef(before);
}

class Repeat {
 public:
  Repeat(const CallOutcomeState& state, Object* const* tensors, const walk::Walk& arguments,
         References& replaced) noexcept
      : state_(state), tensors_(tensors), arguments_(arguments), old_(replaced) {}

  // A new reference; null: nothing was changed.
  Object* run() noexcept {
    const std::size_t effects = state_.effects.size();
    if (!values_.make(state_.nodes.size()) || !targets_.make(effects) || !old_.make(effects)) return nullptr;
    if (!make_views() || !make() || !fill() || !prepare() || !require_grad() || !apply()) return nullptr;
    move_versions();
    count();
    return new_reference(values_[state_.result]);
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
        return new_reference(node.held.get());
      case ValueKind::kArgument:
        return new_reference(arguments_.objects()[node.index]);
      case ValueKind::kModule:
        return new_reference(node.object);
      case ValueKind::kMade:
        return new_reference(tensors_[node.index]);
      case ValueKind::kView:
        return new_reference(views_[node.index]);
      case ValueKind::kBuilt:
        return walk::new_instance(node.held.get(), node.shape, static_cast<std::ptrdiff_t>(node.items));
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
      return torch::new_view(of, dimensions, view.sizes.data(), view.strides.data(), view.offset, view.type);
    }
    Object* const made =
        torch::new_alias(of, dimensions, view.sizes.data(), view.strides.data(), view.offset, view.type);
    if (made == nullptr) return nullptr;
    if (!view.own_version) {
      torch::share_version(made, of);
    } else if (view.as_first == index) {
      walk::set_version(made, view.version);
    } else {
      torch::share_version(made, views_[view.as_first]);
    }
    return made;
  }

  void move_versions() noexcept {
    for (std::uint32_t i = 0; i < state_.writes.size(); ++i) {
      const Write& write = state_.writes[i];
      if (write.as_first == i) walk::move_version(tensor_of(write, arguments_), write.times);
    }
    for (std::uint32_t i = 0; i < state_.made.size(); ++i) {
      const MadeTensor& made = state_.made[i];
      if (made.as_first == i) {
        walk::set_version(tensors_[i], made.version);
      } else {
        torch::share_version(tensors_[i], tensors_[made.as_first]);
      }
    }
  }

  void count() noexcept {
    for (const std::uint32_t place : state_.counted) {
      torch::TensorView view;
      float value = 0;
      if (!torch::view_tensor(arguments_.objects()[place], view)) continue;  // which counts_fit() has seen
      auto* const at = reinterpret_cast<void*>(view.data);
      std::memcpy(&value, at, sizeof value);
      value += 1;
      std::memcpy(at, &value, sizeof value);
    }
  }

  bool fill() noexcept {
    for (std::size_t i = 0; i < state_.nodes.size(); ++i) {
      if (!fill(state_.nodes[i], values_[i])) return false;  // also the attributes of tensors
    }
    return true;
  }

  bool fill(const Node& node, Object* object) noexcept {
    const bool deque = node.kind == ValueKind::kBuilt && node.shape.kind == walk::Kind::kDeque;
    const std::uint32_t count = node.links.count - (deque ? node.items : 0);  // items come last
    const Link* const links = state_.links.data() + node.links.first;
    const bool attributes = count != 0 && links[0].place == Link::Place::kAttribute;  // these come first
    const Reference dict(attributes ? walk::own_dict(object) : nullptr);
    if (attributes && !dict) return false;
    for (const Link* link = links; link != links + count; ++link) {
      Object* const value = values_[link->node];
      if (link->place == Link::Place::kSlot) {
        exchange_slot(object, link->at, value);
      } else if (link->place == Link::Place::kAttribute
                     ? !put_entry(walk::Kind::kPlain, dict.get(), link->key.get(), value)
                     : !put_item(node.shape, object, *link, value)) {
        return false;
      }
    }
    return !deque || fill_deque(node, links + count, object);
  }

  // A null value: the entry is taken out. kPlain: of a __dict__.
  static bool put_entry(walk::Kind kind, Object* dict, Object* key, Object* value) noexcept {
    if (kind == walk::Kind::kOrderedDict) {
      return (value != nullptr ? g_api.PyODict_SetItem(dict, key, value) : g_api.PyODict_DelItem(dict, key)) == 0;
    }
    return (value != nullptr ? g_api.PyDict_SetItem(dict, key, value) : g_api.PyDict_DelItem(dict, key)) == 0;
  }

  static bool put_item(const walk::Shape& shape, Object* object, const Link& link, Object* value) noexcept {
    switch (shape.kind) {
      case walk::Kind::kTuple:
        new_tuple_data(object)[link.at] = new_reference(value);
        return true;
      case walk::Kind::kList:
        return shape.exact
                   ? g_api.PyList_SetItem(object, static_cast<std::ptrdiff_t>(link.at), new_reference(value)) == 0
                   : g_api.PyList_Append(object, value) == 0;
      case walk::Kind::kSet:
        return g_api.PySet_Add(object, value) == 0;
      default:
        return put_entry(shape.kind, object, link.key.get(), value);
    }
  }

  bool fill_deque(const Node& node, const Link* links, Object* deque) noexcept {
    const Reference items(g_api.PyTuple_New(static_cast<std::ptrdiff_t>(node.items)));
    if (!items) return false;
    for (std::uint32_t i = 0; i < node.items; ++i)
      new_tuple_data(items.get())[i] = new_reference(values_[links[i].node]);
    const Reference arguments(g_api.PyTuple_New(2));
    if (!arguments) return false;
    new_tuple_data(arguments.get())[0] = new_reference(items.get());
    new_tuple_data(arguments.get())[1] = new_reference(node.limit.get());
    return type::initialise(g_named_types.deque)(deque, arguments.get(), nullptr) == 0;
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
      if (old_[i] == nullptr && needs_old(effect)) return false;
    }
    return true;
  }

  static bool needs_old(const Effect& effect) noexcept {
    const bool deletes = effect.key.get() != nullptr && effect.node == kNoNode;
    return deletes || (effect.of == walk::Kind::kList && effect.action != Action::kAppend);
  }

  bool find_target(std::size_t i, Object* object) noexcept {
    const Effect& effect = state_.effects[i];
    if (!effect.of_attribute()) {
      targets_[i] = new_reference(object);
      return true;
    }
    if (i > 0 && state_.effects[i - 1].place == effect.place && state_.effects[i - 1].of_attribute()) {
      targets_[i] = new_reference(targets_[i - 1]);
      return true;
    }
    targets_[i] = g_api.PyObject_GenericGetDict(object, nullptr);
    return targets_[i] != nullptr && type_of(targets_[i]) == g_api.PyDict_Type;
  }

  static Object* replaced_by(const Effect& effect, Object* target) noexcept {
    const auto at = static_cast<std::ptrdiff_t>(effect.at);
    if (effect.action == Action::kAppend) return nullptr;
    if (effect.action == Action::kTruncate) return g_api.PyList_GetSlice(target, at, g_api.PyList_Size(target));
    if (effect.key.get() != nullptr) return new_reference(g_api.PyDict_GetItemWithError(target, effect.key.get()));
    return new_reference(effect.of == walk::Kind::kList ? g_api.PyList_GetItem(target, at)
                                                        : walk::slot_at(target, effect.at));
  }

  bool require_grad() noexcept {
    for (; switched_ < state_.made_to_require_grad.size(); ++switched_) {
      if (!set_requires_grad(switched_, g_api._Py_TrueStruct)) return require_no_grad();
    }
    return true;
  }
  bool require_no_grad() noexcept {
    g_api.PyErr_Clear();  // no memory
    while (switched_ > 0) set_requires_grad(--switched_, g_api._Py_FalseStruct);
    return false;
  }
  bool set_requires_grad(std::size_t i, Object* value) noexcept {
    Object* const tensor = arguments_.objects()[state_.made_to_require_grad[i]];
    return g_api.PyObject_SetAttrString(tensor, "requires_grad", value) == 0;
  }

  bool apply() noexcept {
    for (std::size_t i = 0; i < state_.effects.size(); ++i) {
      const Effect& effect = state_.effects[i];
      if (apply(effect, targets_[i], effect.node != kNoNode ? values_[effect.node] : nullptr)) continue;
      g_api.PyErr_Clear();  // no memory
      while (i-- > 0) undo(state_.effects[i], targets_[i], old_[i]);
      return require_no_grad();
    }
    return true;
  }

  static bool apply(const Effect& effect, Object* target, Object* value) noexcept {
    if (effect.action == Action::kSet) return set(effect, target, value);
    if (effect.action == Action::kAppend) return g_api.PyList_Append(target, value) == 0;
    return g_api.PyList_SetSlice(target, static_cast<std::ptrdiff_t>(effect.at), g_api.PyList_Size(target), nullptr) ==
           0;
  }

  static void undo(const Effect& effect, Object* target, Object* old) noexcept {
    const auto at = static_cast<std::ptrdiff_t>(effect.at);
    if (effect.action == Action::kSet) {
      set(effect, target, old);
    } else if (effect.action == Action::kAppend) {
      g_api.PyList_SetSlice(target, g_api.PyList_Size(target) - 1, g_api.PyList_Size(target), nullptr);
    } else {
      g_api.PyList_SetSlice(target, at, at, old);
    }
    g_api.PyErr_Clear();
  }

  static bool set(const Effect& effect, Object* target, Object* value) noexcept {
    if (effect.key.get() != nullptr) return put_entry(effect.of, target, effect.key.get(), value);
    if (effect.of == walk::Kind::kList) {
      return g_api.PyList_SetItem(target, static_cast<std::ptrdiff_t>(effect.at), new_reference(value)) == 0;
    }
    exchange_slot(target, effect.at, value);
    return true;
  }

  const CallOutcomeState& state_;
  Object* const* tensors_;
  const walk::Walk& arguments_;
  References values_, targets_, views_;
  References& old_;
  std::size_t switched_ = 0;  // of made_to_require_grad
};

bool view_fits(const View& view, const walk::Walk& arguments) noexcept {
  torch::TensorView memory;
  return torch::view_tensor(tensor_of(view, arguments), memory) && view.end <= memory.storage_bytes;
}

// Do those that shared a version share one again?
bool versions_fit(const std::vector<Write>& writes, const walk::Walk& arguments) noexcept {
  return std::all_of(writes.begin(), writes.end(), [&](const Write& write) {
    return torch::version_counter(tensor_of(write, arguments)) ==
           torch::version_counter(tensor_of(writes[write.as_first], arguments));
  });
}

bool counts_fit(const std::vector<std::uint32_t>& counted, const walk::Walk& arguments) noexcept {
  return std::all_of(counted.begin(), counted.end(), [&](std::uint32_t place) {
    torch::TensorView view;
    return torch::view_tensor(arguments.objects()[place], view) && torch::is_step_count(view);
  });
}

// Can what was a view of the one not be one of the other now?
bool faces_fit(const std::vector<Face>& faces, const walk::Walk& arguments) noexcept {
  const auto root_of = [&](const Face& face) {
    Object* const tensor = arguments.objects()[face.place];
    const void* const base = torch::base_of_tensor(tensor);
    return base != nullptr ? base : torch::identity_of_tensor(tensor);
  };
  return std::all_of(faces.begin(), faces.end(), [&](const Face& face) {
    const Face &version = faces[face.as_version], &root = faces[face.as_root];
    return torch::version_counter(arguments.objects()[face.place]) ==
               torch::version_counter(arguments.objects()[version.place]) &&
           root_of(face) == root_of(root);
  });
}

}  // namespace

bool CallOutcome::fits(const walk::Walk& arguments) const noexcept {
  const CallOutcomeState& state = *state_;
  if (arguments.objects().size() != state.argument_objects) return false;
  for (const Effect& effect : state.effects) {
    if (type_of(arguments.objects()[effect.place]) != effect.type.get()) return false;
  }
  return versions_fit(state.writes, arguments) && counts_fit(state.counted, arguments) &&
         faces_fit(state.faces, arguments) &&
         std::all_of(state.views.begin(), state.views.end(),
                     [&](const View& view) { return view_fits(view, arguments); });
}

Object* CallOutcome::repeat(Object* const* tensors, const walk::Walk& arguments, References& replaced) const noexcept {
  if (!fits(arguments)) return nullptr;
  Object* result = nullptr;
  {
    Repeat repeat(*state_, tensors, arguments, replaced);
    const NoCollection no_collection;  // what is half made is nobody's to see
    result = repeat.run();
  }
  if (result == nullptr) g_api.PyErr_Clear();
  return result;
}

}  // namespace grape::python::effects
