#include <xxhash.h>

#include <algorithm>
#include <functional>
#include <new>

#include "python_hooks/effects/argument_snapshot_state.h"
#include "python_hooks/effects/finalizable.h"

namespace grape::python::effects {
namespace {

class Taker {
 public:
  Taker(ArgumentSnapshotState& state, Object* lasting, refusal::Refusal& refusal)
      : state_(state), lasting_(lasting), refusal_(refusal) {}

  bool take(const std::vector<Object*>& objects) {
    state_.objects.resize(objects.size());
    std::vector<bool> ends_seen(objects.size());
    for (std::uint32_t i = 0; i < objects.size(); ++i) {
      ends_seen[i] = objects[i] != lasting_ && end_is_seen(objects[i]);
      state_.objects[i].object = objects[i];
      state_.places.emplace(objects[i], i);
    }
    for (std::uint32_t i = 0; i < objects.size(); ++i) {
      if (!take_object(i)) return false;
    }
    return let_go_of_finalizable(state_, ends_seen, refusal_);
  }

 private:
  bool take_object(std::uint32_t place) {
    ObjectSnapshot& known = state_.objects[place];
    Object* const type = type_of(known.object);
    known.type = Strong(type);
    if (torch::is_tensor_or_subclass(known.object)) return take_tensor(place);
    known.held = Strong(known.object);
    if (is_type(known.object)) return take_class(place);
    if (!walk::shape_of(type, known.shape, known.slot_places)) {
      known.kept = Kept::kReferents;
      take_referents(place);
      return true;
    }
    known.kept = Kept::kInstance;
    adopt(place, type, [] { return std::string("'s class"); });
    take_slots(place);
    return take_attributes(place) && take_items(place);
  }

  bool take_tensor(std::uint32_t place) {
    ObjectSnapshot& known = state_.objects[place];
    known.kept = Kept::kTensor;
    known.tensor = static_cast<std::uint32_t>(state_.tensors.size());
    state_.tensors.emplace_back();
    TensorSnapshot& tensor = state_.tensors.back();
    const Reference watch(g_api.PyWeakref_NewRef(known.object, nullptr));
    if (!watch || !torch::view_tensor(known.object, tensor.view)) throw std::bad_alloc();  // the walk has viewed it
    tensor.watch = Strong(watch.get());
    tensor.sizes.assign(tensor.view.sizes, tensor.view.sizes + tensor.view.dimensions);
    tensor.strides.assign(tensor.view.strides, tensor.view.strides + tensor.view.dimensions);
    tensor.autograd = torch::AutogradNotes(known.object);
    tensor.content = content_of(tensor.view);
    tensor.counter = torch::version_counter(known.object);
    if (tensor.counter != nullptr) tensor.version = tensor.counter->load();
    tensor.base = torch::base_of_tensor(known.object);
    const torch::TensorView& view = tensor.view;
    const Reference memory(
        torch::new_alias(known.object, view.dimensions, view.sizes, view.strides, view.offset, view.type));
    if (!memory) throw std::bad_alloc();
    torch::share_version(memory.get(), known.object);
    tensor.memory = Strong(memory.get());
    return take_attributes(place);
  }

  bool take_class(std::uint32_t place) {
    state_.objects[place].kept = Kept::kClass;
    std::vector<walk::Item> definitions;
    walk::definitions_of(state_.objects[place].object, definitions);
    keep(&ObjectSnapshot::items, place, definitions,
         [&](std::size_t i) { return walk::attribute_label(definitions[i].key); });
    return true;
  }

  void take_slots(std::uint32_t place) {
    const ObjectSnapshot& known = state_.objects[place];
    std::vector<walk::Item> slots;
    for (const walk::TypeInfo::Slot& slot : known.slot_places)
      slots.push_back({nullptr, walk::slot_at(known.object, slot.offset)});
    keep(&ObjectSnapshot::slots, place, slots,
         [&](std::size_t i) { return "." + std::string(known.slot_places[i].name); });
  }

  bool take_attributes(std::uint32_t place) {
    ObjectSnapshot& known = state_.objects[place];
    std::vector<walk::Item> entries;
    if (!walk::read_attributes(known.object, entries)) return refuse(refusal::odd_dict, place);
    if (known.kept == Kept::kInstance) {
      known.dict.value = instance_dict(known.object);
      known.dict.held = Strong(known.dict.value);
    }
    keep(&ObjectSnapshot::attributes, place, entries,
         [&](std::size_t i) { return walk::attribute_label(entries[i].key); });
    return true;
  }

