#include "python_hooks/effects/effects.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace grape::python::effects {
bool EffectFinder::find() {
  for (place_ = 0; place_ < before_.objects.size(); ++place_) {
    const bool alive = before_.alive(place_);
    if (!alive && known().finalizable) return refuse(refusal::lets_go);  // before what it refers to is looked at
    if (alive ? !find_in_object() : !find_in_memory() || !find_in_autograd(nullptr)) return false;
  }
  for (Effect& effect : last_) out_.effects.push_back(std::move(effect));
  return find_writes();
}

bool EffectFinder::find_writes() {
  for (place_ = 0; place_ < before_.objects.size(); ++place_) {
    if (known().kept != Kept::kTensor) continue;
    const TensorSnapshot& tensor = before_.tensors[known().tensor];
    if (torch::version_counter(before_.tensor_at(place_)) != tensor.counter) {
      return refuse(refusal::gave_tensor_version);
    }
    if (tensor.counter != nullptr) {
      note_write(nullptr, tensor.counter, tensor.counter->load() - tensor.version, before_.path(place_));
    }
  }
  if (const auto moved = walk::moved_autograd(before_.module_versions)) {
    out_.autograd = true;
    return refusal::refuse(refusal_, moved, "a tensor of the module");
  }
  for (const walk::TensorVersion& tensor : before_.module_versions) {
    if (torch::version_counter(tensor.tensor) != tensor.counter) {
      return refusal::refuse(refusal_, refusal::gave_module_version);
    }
    if (tensor.counter == nullptr) continue;
    note_write(tensor.tensor, tensor.counter, tensor.counter->load() - tensor.count, "a tensor of the module");
  }
  return true;
}

void EffectFinder::note_write(Object* module_tensor, const torch::VersionCounter* counter, std::uint32_t times,
                              std::string path) {
  if (times == 0) return;
  torch::TensorView view;
  Object* const tensor = module_tensor != nullptr ? module_tensor : before_.tensor_at(place_);
  if (torch::view_tensor(tensor, view)) out_.written.push_back({view.storage, view.storage_bytes});
  const auto index = static_cast<std::uint32_t>(out_.writes.size());
  const std::uint32_t first = written_.emplace(counter, index).first->second;
  out_.writes.push_back({module_tensor, module_tensor == nullptr ? place_ : 0, times, first, std::move(path)});
}

bool EffectFinder::find_in_object() {
  if (type_of(known().object) != known().type.get()) return refuse(refusal::changed_type);
  switch (known().kept) {
    case Kept::kNothing:
      return true;
    case Kept::kTensor:
      return find_in_tensor() && find_in_attributes();
    case Kept::kInstance:
      return find_in_slots() && find_in_attributes() && find_in_items();
    case Kept::kClass: {
      std::vector<walk::Item> definitions;
      walk::definitions_of(known().object, definitions);
      return unchanged(definitions) || refuse(refusal::changed_class);
    }
    case Kept::kReferents: {
      std::vector<walk::Item> referents;
      walk::referents_of(known().object, referents);
      return unchanged(referents) || refuse(refusal::changed_for_good);
    }
  }
  return false;
}

bool EffectFinder::find_in_tensor() {
  const TensorSnapshot& tensor = before_.tensors[known().tensor];
  const torch::TensorView& then = tensor.view;
  torch::TensorView now;
  const bool same = torch::view_tensor(known().object, now) && now.data == then.data && now.storage == then.storage &&
                    now.storage_bytes == then.storage_bytes && now.offset == then.offset && now.type == then.type &&
                    now.device_type == then.device_type && now.device_index == then.device_index &&
                    now.dimensions == then.dimensions &&
                    std::equal(tensor.sizes.begin(), tensor.sizes.end(), now.sizes) &&
                    std::equal(tensor.strides.begin(), tensor.strides.end(), now.strides);
  if (!same) return refuse(refusal::changed_shape);
  return find_in_memory() && find_in_autograd(known().object);
}

bool EffectFinder::find_in_autograd(Object* tensor) {
  const refusal::Form<1> moved = before_.tensors[known().tensor].autograd.moved(tensor);
  if (!moved) return true;
  if (tensor != nullptr && before_.tensors[known().tensor].autograd.requires_grad_since(tensor)) {
    out_.made_to_require_grad.push_back(place_);
    return true;
  }
  out_.autograd = true;
  return refuse(moved);
}

bool EffectFinder::find_in_memory() {
  const TensorSnapshot& tensor = before_.tensors[known().tensor];
  torch::TensorView now;
  const bool there = torch::view_tensor(before_.tensor_at(place_), now);
  if (there && content_of(now) == tensor.content) return true;
  if (!there || !has_counted(now, tensor.content)) return refuse(refusal::wrote_to_cpu);
  out_.counted.push_back(place_);
  return true;
}

