#include "python_hooks/effects/describe.h"

#include <algorithm>
#include <cstddef>
#include <new>
#include <utility>

namespace grape::python::effects {
Describer::Describer(const ArgumentSnapshotState& before, const std::vector<Object*>& module_objects,
                     CallOutcomeState& out, refusal::Refusal& refusal)
    : before_(before), out_(out), refusal_(refusal) {
  for (std::uint32_t place = 0; place < before.objects.size(); ++place) {
    const ObjectSnapshot& known = before.objects[place];
    if (known.kept != Kept::kTensor) continue;
    const torch::TensorView& view = before.tensors[known.tensor].view;
    const torch::VersionCounter* const counter = torch::version_counter(before.tensor_at(place));
    memory_.push_back({view.storage, view.storage_bytes, view.keys, counter, nullptr, place});
  }
  for (Object* object : module_objects) {
    of_module_.emplace(object, true);
    torch::TensorView view;
    if (torch::is_plain_tensor(object) && torch::view_tensor(object, view)) {
      memory_.push_back({view.storage, view.storage_bytes, view.keys, torch::version_counter(object), object, 0});
    }
  }
}

std::uint32_t Describer::add(ValueKind kind, Object* held, std::uint32_t index) {
  out_.nodes.emplace_back();
  Node& node = out_.nodes.back();
  node.kind = kind;
  node.held = Strong(held);
  node.index = index;
  return static_cast<std::uint32_t>(out_.nodes.size() - 1);
}

void Describer::expect(std::uint32_t node, Object* object) { made_[node] = {object, 0, path_}; }

std::uint32_t Describer::describe(Object* object, std::string path) {
  path_ = std::move(path);
  return describe_at_path(object);
}

std::uint32_t Describer::describe_at_path(Object* object) {
  constexpr std::size_t kMostNodes = 1U << 16;
  constexpr int kMostDepth = 100;
  std::uint32_t node = kNoNode;
  const auto known = known_.find(object);
  if (known != known_.end()) {
    node = known->second;
  } else {
    if (out_.nodes.size() >= kMostNodes) return refuse(refusal::too_many_values);
    if (depth_ >= kMostDepth) return refuse(refusal::too_deep);
    ++depth_;
    node = describe_new(object);
    --depth_;
    if (node == kNoNode) return kNoNode;
    known_[object] = node;
  }
  const auto made = made_.find(node);
  if (made != made_.end()) ++made->second.references;
  return node;
}

std::uint32_t Describer::describe_new(Object* object) {
  if (walk::is_plain_value(object)) {
    note_number(object);
    return add(ValueKind::kPlain, object, 0);
  }
  const walk::TypeInfo* info = walk::type_info(type_of(object));
  if (info == nullptr) throw std::bad_alloc();
  const walk::Kind kind = info->kind;
  if (walk::is(kind, walk::kByIdentity)) return add(ValueKind::kIdentity, object, 0);
  const auto place = before_.places.find(object);
  const bool argument = place != before_.places.end() && before_.alive(place->second);
  if (of_module_.count(object) != 0) {
    // Which of the two the code meant, the next call's arguments would tell too late.
    if (argument) return refuse(refusal::of_arguments_and_module);
    const std::uint32_t node = add(ValueKind::kModule, nullptr, 0);
    out_.nodes[node].object = object;
    return node;
  }
  if (argument) return add(ValueKind::kArgument, nullptr, place->second);
  if (torch::is_tensor_or_subclass(object)) return describe_tensor(object);
  walk::Shape shape;
  std::vector<walk::TypeInfo::Slot> slots;
  if (walk::shape_of(type_of(object), shape, slots)) return describe_instance(object, shape, slots);
  return describe_other(object, kind);
}

std::uint32_t Describer::describe_instance(Object* object, const walk::Shape& shape,
                                           const std::vector<walk::TypeInfo::Slot>& slots) {
  if (walk::weakly_held(object)) return refuse(refusal::object_weakly_held, type::name(type_of(object)));
  const std::uint32_t index = add(ValueKind::kBuilt, type_of(object), 0);
  out_.nodes[index].shape = shape;
  known_[object] = index;  // for parts that refer back to it
  expect(index, object);
  if (shape.kind == walk::Kind::kDeque) {
    const std::ptrdiff_t most = deque_limit(object);
    const Reference limit(most >= 0 ? g_api.PyLong_FromLong(most) : nullptr);
    out_.nodes[index].limit = Strong(limit ? limit.get() : g_api._Py_NoneStruct);
  }
  std::vector<Link> links;
  if (!describe_attributes(object, links) || !describe_slots(object, slots, links)) return kNoNode;
  const std::size_t before_items = links.size();
  if (!describe_items(object, shape.kind, links)) return kNoNode;
  out_.nodes[index].items = static_cast<std::uint32_t>(links.size() - before_items);
  out_.nodes[index].links = append(links);
  return index;
}

Range Describer::append(std::vector<Link>& links) {
  const Range range{static_cast<std::uint32_t>(out_.links.size()), static_cast<std::uint32_t>(links.size())};
  for (Link& link : links) out_.links.push_back(std::move(link));
  return range;
}

bool Describer::describe_attributes(Object* object, std::vector<Link>& links) {
  std::vector<walk::Item> entries;
  Object* dict = instance_dict(object);
  if (!walk::read_attributes(object, entries) || (dict != nullptr && reference_count(dict) != 1)) {
    return refuse(refusal::dict_not_its_own, type::name(type_of(object)));
  }
  for (const walk::Item& entry : entries) {
    if (!is_exactly(entry.key, g_api.PyUnicode_Type)) {
      return refuse(refusal::attribute_without_name, type::name(type_of(object)));
    }
    if (!describe_part({Link::Place::kAttribute, Strong(entry.key)}, entry.value, links)) return false;
  }
  return true;
}

bool Describer::describe_slots(Object* object, const std::vector<walk::TypeInfo::Slot>& slots,
                               std::vector<Link>& links) {
  for (const walk::TypeInfo::Slot& slot : slots) {
    Object* const value = walk::slot_at(object, slot.offset);
    const Link link{Link::Place::kSlot, Strong(), slot.offset, slot.name};
    if (value != nullptr && !describe_part(link, value, links)) return false;
  }
  return true;
}

bool Describer::describe_items(Object* object, walk::Kind kind, std::vector<Link>& links) {
  std::vector<walk::Item> items;
  const char* const type = type::name(type_of(object));
  if (!walk::items_of(object, kind, items)) return refuse(refusal::items_of_object_unreadable, type);
  if (kind == walk::Kind::kSet && (items.size() > 1 || (items.size() == 1 && !walk::is_plain_key(items[0].value)))) {
    return refuse(refusal::order_of_set);
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    const walk::Item& item = items[i];
    if (item.value == nullptr) return refuse(refusal::items_not_set, type);  // C code can leave it so
    if (item.key != nullptr && !good_key(item.key)) return false;
    if (!describe_part({Link::Place::kItem, Strong(item.key), i}, item.value, links)) return false;
  }
  return true;
}

bool Describer::describe_part(Link link, Object* value, std::vector<Link>& links) {
  const std::size_t length = path_.size();
  path_ += link.label();
  link.node = describe_at_path(value);
  path_.resize(length);
  links.push_back(std::move(link));
  return links.back().node != kNoNode;
}

// Keys are kept as they are, so they must be such that everybody may have them.
bool Describer::good_key(Object* key) {
  if (!walk::is_plain_value(key) && !(is_type(key) && walk::is_plain_key(key))) {
    return refuse(refusal::key_of_type, type::name(type_of(key)));
  }
  return !walk::has_nan(key) || refuse(refusal::key_with_nan);
}

// Neither a container nor an instance: the walk writes down what is immutable.
std::uint32_t Describer::describe_other(Object* object, walk::Kind kind) {
  if (kind == walk::Kind::kFunction) return add(ValueKind::kIdentity, object, 0);
  if (walk::is(kind, walk::kByForm)) {
    walk::Walk walk(true);
    const bool understood = walk.add(object, path_.c_str()) && walk.tensors().empty();
    const bool itself = walk.objects().size() == 1 && walk.objects()[0] == object;
    if (understood && (walk.objects().empty() || itself)) {
      out_.forms.push_back(walk.bytes());
      return add(ValueKind::kForm, object, static_cast<std::uint32_t>(out_.forms.size() - 1));
    }
  }
  return refuse(refusal::not_made_again, type::name(type_of(object)));
}

// A tuple of nothing new is as good as any other that is equal.
bool Describer::has_made_parts(const Node& node) const {
  if (node.kind == ValueKind::kMade || node.kind == ValueKind::kView) return true;
  if (node.kind != ValueKind::kBuilt) return false;
  if (!node.shape.exact || node.shape.kind != walk::Kind::kTuple) return true;
  for (std::uint32_t i = 0; i < node.links.count; ++i) {
    if (has_made_parts(out_.nodes[out_.links[node.links.first + i].node])) return true;
  }
  return false;
}

void Describer::note_number(Object* value) {
  if (is_exactly(value, g_api.PyTuple_Type)) {
    for (std::size_t i = 0; i < item_count(value); ++i) note_number(tuple_data(value)[i]);
    return;
  }
  if (!is_exactly(value, g_api.PyLong_Type)) return;
  constexpr long long kNoAddressBelow = 1 << 20;
  int overflow = 0;
  const long long number = g_api.PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow == 0 && number >= kNoAddressBelow) {
    large_numbers_.emplace_back(static_cast<std::uint64_t>(number), path_);
  }
}

