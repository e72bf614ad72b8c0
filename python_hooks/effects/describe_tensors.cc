// Describes tensors: what the call made, and what lies in the memory of the arguments or of the module.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "python_hooks/effects/describe.h"

namespace grape::python::effects {
namespace {

// Bytes of the storage up to the end of the last element.
std::uint64_t end_of(const torch::TensorView& view) {
  std::int64_t last = view.offset;
  for (std::int64_t i = 0; i < view.dimensions; ++i) {
    if (view.sizes[i] == 0) return 0;
    last += (view.sizes[i] - 1) * view.strides[i];
  }
  return static_cast<std::uint64_t>(last + 1) * view.item_bytes;
}

void take_form(const torch::TensorView& view, TensorForm& out) {
  out.offset = view.offset;
  out.sizes.assign(view.sizes, view.sizes + view.dimensions);
  out.strides.assign(view.strides, view.strides + view.dimensions);
  out.type = view.type;
}

// The dispatch keys of what new_tensor() makes here and now.
std::uint64_t keys_of_new(const torch::TensorView& like) {
  const std::int64_t size = 0, stride = 1;
  const Reference empty(torch::new_tensor(1, &size, &stride, like.type, like.device_type, like.device_index));
  torch::TensorView view;
  return empty && torch::view_tensor(empty.get(), view) ? view.keys : 0;
}

// The same of what new_alias() makes.
std::uint64_t keys_of_alias(Object* base, const View& alias) {
  const Reference made(torch::new_alias(base, static_cast<std::int64_t>(alias.sizes.size()), alias.sizes.data(),
                                        alias.strides.data(), alias.offset, alias.type));
  torch::TensorView view;
  return made && torch::view_tensor(made.get(), view) ? view.keys : 0;
}

// Did the call write to the tensor of the arguments or of the module that has this version?
bool was_written(const ArgumentSnapshotState& before, const torch::VersionCounter* counter) {
  const auto moved = [counter](const torch::VersionCounter* known, std::uint32_t count) {
    return known != nullptr && known == counter && known->load() != count;
  };
  return std::any_of(before.tensors.begin(), before.tensors.end(),
                     [&](const TensorSnapshot& tensor) { return moved(tensor.counter, tensor.version); }) ||
         std::any_of(before.module_versions.begin(), before.module_versions.end(),
                     [&](const walk::TensorVersion& tensor) { return moved(tensor.counter, tensor.count); });
}

// A view like this one, as new_view() makes it here and now; of a base without a node, as in a replay.
struct AnotherView {
  AnotherView(const torch::TensorView& view, Object* of)
      : base(torch::requires_grad(view.object) ? without_node(of) : new_reference(of)),
        owners_before(torch::owners_of_tensor(base.get())),
        made(torch::new_view(base.get(), view.dimensions, view.sizes, view.strides, view.offset, view.type)) {}
  static Object* without_node(Object* tensor) {
    torch::TensorView view;
    const bool plain = torch::view_tensor(tensor, view);
    Object* const alias =
        plain ? torch::new_alias(tensor, view.dimensions, view.sizes, view.strides, view.offset, view.type) : nullptr;
    return alias != nullptr ? alias : new_reference(tensor);
  }
  const Reference base;
  const long owners_before;
  const Reference made;
};

// Does a view made by new_view(), here and now, pass for this one?
bool is_made_anew(const torch::TensorView& view, Object* base) {
  const AnotherView another(view, base);
  torch::TensorView like;
  return another.made && torch::view_tensor(another.made.get(), like) && like.keys == view.keys &&
         torch::same_kind_of_view(view.object, another.made.get(), torch::requires_grad(view.object));
}

// How often a view like this one keeps its base: a view of numbers' parts keeps it twice.
long owners_of_a_view(Object* tensor, Object* base) {
  torch::TensorView view;
  if (!torch::view_tensor(tensor, view)) return 0;
  const AnotherView another(view, base);
  return torch::owners_of_tensor(another.base.get()) - another.owners_before;
}

Object* tensor_of(const View& view, const ArgumentSnapshotState& before) {
  return view.module_tensor != nullptr ? view.module_tensor : before.tensor_at(view.place);
}

// What the tensor of the arguments or of the module is a view of.
const void* base_of(Object* module_tensor, std::uint32_t place, const ArgumentSnapshotState& before) {
  return module_tensor != nullptr ? torch::base_of_tensor(module_tensor)
                                  : before.tensors[before.objects[place].tensor].base;
}

template <typename T>
std::int32_t index_in(const std::vector<T>& list, T item) {
  const auto at = std::find(list.begin(), list.end(), item);
  return at != list.end() ? static_cast<std::int32_t>(at - list.begin()) : -1;
}

}  // namespace

std::uint32_t Describer::describe_tensor(Object* tensor) {
  if (!torch::is_plain_tensor(tensor)) return refuse(refusal::tensor_subclass, type::name(type_of(tensor)));
  if (torch::is_parameter(tensor)) return refuse(refusal::parameter_made);
  const bool gradients = torch::requires_grad(tensor);
  if (gradients && !may_require_grad(tensor)) return refuse(refusal::requires_grad);
  torch::TensorView view;
  if (!torch::view_tensor(tensor, view)) return refuse(refusal::not_strided);
  if (walk::weakly_held(tensor)) return refuse(refusal::tensor_weakly_held);
  const std::uint32_t node = describe_in_memory(view);
  if (node == kNoNode || !describe_tensor_attributes(tensor, node)) return kNoNode;
  if (gradients && !note_gradients(tensor, node, false)) return kNoNode;
  expect(node, tensor);
  return node;
}

// Only one that a node of autograd's graph made. `out_.autograd` tells if it may not.
bool Describer::may_require_grad(Object* tensor) {
  const bool may = out_.gradients != nullptr && (torch::autograd_facts(tensor) & torch::kHasGradFn) != 0;
  if (!may) out_.autograd = true;
  return may;
}

// It is memory that the call made.
bool Describer::note_gradients(Object* tensor, std::uint32_t node, bool hidden) {
  const Node& described = out_.nodes[node];
  if (described.kind != ValueKind::kMade) {
    out_.autograd = true;
    return refuse(refusal::view_requires_grad);
  }
  out_.made[described.index].requires_grad = true;
  out_.gradients->push_back({described.index, tensor, hidden});
  return true;
}

std::uint32_t Describer::describe_in_memory(const torch::TensorView& view) {
  const Memory* memory = nullptr;
  const void* const base = torch::base_of_tensor(view.object);
  if (!find_memory(view, base, memory)) return kNoNode;
  return memory != nullptr ? describe_view(view, *memory) : describe_made(view);
}

// What libraries note on a tensor ("its address does not change"). Other tensors would be held by it, and it by them.
bool Describer::describe_tensor_attributes(Object* tensor, std::uint32_t node) {
  std::vector<walk::Item> entries;
  const bool readable = walk::read_attributes(tensor, entries);
  const bool plain = readable && std::all_of(entries.begin(), entries.end(),
                                             [](const walk::Item& entry) { return walk::is_plain_value(entry.value); });
  if (!plain) return refuse(refusal::tensor_with_attributes);
  std::vector<Link> links;
  if (!describe_attributes(tensor, links)) return false;
  out_.nodes[node].links = append(links);
  return true;
}

std::uint32_t Describer::describe_made(const torch::TensorView& view) {
  MadeTensor made;
  if (view.keys != keys_of_new(view)) return refuse(refusal::other_inference_mode);
  made.storage = view.storage;
  made.storage_bytes = view.storage_bytes;
  take_form(view, made);
  made.item_bytes = view.item_bytes;
  made.device_type = view.device_type;
  made.device_index = view.device_index;
  // An empty storage is nobody's: each of these tensors has one of its own.
  const auto next = static_cast<std::uint32_t>(groups_.size());
  const std::uint64_t storage = view.storage_bytes != 0 ? view.storage : ~std::uint64_t{next};
  made.group = groups_.emplace(storage, next).first->second;
  const torch::VersionCounter* const counter = torch::version_counter(view.object);
  if (is_version_of_memory(counter)) return refuse(refusal::version_in_other_memory);
  made.as_first = static_cast<std::uint32_t>(out_.made.size());
  if (counter != nullptr) {
    made.version = counter->load();
    made.as_first = versions_.emplace(counter, made.as_first).first->second;
  }
  const Reference base(torch::new_reference_to_base(view.object));
  if (base && !is_made_anew(view, base.get())) return refuse(refusal::view_of_other_kind);
  if (base) based_.push_back({view.object, torch::identity_of_tensor(base.get()), out_.made.size(), true, path_});
  made_tensors_.push_back(torch::identity_of_tensor(view.object));
  out_.made.push_back(std::move(made));
  return add(ValueKind::kMade, nullptr, static_cast<std::uint32_t>(out_.made.size() - 1));
}

// Is the version one of a tensor of the arguments or of the module?
bool Describer::is_version_of_memory(const torch::VersionCounter* counter) const {
  return counter != nullptr && std::any_of(memory_.begin(), memory_.end(),
                                           [counter](const Memory& memory) { return memory.counter == counter; });
}

// Of several tensors in the same memory: which of them does autograd know a tensor as a view of, or as another face of?
int Describer::nearness(const Memory& memory, const torch::VersionCounter* counter, const void* base) const {
  if (memory.counter != counter) return 0;
  if (base == nullptr) return 1;
  if (memory.module_tensor == nullptr && !before_.alive(memory.place)) return 1;
  Object* const tensor = memory.module_tensor != nullptr ? memory.module_tensor : before_.tensor_at(memory.place);
  if (torch::identity_of_tensor(tensor) == base) return 3;
  return base_of(memory.module_tensor, memory.place, before_) == base ? 2 : 1;
}

// Whose memory is it? `base`: what autograd knows it as a view of. False: refused, for more than one may be meant.
bool Describer::find_memory(const torch::TensorView& view, const void* base, const Memory*& found) {
  if (view.storage_bytes == 0) return true;
  const torch::VersionCounter* const counter = torch::version_counter(view.object);
  int nearest = -1;
  for (const Memory& memory : memory_) {
    if (memory.address >= view.storage + view.storage_bytes || view.storage >= memory.address + memory.bytes) continue;
    if (memory.address != view.storage || memory.bytes != view.storage_bytes) {
      return refuse(refusal::storage_overlaps);
    }
    if (found != nullptr && (found->module_tensor == nullptr) != (memory.module_tensor == nullptr)) {
      return refuse(refusal::memory_of_both);
    }
    const int near = nearness(memory, counter, base);
    if (near > nearest) {
      found = &memory;
      nearest = near;
    }
  }
  return true;
}

std::uint32_t Describer::describe_view(const torch::TensorView& view, const Memory& memory) {
  if (view.keys != memory.keys) return refuse(refusal::view_of_other_inference_mode);
  View made;
  made.module_tensor = memory.module_tensor;
  made.place = memory.place;
  take_form(view, made);
  made.end = end_of(view);
  const torch::VersionCounter* const counter = torch::version_counter(view.object);
  made.own_version = counter != memory.counter;
  if (made.own_version && is_version_of_memory(counter)) return refuse(refusal::version_in_other_memory);
  if (made.own_version && counter != nullptr) made.version = counter->load();
  if (!describe_base(view, made)) return kNoNode;
  view_tensors_.push_back(torch::identity_of_tensor(view.object));
  view_counters_.push_back(counter);
  out_.views.push_back(std::move(made));
  return add(ValueKind::kView, nullptr, static_cast<std::uint32_t>(out_.views.size() - 1));
}

// What autograd knows it as a view of: the tensor that has the memory, what that is a view of, or another one.
bool Describer::describe_base(const torch::TensorView& view, View& made) {
  Object* const of = tensor_of(made, before_);
  const torch::VersionCounter* const counter = torch::version_counter(view.object);
  const Reference base(torch::new_reference_to_base(view.object));
  if (!base) {
    if (view.keys == keys_of_alias(of, made)) return true;
    return refuse(refusal::view_of_other_inference_mode);
  }
  const void* const identity = torch::identity_of_tensor(base.get());
  made.is_view = !made.own_version && (identity == torch::identity_of_tensor(of) ||
                                       identity == base_of(made.module_tensor, made.place, before_));
  if (!is_made_anew(view, made.is_view ? of : base.get())) refuse(refusal::view_of_other_kind);
  if (made.is_view && torch::concern_gradients(torch::autograd_facts(of)) && was_written(before_, counter)) {
    refuse(refusal::view_of_written);
  }
  if (!made.is_view) based_.push_back({view.object, identity, out_.views.size(), false, path_});
  return !refusal_;
}

bool Describer::relate_views() {
  for (std::size_t i = 0; i < based_.size(); ++i) {
    const Based view = based_[i];
    path_ = view.path;
    if (!is_in_memory_of_base(view.tensor)) return refuse(refusal::view_in_other_memory);
    const auto index = [&] { return index_in(view.made ? made_tensors_ : view_tensors_, view.base); };
    if (index() < 0 && !describe_hidden(view)) return false;
    (view.made ? out_.made[view.index].view_of : out_.views[view.index].view_of) = index();
    if (view.made && out_.made[view.index].requires_grad &&
        !out_.made[static_cast<std::size_t>(index())].requires_grad) {
      out_.autograd = true;
      return refuse(refusal::view_of_other_kind);
    }
  }
  note_faces();
  return share_own_versions();
}

// Has neither got other memory (`.data = `, set_()) since the view was made?
bool Describer::is_in_memory_of_base(Object* tensor) const {
  const Reference base(torch::new_reference_to_base(tensor));
  torch::TensorView own, of;
  return base && torch::view_tensor(tensor, own) && torch::view_tensor(base.get(), of) && own.storage == of.storage &&
         own.storage_bytes == of.storage_bytes && torch::version_counter(tensor) == torch::version_counter(base.get());
}

// Of which of several arguments in one memory a view is, autograd tells by its base and its version; where two have
// both in common, they must have it in a replay as well.
void Describer::note_faces() {
  for (const View& view : out_.views) {
    if (view.module_tensor != nullptr) continue;
    const std::uint64_t address = before_.tensors[before_.objects[view.place].tensor].view.storage;
    const auto known = [&](const Face& face) {
      return before_.tensors[before_.objects[face.place].tensor].view.storage == address;
    };
    if (std::any_of(out_.faces.begin(), out_.faces.end(), known)) continue;
    std::vector<const Memory*> faces;
    for (const Memory& memory : memory_) {
      if (memory.module_tensor == nullptr && memory.address == address) faces.push_back(&memory);
    }
    if (faces.size() > 1) append_faces(faces);
  }
}

void Describer::append_faces(const std::vector<const Memory*>& faces) {
  const auto first_of = static_cast<std::uint32_t>(out_.faces.size());
  const auto root_of = [this](const Memory& memory) -> const void* {
    const TensorSnapshot& tensor = before_.tensors[before_.objects[memory.place].tensor];
    if (tensor.base != nullptr) return tensor.base;
    return before_.alive(memory.place) ? torch::identity_of_tensor(before_.tensor_at(memory.place)) : &tensor;
  };
  for (std::size_t i = 0; i < faces.size(); ++i) {
    std::size_t version = 0, root = 0;
    while (faces[version]->counter != faces[i]->counter) ++version;
    while (root_of(*faces[root]) != root_of(*faces[i])) ++root;
    out_.faces.push_back(
        {faces[i]->place, first_of + static_cast<std::uint32_t>(version), first_of + static_cast<std::uint32_t>(root)});
  }
}

// The tensor that nobody gets to see but as the `_base` of this one, and maybe of others.
bool Describer::describe_hidden(const Based& view) {
  const Reference base(torch::new_reference_to_base(view.tensor));
  torch::TensorView of;
  const bool by_node = torch::requires_grad(view.tensor);
  if (!base || !is_hidden(base.get(), view.base, by_node) || !torch::view_tensor(base.get(), of)) return false;
  const std::uint32_t node = describe_in_memory(of);
  return node != kNoNode && (!by_node || note_gradients(base.get(), node, true));
}

// Has nobody but the views described got it, and is there nothing about it that shows?
bool Describer::is_hidden(Object* base, const void* identity, bool by_node) {
  std::vector<walk::Item> attributes;
  const bool plain = torch::is_plain_tensor(base) && !torch::is_parameter(base) &&
                     torch::autograd_facts(base) == (by_node ? torch::kMadeByNode : 0) && !walk::weakly_held(base) &&
                     walk::read_attributes(base, attributes) && attributes.empty() &&
                     torch::base_of_tensor(base) == nullptr;
  long expected = 1;  // its Python object
  for (const Based& view : based_) {
    if (view.base == identity) expected += owners_of_a_view(view.tensor, base);
  }
  const long owners = torch::owners_of_tensor(base);
  const std::uint32_t references = 1 + (owners != 1 ? 1 : 0);  // as in held_by_nobody_else()
  const auto place = before_.places.find(base);
  const bool known = of_module_.count(base) != 0 || (place != before_.places.end() && before_.alive(place->second));
  if (plain && !known && owners <= expected && reference_count(base) <= references) return true;
  out_.autograd = out_.autograd || by_node;
  return refuse(refusal::view_of_held);
}

// Tensors of the arguments' or the module's memory that have a version of their own may have it in common.
bool Describer::share_own_versions() {
  for (std::size_t i = 0; i < out_.views.size(); ++i) {
    View& view = out_.views[i];
    const torch::VersionCounter* const counter = view_counters_[i];
    view.as_first = static_cast<std::uint32_t>(i);
    if (!view.own_version || view.view_of >= 0 || counter == nullptr) continue;
    if (versions_.count(counter) != 0) return refuse(refusal::version_in_other_memory);
    for (std::size_t first = 0; first < i && view.as_first == i; ++first) {
      const View& other = out_.views[first];
      const bool alike = view_counters_[first] == counter && other.own_version && other.view_of < 0;
      if (alike) view.as_first = static_cast<std::uint32_t>(first);
    }
  }
  return true;
}

}  // namespace grape::python::effects
