#include "python_hooks/proof/border.h"

#include <algorithm>

#include "python_hooks/bridge/loaded.h"
#include "python_hooks/torch/autograd_state.h"
#include "python_hooks/walk/instance.h"

namespace grape::python::proof {
namespace {

// What a call saved, where it has to outlive the pass that frees it (Template::saved_lasts). With more than that the
// second pass over the call is an error of Grape's.
constexpr std::uint64_t kMostKeptForErrors = 64 << 20;

using Of = replay::TensorSource::Of;
using Memory = replay::SavedMemory::Of;

bridge::Tensor handle_of(Object* tensor) noexcept {
  torch::TensorView view;
  return torch::view_tensor(tensor, view) ? view.handle : nullptr;
}

// The first word of an at::Tensor.
const void* identity_of(bridge::Tensor tensor) noexcept { return *static_cast<const void* const*>(tensor); }

refusal::Refusal explain(bridge::Unfit unfit, const char* name) {
  using bridge::Unfit;
  switch (unfit) {
    case Unfit::kCustomNode:
    case Unfit::kUnknownSaved:
      return refusal::make(refusal::custom_node, name);
    case Unfit::kHooks:
      return refusal::make(refusal::node_with_hooks, name);
    case Unfit::kSavedHooks:
      return refusal::make(refusal::saved_tensors_seen);
    case Unfit::kUnknownCast:
      return refusal::make(refusal::keeps_casts);
    case Unfit::kNone:
    case Unfit::kNoMemory:
      break;
  }
  return refusal::make(refusal::no_host_memory);
}

std::uint32_t words(std::uint32_t bits) noexcept { return (bits + 63) / 64; }

// Copies what outlives the call's own nodes.
std::unique_ptr<replay::Border> copy(const bridge::Border& from, std::uint64_t first_node,
                                     const std::vector<replay::LeftCast>& casts) {
  auto to = std::make_unique<replay::Border>();
  const auto keep = [&](const char* text) { return to->texts.emplace_back(text).c_str(); };
  to->links.assign(from.links, from.links + from.link_count);  // casts are known by their numbers
  for (bridge::Link& link : to->links) link.name = keep(link.name);
  to->tops.assign(from.tops, from.tops + from.top_count);
  std::uint32_t reaches = 0, fed = 0;
  for (bridge::Top& top : to->tops) {
    top.name = keep(top.name);
    reaches = std::max(reaches, top.first_reach + top.reach_count);
    fed = std::max(fed, top.first_fed + top.fed_count);
  }
  to->reach.assign(from.reach, from.reach + reaches);
  to->fed.assign(from.fed, from.fed + fed);
  to->constants = from.constants;
  to->numbers.assign(from.numbers, from.numbers + from.node_count);
  to->freed.assign(from.freed, from.freed + from.node_count);
  to->keepers.assign(from.keepers, from.keepers + from.keeper_count);
  const std::uint32_t path = words(from.link_count) + words(from.top_count);
  to->paths.assign(from.paths, from.paths + std::size_t{path} * from.keeper_count);
  to->form.sealed = from.sealed;
  to->form.adds_up_first = from.adds_up_first;
  for (const replay::LeftCast& cast : casts) to->casts.push_back(cast.node);
  to->form.node_count = from.node_count;
  to->form.cast_count = static_cast<std::uint32_t>(casts.size());
  to->form.first_sequence = first_node;
  to->form.link_count = from.link_count;
  to->form.top_count = from.top_count;
  to->form.edge_count = from.edge_count;
  to->form.slot_count = from.slot_count;
  return to;
}

void point(replay::Border& border) noexcept {
  border.form.links = border.links.data();
  border.form.tops = border.tops.data();
  border.form.reach = border.reach.data();
  border.form.fed = border.fed.data();
  border.form.slots = border.slots.data();
  border.form.views = border.views.data();
  border.form.numbers = border.numbers.data();
  border.form.casts = border.casts.data();
  border.form.edge_casts = border.edge_casts.data();
  border.form.leaves = border.leaves.data();
  border.form.keepers = border.keepers.data();
  border.form.paths = border.paths.data();
  border.form.keeper_count = static_cast<std::uint32_t>(border.keepers.size());
  border.form.leaf_count = static_cast<std::uint32_t>(border.leaves.size());
  border.form.result_count = static_cast<std::uint32_t>(border.results.size());
}

// Does nobody follow the Python object of a leaf, or what hangs on it, to its end?
bool is_of_nobody(const bridge::Leaf& leaf) {
  Object* const object = static_cast<Object*>(const_cast<void*>(leaf.object));
  std::vector<walk::Item> attributes;
  return object == nullptr || (torch::is_plain_tensor(object) && !walk::weakly_held(object) &&
                               walk::read_attributes(object, attributes) && attributes.empty());
}

// Does the edge lead to a leaf that the call made and nobody has any more?
bool add_leaf(const bridge::Border& border, std::uint32_t edge, replay::Border& lasting) {
  const bridge::Leaf* const end = border.leaves + border.leaf_count;
  const bridge::Leaf* const found =
      std::find_if(border.leaves, end, [edge](const bridge::Leaf& leaf) { return leaf.edge == edge; });
  if (found == end || !is_of_nobody(*found)) return false;
  bridge::Leaf leaf = *found;
  leaf.object = nullptr;
  leaf.sizes = lasting.leaf_sizes.emplace_back(leaf.sizes, leaf.sizes + leaf.dimensions).data();
  lasting.leaves.push_back(leaf);
  return true;
}

bool find_targets(const GradientTargets& targets, ObservedBorder& observed, refusal::Refusal& refusal) {
  const bridge::Border& border = *observed.border;
  for (std::uint32_t i = 0; i < border.link_count; ++i) {
    const bridge::Link& link = border.links[i];
    for (std::uint32_t e = link.first_edge; e < link.first_edge + link.edge_count; ++e) {
      const replay::TensorSource* source = targets.find(border.edges[e]);
      const replay::TensorSource of_leaf = {Of::kLeaf, static_cast<std::uint32_t>(observed.lasting->leaves.size())};
      if (source == nullptr && add_leaf(border, e, *observed.lasting)) source = &of_leaf;
      if (source == nullptr) return refusal::refuse(refusal, refusal::leads_elsewhere, link.name);
      observed.lasting->targets.push_back(*source);
      observed.lasting->edge_casts.push_back(source->of == Of::kCast ? source->index : bridge::Template::kNoCast);
    }
  }
  return true;
}

// Whose version counter is it? False: that of memory which nobody outside can write to.
bool find_version(const bridge::Saved& saved, const GradientTargets& targets, const ObservedBorder& observed,
                  replay::KeptTensor& kept) {
  bool of_result = false;
  for (const effects::GradientResult& result : observed.results) {
    if (kept.itself || torch::version_identity(result.tensor) != saved.version) continue;
    of_result = true;
    kept.tensor = {Of::kResult, result.made};
    kept.itself = identity_of(handle_of(result.tensor)) == saved.identity;
  }
  if (of_result) return true;
  const replay::TensorSource* const known = targets.find_version(saved.version, saved.identity, kept.itself);
  if (known != nullptr) kept.tensor = *known;
  return known != nullptr;
}

// Whoever asks for such a view's node has it made, and in-place operators on the view are allowed from then on. A leaf
// that is a view of a tensor without gradients, as of flat weights, has no node.
bool is_stale_view(Object* tensor) noexcept {
  if ((torch::autograd_facts(tensor) & torch::kStaleGradFn) == 0) return false;
  const Reference base(torch::new_reference_to_base(tensor));
  return base && torch::requires_grad(base.get());
}

}  // namespace

GradientTargets::~GradientTargets() {
  for (void* held : held_) bridge::loaded()->release_targets(held);
}

// Of the tensors that come behind those which are held already.
bool GradientTargets::hold(const std::vector<bridge::Tensor>& tensors) {
  held_.reserve(held_.size() + 1);
  const std::size_t before = targets_.size();
  targets_.resize(before + tensors.size());
  void* const held = bridge::loaded()->hold_targets(tensors.data(), tensors.size(), targets_.data() + before);
  if (held != nullptr) held_.push_back(held);
  return held != nullptr;
}

bool GradientTargets::add_arguments(const replay::Call& call, const std::vector<std::uint32_t>& places) {
  std::vector<bridge::Tensor> tensors;
  const auto& walked = call.walk->tensors();
  for (const std::uint32_t place : places) {
    for (std::uint32_t i = 0; i < walked.size(); ++i) {
      if (walked[i].view.object != call.walk->objects()[place]) continue;
      tensors.push_back(walked[i].view.handle);
      sources_.push_back({Of::kArgument, i});
      break;
    }
  }
  return tensors.empty() || hold(tensors);
}

bool GradientTargets::add_casts(const std::vector<replay::LeftCast>& casts) {
  std::vector<bridge::Tensor> tensors;
  for (const replay::LeftCast& cast : casts) {
    sources_.push_back({Of::kCast, static_cast<std::uint32_t>(tensors.size())});
    tensors.push_back(handle_of(cast.cast.get()));
  }
  return hold(tensors);
}

bool GradientTargets::take(const replay::Region& region, const replay::Call& call, refusal::Refusal& refusal) {
  std::vector<bridge::Tensor> tensors;
  bool stale = false;
  const auto add = [&](const std::vector<walk::WalkedTensor>& walked, Of of) {
    for (std::uint32_t i = 0; i < walked.size(); ++i) {
      const torch::TensorView& view = walked[i].view;
      versions_.push_back({torch::version_identity(view.object), identity_of(view.handle), {of, i}});
      if (!torch::requires_grad(walked[i].view.object)) continue;
      stale = stale || is_stale_view(walked[i].view.object);
      tensors.push_back(walked[i].view.handle);
      sources_.push_back({of, i});
    }
  };
  add(call.walk->tensors(), Of::kArgument);
  add(region.evidence.guard->tensors(), Of::kModule);
  if (stale) return refusal::refuse(refusal, refusal::stale_view, std::string("an argument, or the module's"));
  return hold(tensors) || refusal::refuse(refusal, refusal::no_host_memory);
}

const replay::TensorSource* GradientTargets::find(const bridge::Target& target) const noexcept {
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    if (targets_[i].node == target.node && targets_[i].input == target.input) return &sources_[i];
  }
  return nullptr;
}

