#include "python_hooks/state/describe.h"

#include <algorithm>
#include <cstddef>
#include <new>
#include <utility>

namespace grape::python::state {
namespace {

constexpr std::size_t kMostNodes = 1U << 16;
constexpr int kMostDepth = 100;

std::string a_type(const Object* object) { return std::string("an object of type ") + type::name(type_of(object)); }

// Bytes of the storage up to the end of the last element.
std::uint64_t end_of(const TensorView& view) {
  std::int64_t last = view.offset;
  for (std::int64_t i = 0; i < view.dimensions; ++i) {
    if (view.sizes[i] == 0) return 0;
    last += (view.sizes[i] - 1) * view.strides[i];
  }
  return static_cast<std::uint64_t>(last + 1) * view.item_bytes;
}

// The dispatch keys of what new_tensor() makes here and now.
std::uint64_t keys_of_new(const TensorView& like) {
  const std::int64_t size = 0, stride = 1;
  const Reference empty(new_tensor(1, &size, &stride, like.type, like.device_type, like.device_index));
  TensorView view;
  return empty && view_tensor(empty.get(), view) ? view.keys : 0;
}

// The same of what new_alias() makes.
std::uint64_t keys_of_alias(Object* base, const View& alias) {
  const Reference made(new_alias(base, static_cast<std::int64_t>(alias.sizes.size()), alias.sizes.data(),
                                 alias.strides.data(), alias.offset, alias.type));
  TensorView view;
  return made && view_tensor(made.get(), view) ? view.keys : 0;
}

constexpr char kOtherView[] =
    "a view that was made in another grad mode, or by an operator that makes several (unbind, chunk, split)";

constexpr char kViewOfWritten[] =
    "a view of a tensor that requires grad and that the call wrote to: whether it was made before or after that shows";

// Did the call write to the tensor of the arguments or of the module that has this version?
bool was_written(const BeforeState& before, const VersionCounter* counter) {
  const auto moved = [counter](const VersionCounter* known, std::uint32_t count) {
    return known != nullptr && known == counter && known->load() != count;
  };
  return std::any_of(before.tensors.begin(), before.tensors.end(),
                     [&](const TensorBefore& tensor) { return moved(tensor.counter, tensor.version); }) ||
         std::any_of(before.module_versions.begin(), before.module_versions.end(),
                     [&](const TensorVersion& tensor) { return moved(tensor.counter, tensor.count); });
}

// Does a view made by as_strided(), here and now, pass for this one?
bool is_made_anew(const TensorView& view, Object* base) {
  const Reference made(new_view(base, view.dimensions, view.sizes, view.strides, view.offset));
  return made && same_kind_of_view(view.object, made.get());
}

// The same of a view of memory that the call made.
bool is_usual_view(const TensorView& view) {
  const std::int64_t size = 1, stride = 1;
  const Reference base(new_tensor(1, &size, &stride, view.type, view.device_type, view.device_index));
  if (!base) return false;
  const Reference made(new_view(base.get(), 1, &size, &stride, 0));
  return made && same_kind_of_view(view.object, made.get());
}

Object* tensor_of(const View& view, const BeforeState& before) {
  return view.module_tensor != nullptr ? view.module_tensor : before.tensor_at(view.place);
}

const void* base_of(const View& view, const BeforeState& before) {
  return view.module_tensor != nullptr ? base_of_tensor(view.module_tensor)
                                       : before.tensors[before.objects[view.place].tensor].base;
}

std::int32_t type_of_numbers(Object* tensor) {
  TensorView view;
  return view_tensor(tensor, view) ? view.type : -1;
}

}  // namespace

Describer::Describer(const BeforeState& before, const std::vector<Object*>& module_objects, OutcomeState& out,
                     std::string& reason)
    : before_(before), out_(out), reason_(reason) {
  for (std::uint32_t place = 0; place < before.objects.size(); ++place) {
    const ObjectBefore& known = before.objects[place];
    if (known.kept != Kept::kTensor) continue;
    const TensorView& view = before.tensors[known.tensor].view;
    const VersionCounter* const counter = version_counter(before.tensor_at(place));
    memory_.push_back({view.storage, view.storage_bytes, view.keys, counter, nullptr, place});
  }
  for (Object* object : module_objects) {
    of_module_.emplace(object, true);
    TensorView view;
    if (is_plain_tensor(object) && view_tensor(object, view)) {
      memory_.push_back({view.storage, view.storage_bytes, view.keys, version_counter(object), object, 0});
    }
  }
}

std::uint32_t Describer::refuse(const std::string& what) {
  if (reason_.empty()) reason_ = path_ + ": " + what;
  return kNoNode;
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
  std::uint32_t node = kNoNode;
  const auto known = known_.find(object);
  if (known != known_.end()) {
    node = known->second;
  } else {
    if (out_.nodes.size() >= kMostNodes) return refuse("too many values");
    if (depth_ >= kMostDepth) return refuse("nested too deep");
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
  if (is_plain_value(object)) {
    note_number(object);
    return add(ValueKind::kPlain, object, 0);
  }
  const TypeInfo* info = type_info(type_of(object));
  if (info == nullptr) throw std::bad_alloc();
  const Kind kind = info->kind;
  if (kind == Kind::kType || kind == Kind::kEnum) return add(ValueKind::kIdentity, object, 0);
  const auto place = before_.places.find(object);
  const bool argument = place != before_.places.end() && before_.alive(place->second);
  if (of_module_.count(object) != 0) {
    // Which of the two the code meant, the next call's arguments would tell too late.
    if (argument) return refuse("reached both from the arguments and from the module");
    const std::uint32_t node = add(ValueKind::kModule, nullptr, 0);
    out_.nodes[node].object = object;
    return node;
  }
  if (argument) return add(ValueKind::kArgument, nullptr, place->second);
  if (is_tensor_or_subclass(object)) return describe_tensor(object);
  Shape shape;
  std::vector<TypeInfo::Slot> slots;
  if (shape_of(type_of(object), shape, slots)) return describe_instance(object, shape, slots);
  return describe_other(object, kind);
}

std::uint32_t Describer::describe_tensor(Object* tensor) {
  if (!is_plain_tensor(tensor)) return refuse(a_type(tensor) + ", a subclass of Tensor, made by the call");
  if (is_parameter(tensor)) return refuse("a parameter made by the call");
  if (requires_grad(tensor)) {
    out_.autograd = true;
    return refuse("a tensor that requires grad");
  }
  TensorView view;
  if (!view_tensor(tensor, view)) return refuse("a tensor that is not strided, or not understood");
  if (weakly_held(tensor)) return refuse("a tensor that is weakly referred to elsewhere");
  const Memory* memory = nullptr;
  if (!find_memory(view, memory)) return kNoNode;
  const std::uint32_t node = memory != nullptr ? describe_view(view, *memory) : describe_made(view);
  if (node == kNoNode || !describe_tensor_attributes(tensor, node)) return kNoNode;
  expect(node, tensor);
  return node;
}

// What libraries note on a tensor ("its address does not change"). Other tensors would be held by it, and it by them.
bool Describer::describe_tensor_attributes(Object* tensor, std::uint32_t node) {
  std::vector<Item> entries;
  const bool readable = read_attributes(tensor, entries);
  const bool plain = readable && std::all_of(entries.begin(), entries.end(),
                                             [](const Item& entry) { return is_plain_value(entry.value); });
  if (!plain) {
    refuse("a tensor with attributes of its own that are no plain values");
    return false;
  }
  std::vector<Link> links;
  if (!describe_attributes(tensor, links)) return false;
  out_.nodes[node].attributes = append(links);
  return true;
}

std::uint32_t Describer::describe_made(const TensorView& view) {
  MadeTensor made;
  if (view.keys != keys_of_new(view)) return refuse("a tensor of another inference mode than the call's");
  made.storage = view.storage;
  made.storage_bytes = view.storage_bytes;
  made.offset = view.offset;
  made.sizes.assign(view.sizes, view.sizes + view.dimensions);
  made.strides.assign(view.strides, view.strides + view.dimensions);
  made.type = view.type;
  made.item_bytes = view.item_bytes;
  made.device_type = view.device_type;
  made.device_index = view.device_index;
  // An empty storage is nobody's: each of these tensors has one of its own.
  const auto next = static_cast<std::uint32_t>(groups_.size());
  const std::uint64_t storage = view.storage_bytes != 0 ? view.storage : ~std::uint64_t{next};
  made.group = groups_.emplace(storage, next).first->second;
  const VersionCounter* const counter = version_counter(view.object);
  made.as_first = static_cast<std::uint32_t>(out_.made.size());
  if (counter != nullptr) {
    made.version = counter->load();
    made.as_first = versions_.emplace(counter, made.as_first).first->second;
  }
  if (const void* base = base_of_tensor(view.object)) {
    if (!is_usual_view(view)) return refuse(kOtherView);
    views_.emplace_back(made_tensors_.size(), base);
  }
  made_tensors_.push_back(identity_of_tensor(view.object));
  out_.made.push_back(std::move(made));
  return add(ValueKind::kMade, nullptr, static_cast<std::uint32_t>(out_.made.size() - 1));
}

// Whose memory is it? False: refused, for more than one may be meant.
bool Describer::find_memory(const TensorView& view, const Memory*& found) {
  if (view.storage_bytes == 0) return true;
  const VersionCounter* const counter = version_counter(view.object);
  for (const Memory& memory : memory_) {
    if (memory.address >= view.storage + view.storage_bytes || view.storage >= memory.address + memory.bytes) continue;
    if (memory.address != view.storage || memory.bytes != view.storage_bytes) {
      refuse("a tensor whose storage overlaps another one's");
      return false;
    }
    if (found != nullptr && (found->module_tensor == nullptr) != (memory.module_tensor == nullptr)) {
      refuse("a view of memory that both the arguments and the module have");
      return false;
    }
    const bool shares_version = memory.counter == counter;
    if (found == nullptr || (shares_version && found->counter != counter)) found = &memory;
  }
  return true;
}

std::uint32_t Describer::describe_view(const TensorView& view, const Memory& memory) {
  if (view.keys != memory.keys) return refuse("a view of another inference mode than the tensor that it is of");
  View made;
  made.module_tensor = memory.module_tensor;
  made.place = memory.place;
  made.sizes.assign(view.sizes, view.sizes + view.dimensions);
  made.strides.assign(view.strides, view.strides + view.dimensions);
  made.offset = view.offset;
  made.type = view.type;
  made.end = end_of(view);
  const VersionCounter* const counter = version_counter(view.object);
  made.own_version = counter != memory.counter;
  if (made.own_version && counter != nullptr) made.version = counter->load();
  Object* const base = tensor_of(made, before_);
  const void* const view_of = base_of_tensor(view.object);
  made.is_view = !made.own_version && view.type == type_of_numbers(base) && view_of != nullptr &&
                 (view_of == identity_of_tensor(base) || view_of == base_of(made, before_));
  if (made.is_view && !is_made_anew(view, base)) return refuse(kOtherView);
  if (made.is_view && autograd_facts(base) != 0 && was_written(before_, counter)) return refuse(kViewOfWritten);
  if (!made.is_view && view.keys != keys_of_alias(base, made)) {
    return refuse("a view of another inference mode than the tensor that it is of");
  }
  out_.views.push_back(std::move(made));
  return add(ValueKind::kView, nullptr, static_cast<std::uint32_t>(out_.views.size() - 1));
}

std::uint32_t Describer::describe_instance(Object* object, const Shape& shape,
                                           const std::vector<TypeInfo::Slot>& slots) {
  if (weakly_held(object)) return refuse(a_type(object) + " that is weakly referred to elsewhere");
  const std::uint32_t index = add(ValueKind::kBuilt, type_of(object), 0);
  out_.nodes[index].shape = shape;
  known_[object] = index;  // for parts that refer back to it
  expect(index, object);
  if (shape.content == Content::kDeque) {
    const std::ptrdiff_t most = deque_limit(object);
    const Reference limit(most >= 0 ? g_api.PyLong_FromLong(most) : nullptr);
    out_.nodes[index].limit = Strong(limit ? limit.get() : g_api._Py_NoneStruct);
  }
  std::vector<Link> items, attributes, slot_links;
  if (!describe_attributes(object, attributes) || !describe_slots(object, slots, slot_links) ||
      !describe_items(object, shape.content, items)) {
    return kNoNode;
  }
  Node& node = out_.nodes[index];
  node.items = append(items);
  node.attributes = append(attributes);
  node.slots = append(slot_links);
  return index;
}

Range Describer::append(std::vector<Link>& links) {
  const Range range{static_cast<std::uint32_t>(out_.links.size()), static_cast<std::uint32_t>(links.size())};
  for (Link& link : links) out_.links.push_back(std::move(link));
  return range;
}

bool Describer::describe_attributes(Object* object, std::vector<Link>& links) {
  std::vector<Item> entries;
  Object* dict = instance_dict(object);
  if (!read_attributes(object, entries) || (dict != nullptr && reference_count(dict) != 1)) {
    refuse(a_type(object) + " whose __dict__ is not its own");
    return false;
  }
  for (const Item& entry : entries) {
    if (!is_exactly(entry.key, g_api.PyUnicode_Type)) {
      refuse(a_type(object) + " with an attribute whose name is no string");
      return false;
    }
    Link link;
    link.key = Strong(entry.key);
    if (!describe_part(entry.value, attribute_label(entry.key), link)) return false;
    links.push_back(std::move(link));
  }
  return true;
}

bool Describer::describe_slots(Object* object, const std::vector<TypeInfo::Slot>& slots, std::vector<Link>& links) {
  for (const TypeInfo::Slot& slot : slots) {
    Object* const value = slot_at(object, slot.offset);
    if (value == nullptr) continue;
    Link link;
    link.offset = slot.offset;
    link.slot = slot.name;
    if (!describe_part(value, "." + link.slot, link)) return false;
    links.push_back(std::move(link));
  }
  return true;
}

bool Describer::describe_items(Object* object, Content content, std::vector<Link>& links) {
  std::vector<Item> items;
  if (!items_of(object, content, items)) {
    refuse(a_type(object) + " whose items cannot be read");
    return false;
  }
  if (content == Content::kSet && (items.size() > 1 || (items.size() == 1 && !is_plain_key(items[0].value)))) {
    refuse("a set, whose order cannot be made again");
    return false;
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].value == nullptr) {  // C code can leave it so
      refuse(a_type(object) + " whose items are not set");
      return false;
    }
    Link link;
    if (items[i].key != nullptr && !describe_key(items[i].key, link)) return false;
    if (!describe_part(items[i].value, item_label(items[i], i), link)) return false;
    links.push_back(std::move(link));
  }
  return true;
}