bool Describer::is_address(std::uint64_t number) const {
  const auto inside = [number](std::uint64_t address, std::uint64_t bytes) {
    return number >= address && number - address < bytes;
  };
  for (const Memory& memory : memory_) {
    if (inside(memory.address, memory.bytes)) return true;
  }
  for (const MadeTensor& made : out_.made) {
    if (inside(made.storage, made.storage_bytes)) return true;
  }
  const auto* object = reinterpret_cast<const Object*>(number);
  return before_.places.count(object) != 0 || of_module_.count(object) != 0 || known_.count(object) != 0;
}

bool Describer::tells_no_addresses() {
  for (const auto& [number, path] : large_numbers_) {
    if (!is_address(number)) continue;
    path_ = path;
    return refuse(refusal::number_is_address);
  }
  return true;
}

bool Describer::held_by_nobody_else() {
  for (std::uint32_t i = 0; i < out_.nodes.size(); ++i) {
    const auto made = made_.find(i);
    if (made == made_.end() || !has_made_parts(out_.nodes[i])) continue;
    // From 2.10 PyTorch holds one more reference to a tensor that native code (a view's base) holds as well.
    const bool tensor = out_.nodes[i].kind != ValueKind::kBuilt;
    const std::uint32_t native = tensor && torch::held_by_native_code(made->second.object) ? 1 : 0;
    if (reference_count(made->second.object) > made->second.references + native) {
      path_ = made->second.path;
      return refuse(refusal::held_elsewhere, type::name(type_of(made->second.object)));
    }
  }
  return true;
}

}  // namespace grape::python::effects