const replay::TensorSource* GradientTargets::find_version(const void* counter, const void* identity,
                                                          bool& itself) const noexcept {
  const replay::TensorSource* found = nullptr;
  for (const Version& version : versions_) {
    if (version.counter != counter) continue;
    itself = version.identity == identity;
    if (itself || found == nullptr) found = &version.source;
    if (itself) break;
  }
  return found;
}

ObservedBorder::~ObservedBorder() {
  if (border != nullptr) bridge::loaded()->free_border(border);
}

bool find_border(GradientTargets& targets, const NodesOfCall& nodes_of_call, ObservedBorder& observed,
                 refusal::Refusal& refusal) {
  const std::uint64_t first_node = nodes_of_call.first;
  std::vector<bridge::Tensor> results, casts;
  for (const effects::GradientResult& result : observed.results) {
    if (is_stale_view(result.tensor)) return refusal::refuse(refusal, refusal::stale_view, std::string("a result"));
    results.push_back(handle_of(result.tensor));
  }
  for (const replay::LeftCast& cast : observed.casts) {
    // Of a block without gradients inside, say: one that a replay leaves would have another history.
    if (cast.node < first_node) return refusal::refuse(refusal, refusal::keeps_casts);
    casts.push_back(handle_of(cast.cast.get()));
  }
  if (!targets.add_casts(observed.casts)) return refusal::refuse(refusal, refusal::no_host_memory);
  const std::vector<std::uint8_t>* const freed = nodes_of_call.freed;
  const auto shown = std::count_if(observed.results.begin(), observed.results.end(),
                                   [](const effects::GradientResult& result) { return !result.hidden; });
  const bridge::CallNodes nodes = {results.data(),
                                   results.size(),
                                   static_cast<std::size_t>(shown),
                                   casts.data(),
                                   casts.size(),
                                   first_node,
                                   nullptr,
                                   nodes_of_call.ran,
                                   freed != nullptr ? freed->data() : nullptr,
                                   freed != nullptr ? freed->size() : 0};
  bridge::Unfit unfit{};
  char name[128] = "";
  observed.border = bridge::loaded()->find_border(nodes, &unfit, name, sizeof name);
  if (observed.border == nullptr) {
    refusal = explain(unfit, name);
    return false;
  }
  observed.lasting = copy(*observed.border, first_node, observed.casts);
  replay::Border& lasting = *observed.lasting;
  lasting.slots.assign(observed.border->slots, observed.border->slots + results.size());
  lasting.views.assign(observed.border->views, observed.border->views + results.size());
  for (const effects::GradientResult& result : observed.results) lasting.results.push_back(result.made);
  if (!find_targets(targets, observed, refusal)) return false;
  for (std::uint32_t i = 0; i < observed.border->saved_count; ++i) {
    const bridge::Saved& saved = observed.border->saved[i];
    replay::KeptTensor kept;
    kept.known = saved.version != nullptr && find_version(saved, targets, observed, kept);
    if (!kept.known && !lasting.form.sealed) continue;
    kept.freed = saved.freed;
    kept.node = saved.node;
    kept.saved = i;
    kept.link = saved.link;
    kept.links.assign(saved.links, saved.links + words(observed.border->link_count));
    kept.tops.assign(saved.tops, saved.tops + words(observed.border->top_count));
    kept.text = lasting.texts.emplace_back(saved.text).c_str();
    lasting.kept.push_back(kept);
  }
  point(lasting);
  return true;
}