bool Describer::describe_part(Object* value, const std::string& label, Link& link) {
  const std::size_t length = path_.size();
  path_ += label;
  link.node = describe_at_path(value);
  path_.resize(length);
  return link.node != kNoNode;
}

// Keys are kept as they are, so they must be such that everybody may have them.
bool Describer::describe_key(Object* key, Link& link) {
  if (!is_plain_value(key) && !(is_type(key) && is_plain_key(key))) {
    refuse("a dictionary with a key of type " + std::string(type::name(type_of(key))));
    return false;
  }
  if (has_nan(key)) {
    refuse("a dictionary with a key that is a NaN, or has one in it");
    return false;
  }
  link.key = Strong(key);
  return true;
}

// Neither a container nor an instance: the walk writes down what is immutable.
std::uint32_t Describer::describe_other(Object* object, Kind kind) {
  switch (kind) {
    case Kind::kFunction:
      return add(ValueKind::kIdentity, object, 0);
    case Kind::kFrozenSet:
    case Kind::kModule:
    case Kind::kBuiltin:
    case Kind::kDescriptor:
    case Kind::kTorchConstant:
    case Kind::kTorchDevice:
    case Kind::kTorchSize: {
      Walk walk(true);
      const bool understood = walk.add(object, path_.c_str()) && walk.tensors().empty();
      const bool itself = walk.objects().size() == 1 && walk.objects()[0] == object;
      if (!understood || !(walk.objects().empty() || itself)) break;
      out_.forms.push_back(walk.bytes());
      return add(ValueKind::kForm, object, static_cast<std::uint32_t>(out_.forms.size() - 1));
    }
    default:
      break;
  }
  return refuse(a_type(object) + " cannot be made again");
}