// Is it a float that was one less? `content`: what it was.
bool EffectFinder::has_counted(const torch::TensorView& now, std::uint64_t content) const {
  float value = 0;
  if (!before_.counts || !torch::is_step_count(now)) return false;
  std::memcpy(&value, reinterpret_cast<const void*>(now.data), sizeof value);
  value -= 1;
  torch::TensorView then = now;
  then.data = reinterpret_cast<std::uint64_t>(&value);
  return value >= 0 && value < torch::kMostSteps && content_of(then) == content;
}

// When its end comes, and what comes of it, is no part of what is repeated.
bool EffectFinder::let_go(const Entry& entry, const std::string& label) {
  if (!entry.finalizable) {
    if (entry.value != nullptr) dropped_.push_back(entry.value);
    return true;
  }
  return refusal::refuse(refusal_, refusal::lets_go, before_.path(place_) + label);
}

// What is in the outcome lives on. What is not, maybe too, and nobody asks for its end then.
void EffectFinder::note_dropped() {
  std::vector<bool> met(before_.objects.size());
  for (const Node& node : out_.nodes) {
    if (node.kind == ValueKind::kArgument) met[node.index] = true;
  }
  for (std::size_t i = 0; i < dropped_.size(); ++i) {  // which grows
    Object* const value = dropped_[i];
    const auto place = before_.places.find(value);
    if (place == before_.places.end()) {  // a tuple is held: it may be no object of the walk's
      const std::size_t parts = is_exactly(value, g_api.PyTuple_Type) ? item_count(value) : 0;
      for (std::size_t part = 0; part < parts; ++part) dropped_.push_back(tuple_data(value)[part]);
    } else if (!met[place->second]) {
      met[place->second] = true;
      note_parts(place->second);
    }
  }
}

void EffectFinder::note_parts(std::uint32_t place) {
  const ObjectSnapshot& known = before_.objects[place];
  if (known.kept == Kept::kClass) return;
  if (type::weak_list_offset(known.type.get()) != 0) out_.dropped.push_back(place);
  for (const auto* entries : {&known.attributes, &known.items, &known.slots}) {
    for (const Entry& entry : *entries) {
      if (entry.value != nullptr) dropped_.push_back(entry.value);
    }
  }
}

bool EffectFinder::unchanged(const std::vector<walk::Item>& items) const {
  const std::vector<Entry>& then = known().items;
  if (items.size() != then.size()) return false;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (then[i].key.get() != items[i].key || !before_.same(then[i], items[i].value)) return false;
  }
  return true;
}

bool EffectFinder::add(Action action, walk::Kind of, Object* key, std::size_t at, const std::string& label,
                       Object* value, Order order) {
  Effect effect;
  effect.action = action;
  effect.of = of;
  effect.place = place_;
  effect.type = known().type;
  effect.key = Strong(key);
  effect.at = at;
  effect.path = before_.path(place_) + label;
  if (value != nullptr) {
    effect.node = describer_.describe(value, effect.path);
    if (effect.node == kNoNode) return false;
  }
  (order == Order::kLast ? last_ : out_.effects).push_back(std::move(effect));
  return true;
}

bool EffectFinder::find_in_slots() {
  const ObjectSnapshot& then = known();
  for (std::size_t i = 0; i < then.slots.size(); ++i) {
    const walk::TypeInfo::Slot& slot = then.slot_places[i];
    Object* const value = walk::slot_at(then.object, slot.offset);
    if (before_.same(then.slots[i], value)) continue;
    const std::string label = std::string(".") + slot.name;
    if (!let_go(then.slots[i], label) || !add(Action::kSet, walk::Kind::kPlain, nullptr, slot.offset, label, value))
      return false;
  }
  return true;
}

bool EffectFinder::find_in_attributes() {
  std::vector<walk::Item> entries;
  const Object* const dict = instance_dict(known().object);
  if (replaced_dict(dict) || !walk::read_attributes(known().object, entries)) {
    return refuse(refusal::replaced_dict);
  }
  if (dict != nullptr && !dicts_.insert(dict).second) return true;
  return find_in_dictionary(known().attributes, entries, walk::Kind::kPlain);
}

// The next call's would be changed in its place, for all that refer to it. A tensor's is none of its own before there
// is something in it.
bool EffectFinder::replaced_dict(const Object* dict) const {
  const Object* const before = known().dict.value;
  if (known().kept != Kept::kInstance || dict == before) return false;
  return before != nullptr || reference_count(dict) > 1;
}

bool EffectFinder::find_in_items() {
  const walk::Kind kind = known().shape.kind;
  if (kind == walk::Kind::kPlain || (kind == walk::Kind::kTuple && !known().finalizable)) return true;
  std::vector<walk::Item> items;
  if (!walk::items_of(known().object, kind, items)) return refuse(refusal::items_unreadable);
  if (kind == walk::Kind::kList) return find_in_list(items);
  if (!walk::is(kind, walk::kKeyed)) return unchanged(items) || refuse(refusal::changed_for_good);
  if (kind != walk::Kind::kOrderedDict && !dicts_.insert(known().object).second) return true;
  return find_in_dictionary(known().items, items, kind);
}