bool can_be_made_again(Object* result, const effects::CallOutcome& outcome, const replay::Call& call,
                       ObservedBorder& observed, refusal::Refusal& refusal) {
  replay::Border& lasting = *observed.lasting;
  walk::Walk walk(false);
  if (outcome.has_effects() || !walk.add(result, "result")) return refusal::refuse(refusal, refusal::not_made_twice);
  for (const effects::GradientResult& each : observed.results) {
    const auto& tensors = walk.tensors();
    const auto find = [&](const auto& is) {
      const auto at = std::find_if(tensors.begin(), tensors.end(), is);
      return static_cast<std::uint32_t>(at - tensors.begin());
    };
    replay::ResultPlace place;
    place.tensor = find([&](const walk::WalkedTensor& tensor) { return tensor.view.object == each.tensor; });
    place.base = place.tensor == tensors.size();
    if (place.base) {
      const void* const base = torch::identity_of_tensor(each.tensor);
      place.tensor = find([=](const auto& tensor) { return torch::base_of_tensor(tensor.view.object) == base; });
    }
    if (place.tensor == tensors.size()) return refusal::refuse(refusal, refusal::not_made_twice);
    lasting.result_places.push_back(place);
  }
  for (const walk::StorageExtent& written : outcome.written()) {
    const auto& extents = call.walk->extents();
    const bool of_argument = std::any_of(extents.begin(), extents.end(), [&](const walk::StorageExtent& extent) {
      return extent.address == written.address;
    });
    if (of_argument) return refusal::refuse(refusal, refusal::not_made_twice);
    lasting.written.push_back({written.address, written.bytes});
  }
  return true;
}