// A tuple of nothing new is as good as any other that is equal.
bool Describer::has_made_parts(const Node& node) const {
  if (node.kind == ValueKind::kMade || node.kind == ValueKind::kView) return true;
  if (node.kind != ValueKind::kBuilt) return false;
  if (!node.shape.exact || node.shape.content != Content::kTuple) return true;
  for (std::uint32_t i = 0; i < node.items.count; ++i) {
    if (has_made_parts(out_.nodes[out_.links[node.items.first + i].node])) return true;
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

void Describer::relate_views() {
  std::vector<const void*> hidden;
  for (const auto& [index, base] : views_) {
    const auto made = std::find(made_tensors_.begin(), made_tensors_.end(), base);
    if (made != made_tensors_.end()) {
      out_.made[index].view_of = static_cast<std::int32_t>(made - made_tensors_.begin());
      continue;
    }
    const auto known = std::find(hidden.begin(), hidden.end(), base);
    out_.made[index].view_of = MadeTensor::kHidden - static_cast<std::int32_t>(known - hidden.begin());
    if (known == hidden.end()) hidden.push_back(base);
  }
}

bool Describer::tells_no_addresses() {
  for (const auto& [number, path] : large_numbers_) {
    if (!is_address(number)) continue;
    path_ = path;
    refuse("a number that is an address");
    return false;
  }
  return true;
}

bool Describer::held_by_nobody_else() {
  for (std::uint32_t i = 0; i < out_.nodes.size(); ++i) {
    const auto made = made_.find(i);
    if (made == made_.end() || !has_made_parts(out_.nodes[i])) continue;
    // From 2.10 PyTorch holds one more reference to a tensor that native code (a view's base) holds as well.
    const bool tensor = out_.nodes[i].kind != ValueKind::kBuilt;
    const std::uint32_t native = tensor && held_by_native_code(made->second.object) ? 1 : 0;
    if (reference_count(made->second.object) > made->second.references + native) {
      path_ = made->second.path;
      refuse(a_type(made->second.object) + " that is also referred to from elsewhere");
      return false;
    }
  }
  return true;
}

}  // namespace grape::python::state