bool EffectFinder::find_in_list(const std::vector<walk::Item>& items) {
  const std::vector<Entry>& then = known().items;
  const std::size_t common = std::min(items.size(), then.size());
  for (std::size_t i = 0; i < common; ++i) {
    if (before_.same(then[i], items[i].value)) continue;
    const std::string label = walk::item_label(items[i], i);
    if (!let_go(then[i], label) || !add(Action::kSet, walk::Kind::kList, nullptr, i, label, items[i].value))
      return false;
  }
  for (std::size_t i = common; i < then.size(); ++i) {
    if (!let_go(then[i], walk::item_label({nullptr, then[i].value}, i))) return false;
  }
  if (items.size() < then.size()) {
    const std::string label = "[" + std::to_string(items.size()) + ":]";
    return add(Action::kTruncate, walk::Kind::kList, nullptr, items.size(), label, nullptr, Order::kLast);
  }
  for (std::size_t i = common; i < items.size(); ++i) {
    if (!add(Action::kAppend, walk::Kind::kList, nullptr, i, walk::item_label(items[i], i), items[i].value))
      return false;
  }
  return true;
}

// Entries that stay in their order keep their place; all others are taken out and put behind them, in their new order.
bool EffectFinder::find_in_dictionary(const std::vector<Entry>& entries, const std::vector<walk::Item>& items,
                                      walk::Kind of) {
  const bool attributes = of == walk::Kind::kPlain;
  const auto label = [&](Object* key) {
    return attributes ? walk::attribute_label(key) : walk::item_label({key, nullptr}, 0);
  };
  std::vector<std::size_t> was;
  if (!match_keys(entries, items, attributes, was)) return false;
  std::vector<bool> still_there(entries.size()), staying(entries.size());
  for (const std::size_t entry : was) {
    if (entry != kNew) still_there[entry] = true;
  }
  std::size_t stay = 0;  // the first items that are where they were, but for what is gone
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (!still_there[i]) continue;
    if (was[stay] != i) break;
    staying[i] = true;
    ++stay;
  }

  std::vector<Object*> keys;  // that effects name
  for (std::size_t i = 0; i < entries.size(); ++i) {
    Object* const key = entries[i].key.get();
    if (staying[i]) continue;
    keys.push_back(key);
    if (!still_there[i] && !let_go(entries[i], label(key))) return false;
    if (!add(Action::kSet, of, key, 0, label(key), nullptr, still_there[i] ? Order::kNow : Order::kLast)) return false;
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    const bool same = was[i] != kNew && before_.same(entries[was[i]], items[i].value);
    if (i < stay && same) continue;
    if (was[i] != kNew && !same && !let_go(entries[was[i]], label(items[i].key))) return false;
    keys.push_back(items[i].key);
    if (!add(Action::kSet, of, items[i].key, 0, label(items[i].key), items[i].value)) return false;
  }
  return keys.empty() || good_keys(items, keys, attributes);
}

// Which entry each item was, by equal keys: one that was taken out and put in again may have a key made anew.
bool EffectFinder::match_keys(const std::vector<Entry>& entries, const std::vector<walk::Item>& items, bool attributes,
                              std::vector<std::size_t>& was) {
  was.resize(items.size());
  std::iota(was.begin(), was.end(), std::size_t{0});
  const auto same_key = [](const Entry& entry, const walk::Item& item) { return entry.key.get() == item.key; };
  if (std::equal(entries.begin(), entries.end(), items.begin(), items.end(), same_key)) return true;
  std::unordered_map<Object*, std::size_t, walk::PlainKeyHash, walk::PlainKeyEqual> then;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (!good_key(entries[i].key.get(), attributes)) return false;
    then.emplace(entries[i].key.get(), i);
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!good_key(items[i].key, attributes)) return false;
    const auto found = then.find(items[i].key);
    was[i] = found != then.end() ? found->second : kNew;
    // Should there be no memory for all effects, the key that it was could not be put back.
    if (found != then.end() && !walk::same_plain_value(found->first, items[i].key)) {
      return refuse(refusal::put_equal_key);
    }
  }
  return true;
}

// To put something into a dictionary may compare its keys, which must not run Python code; and those that are named
// are kept as they are, so they must be such that the next call's dictionary has them too.
bool EffectFinder::good_keys(const std::vector<walk::Item>& items, const std::vector<Object*>& named, bool attributes) {
  for (const walk::Item& item : items) {
    if (!good_key(item.key, attributes)) return false;
  }
  for (Object* key : named) {
    if (!walk::is_plain_value(key) && !(is_type(key) && walk::is_plain_key(key))) return refuse_key(key);
    if (walk::has_nan(key)) return refuse(refusal::changed_dict_with_nan);
  }
  return true;
}

bool EffectFinder::good_key(Object* key, bool attribute) {
  return (attribute ? type_of(key) == g_api.PyUnicode_Type : walk::is_plain_key(key)) || refuse_key(key);
}

bool EffectFinder::refuse_key(Object* key) { return refuse(refusal::changed_dict_with_key, type::name(type_of(key))); }

}  // namespace grape::python::effects