void note_varying_values(const replay::Border& last, replay::Border& now) noexcept {
  for (std::size_t i = 0; i < now.host_values.size(); ++i) {
    if (i >= last.host_values.size() || last.host_values[i] != now.host_values[i]) now.host_values[i] = 0;
  }
}

bool is_saved(const ObservedBorder& observed, std::uint64_t address) noexcept {
  if (observed.border == nullptr) return false;
  const std::uint64_t* const hidden = observed.border->hidden + observed.border->hidden_count;
  if (std::find(observed.border->hidden, hidden, address) != hidden) return true;
  const bridge::Saved* const end = observed.border->saved + observed.border->saved_count;
  return std::any_of(observed.border->saved, end, [address](const bridge::Saved& saved) {
    return saved.device_type == torch::kCudaDevice && saved.storage == address;
  });
}

void find_saved_memory(const replay::Call& call, const std::vector<std::uint64_t>& outputs,
                       const std::vector<replay::OutputRecipe>& recipes, ObservedBorder& observed) {
  replay::Border& lasting = *observed.lasting;
  const auto hold = [&lasting](const replay::TensorSource& tensor) {
    lasting.held.push_back(tensor);
    lasting.held_saved.push_back(static_cast<std::uint32_t>(lasting.saved.size() - 1));
  };
  for (std::uint32_t i = 0; i < observed.border->saved_count; ++i) {
    const bridge::Saved& saved = observed.border->saved[i];
    lasting.saved_tensors.emplace_back(replay::Border::kNone, saved.bytes);
    lasting.host_values.push_back(saved.value);
    lasting.fixed_storages.push_back(0);
    if (saved.device_type != torch::kCudaDevice || saved.bytes == 0 || lasting.form.sealed) continue;
    const auto known = std::find_if(observed.saved.begin(), observed.saved.end(),
                                    [&](const program::Extent& extent) { return extent.address == saved.storage; });
    lasting.saved_tensors.back().first = static_cast<std::uint32_t>(known - observed.saved.begin());
    if (known != observed.saved.end()) continue;
    const auto output = std::find(outputs.begin(), outputs.end(), saved.storage);
    const auto cast = std::find_if(observed.casts.begin(), observed.casts.end(),
                                   [&](const replay::LeftCast& each) { return each.address == saved.storage; });
    const auto& extents = call.walk->extents();
    const auto argument = std::find_if(extents.begin(), extents.end(), [&](const walk::StorageExtent& extent) {
      return extent.address == saved.storage;
    });
    if (cast != observed.casts.end()) {
      const auto index = static_cast<std::uint32_t>(cast - observed.casts.begin());
      lasting.saved.push_back({Memory::kCast, index});
      hold({Of::kCast, index});
    } else if (output != outputs.end()) {
      const auto block = static_cast<std::uint32_t>(output - outputs.begin());
      lasting.saved.push_back({Memory::kBlock, block});
      const auto recipe = std::find_if(recipes.begin(), recipes.end(), [block](const replay::OutputRecipe& each) {
        return each.has_block && each.block == block;
      });
      if (recipe != recipes.end() && !recipe->made.empty()) hold({Of::kResult, recipe->made.front()});
    } else if (argument != extents.end()) {
      const auto extent = static_cast<std::uint32_t>(argument - extents.begin());
      lasting.saved.push_back({Memory::kArgument, extent});
      const auto& tensors = call.walk->tensors();
      const auto tensor = std::find_if(tensors.begin(), tensors.end(),
                                       [extent](const walk::WalkedTensor& each) { return each.extent == extent; });
      if (tensor != tensors.end()) hold({Of::kArgument, static_cast<std::uint32_t>(tensor - tensors.begin())});
    } else {
      lasting.saved_tensors.back().first = replay::Border::kNone;
      lasting.fixed_storages.back() = saved.storage;
      continue;  // the module's, or a global's: it lies where it lay
    }
    observed.saved.push_back({saved.storage, saved.bytes});
  }
  for (auto& [place, bytes] : lasting.saved_tensors) {
    if (place != replay::Border::kNone && lasting.saved[place].of == Memory::kArgument)
      bytes = replay::Border::kOfTheCall;
  }
  for (const replay::OutputRecipe& recipe : recipes) lasting.saved_bytes += recipe.saved_bytes;
  lasting.form.saved_lasts = lasting.form.adds_up_first && lasting.saved_bytes <= kMostKeptForErrors;
}

}  // namespace grape::python::proof