  bool take_items(std::uint32_t place) {
    const ObjectSnapshot& known = state_.objects[place];
    std::vector<walk::Item> items;
    if (!walk::items_of(known.object, known.shape.kind, items)) return refuse(refusal::items_unreadable, place);
    keep(&ObjectSnapshot::items, place, items, [&](std::size_t i) { return walk::item_label(items[i], i); });
    return true;
  }

  void take_referents(std::uint32_t place) {
    std::vector<walk::Item> referents;
    walk::referents_of(state_.objects[place].object, referents);
    keep(&ObjectSnapshot::items, place, referents, [](std::size_t) { return std::string("'s own object"); });
  }

  template <typename Label>
  void keep(std::vector<Entry> ObjectSnapshot::*into, std::uint32_t place, const std::vector<walk::Item>& items,
            const Label& label) {
    std::vector<Entry>& entries = state_.objects[place].*into;
    entries.reserve(items.size());
    for (std::size_t i = 0; i < items.size(); ++i) {
      entries.push_back(entry(items[i].key, items[i].value));
      adopt(place, items[i].value, [&] { return label(i); });
    }
  }

  Entry entry(Object* key, Object* value) const {
    Entry entry;
    entry.key = Strong(key);
    entry.value = value;
    const bool watched = value != nullptr && torch::is_tensor_or_subclass(value) && state_.places.count(value) != 0;
    if (!watched) entry.held = Strong(value);
    return entry;
  }

  // The object at `place` is where `value` was met first, if it was met there and not before. What is in a tuple is in
  // the object that the tuple is in.
  template <typename Label>
  void adopt(std::uint32_t place, Object* value, const Label& label, int depth = 0) {
    constexpr int kDeepest = 8;
    if (value != nullptr && is_exactly(value, g_api.PyTuple_Type) && depth < kDeepest) {
      for (std::size_t i = 0; i < item_count(value); ++i) {
        const std::function<std::string()> item = [&] { return label() + walk::item_label({}, i); };
        adopt(place, tuple_data(value)[i], item, depth + 1);
      }
      return;
    }
    const auto found = state_.places.find(value);
    if (found == state_.places.end() || found->second <= place) return;
    ObjectSnapshot& child = state_.objects[found->second];
    if (child.parent != ~0U) return;
    child.parent = place;
    child.label = label();
  }

  bool refuse(refusal::Form<1> form, std::uint32_t place) {
    return refusal::refuse(refusal_, form, state_.path(place));
  }

  ArgumentSnapshotState& state_;
  Object* const lasting_;
  refusal::Refusal& refusal_;
};

}  // namespace

std::uint64_t content_of(const torch::TensorView& view) noexcept {
  return torch::is_on_device(view) ? 0 : XXH3_64bits(reinterpret_cast<const void*>(view.data), torch::span_of(view));
}

std::string ArgumentSnapshotState::path(std::uint32_t place) const {
  const ObjectSnapshot& known = objects[place];
  if (known.parent != ~0U) return path(known.parent) + known.label;
  return std::string("argument ") + type::name(known.type.get());
}

ArgumentSnapshot::ArgumentSnapshot() = default;
ArgumentSnapshot::~ArgumentSnapshot() = default;

bool ArgumentSnapshot::knows(const torch::VersionCounter* counter) const noexcept {
  const auto is_it = [counter](const auto& tensor) { return tensor.counter == counter; };
  return std::any_of(state_->tensors.begin(), state_->tensors.end(), is_it) ||
         std::any_of(state_->module_versions.begin(), state_->module_versions.end(), is_it);
}

std::unique_ptr<ArgumentSnapshot> ArgumentSnapshot::take(const walk::Walk& arguments, const guards::ModuleGuard& module,
                                                         Object* lasting, refusal::Refusal& refusal,
                                                         bool counts) noexcept {
  try {
    const KeepException keep;
    const NoCollection no_collection;
    std::unique_ptr<ArgumentSnapshot> before(new ArgumentSnapshot);
    before->state_ = std::make_unique<ArgumentSnapshotState>();
    before->state_->counts = counts;
    walk::take_versions(module.tensors(), before->state_->module_versions);
    Taker taker(*before->state_, lasting, refusal);
    return taker.take(arguments.objects()) ? std::move(before) : nullptr;
  } catch (const std::bad_alloc&) {
    refusal = refusal::out_of_memory();
    return nullptr;
  }
}

}  // namespace grape::python::effects
