// Finds the border of an observed call: a walk over the nodes that the call made, from its results down.
#include "python_hooks/bridge/border.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/tensor.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/dynamo/compiled_autograd.h>
#include <torch/version.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <sstream>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "python_hooks/bridge/kept_casts.h"

namespace grape::python::bridge {
namespace {

using torch::autograd::Node;
namespace compiled = torch::dynamo::autograd;

struct Refused {
  Unfit unfit;
  std::string name;
};

class Walk {
 public:
  Walk(OwnedBorder& border, const CallNodes& call)
      : border_(border), call_(call), casts_(call), thread_(at::RecordFunction::currentThreadId()) {}

  void run() {
    const Tensor* const results = call_.results;
    const std::size_t count = call_.result_count;
    find_inner(results, count);
    const Node* const late = order_as_they_run(border_.inner);
    if (late != nullptr) throw Refused{Unfit::kCustomNode, late->name()};
    find_freed();
    for (std::size_t i = 0; i < border_.inner.size(); ++i) {
      check(*border_.inner[i], border_.freed[i] != 0);
      border_.numbers.push_back(border_.inner[i]->sequence_nr());
    }
    find_links();
    find_links_behind();
    find_tops(results, count);
    find_tops_before();
    find_fed();
    find_open(results);
    for (const auto& node : border_.inner) find_saved(node);
    find_leaves();
    add_casts();
    border_.finish();
  }

 private:
  // Each thread numbers its nodes by itself. Nodes of a replayed call may have numbers from behind it.
  bool is_inner(const Node& node) const {
    return node.sequence_nr() != kLeafSequence && node.sequence_nr() >= call_.first_sequence &&
           node.thread_id() == thread_ && dynamic_cast<const ReplayedNode*>(&node) == nullptr && !casts_.has(node);
  }

  void find_inner(const Tensor* results, std::size_t count) {
    std::vector<std::shared_ptr<Node>> ahead;
    const auto meet = [&](const std::shared_ptr<Node>& node) {
      if (node == nullptr || !is_inner(*node) || !numbers_.emplace(node.get(), 0).second) return;
      ahead.push_back(node);
      border_.inner.push_back(node);
    };
    for (std::size_t i = 0; i < count; ++i) meet(tensor_of(results[i]).grad_fn());
    while (!ahead.empty()) {
      const std::shared_ptr<Node> node = std::move(ahead.back());
      ahead.pop_back();
      for (const auto& edge : node->next_edges()) meet(edge.function);
    }
  }

  // Could it keep anything?
  static bool is_custom(const Node& node) {
    if (const auto* slices = dynamic_cast<const torch::autograd::CopySlices*>(&node))
      return slices->view_fn != nullptr || slices->fn == nullptr || is_custom(*slices->fn);
    return is_function(node);
  }

  static void check(Node& node, bool freed) {
    if (!(freed && is_slices(node)) && is_custom(node)) throw Refused{Unfit::kCustomNode, node.name()};
    if (has_hooks(node)) throw Refused{Unfit::kHooks, node.name()};
    if (KeptCasts::may_be_kept(node)) throw Refused{Unfit::kUnknownCast, node.name()};
  }

  void find_freed() {
    for (std::size_t i = 0; i < border_.inner.size(); ++i) {
      const bool known = call_.freed != nullptr && i < call_.freed_count && call_.freed[i] != 0;
      try {
        border_.freed.push_back((known && !keeps_tensors(border_.inner[i])) ||
                                (call_.ran != nullptr && is_freed(border_.inner[i], *call_.ran)));
      } catch (const Unknown&) {
        throw Refused{Unfit::kUnknownSaved, border_.inner[i]->name()};
      }
    }
  }

  // Open nodes are those that gradients get to by nodes which are not freed.
  void find_open(const Tensor* results) {
    std::set<std::pair<const Node*, std::uint32_t>> slots;
    for (std::size_t i = 0; i < call_.shown_count; ++i)
      slots.emplace(tensor_of(results[i]).grad_fn().get(), tensor_of(results[i]).output_nr());
    open_.assign(border_.inner.size(), false);
    for (const Node* top : border_.top_nodes) open_[numbers_.at(top)] = true;
    const auto& freed = border_.freed;
    bool sealed = std::find(freed.begin(), freed.end(), 1) != freed.end();
    for (std::size_t i = 0; i < border_.inner.size(); ++i) {
      if (!open_[i] || freed[i] != 0) continue;
      sealed = sealed && link_of_[i] == OwnedBorder::kNone;
      for (const auto& edge : border_.inner[i]->next_edges())
        sealed = sealed && slots.count({edge.function.get(), edge.input_nr}) == 0;
      for_each_inner_edge(i, [&](std::uint32_t next) { open_[next] = true; });
    }
    border_.border.sealed = sealed;
  }

  void find_links() {
    for (std::uint32_t i = 0; i < border_.inner.size(); ++i) numbers_[border_.inner[i].get()] = i;
    link_of_.assign(border_.inner.size(), OwnedBorder::kNone);
    for (std::size_t i = border_.inner.size(); i-- != 0;) {  // ascending
      const Node& node = *border_.inner[i];
      const auto first = static_cast<std::uint32_t>(border_.edges.size());
      for (const auto& edge : node.next_edges()) {
        if (edge.is_valid() && numbers_.count(edge.function.get()) == 0)
          border_.edges.push_back({edge.function.get(), edge.input_nr});
      }
      const auto edges = static_cast<std::uint32_t>(border_.edges.size()) - first;
      if (edges == 0) continue;
      link_of_[i] = static_cast<std::uint32_t>(border_.links.size());
      border_.links.push_back({node.sequence_nr(), border_.keep(node.name()), first, edges});
      border_.link_nodes.push_back(border_.inner[i].get());
    }
  }

  // Nobody has the tensor but nodes of the call, the one that adds up its gradient, and its Python object.
  bool is_of_nodes(const at::Tensor& leaf, const void*& object) const {
    const void* const identity = leaf.unsafeGetTensorImpl();
    const auto savings = std::count_if(border_.saved.begin(), border_.saved.end(),
                                       [identity](const Saved& saved) { return saved.identity == identity; });
    const auto hidden = std::count(hidden_.begin(), hidden_.end(), identity);
    const auto nodes = static_cast<std::size_t>(1 + savings + hidden);
    const auto& slot = *leaf.unsafeGetTensorImpl()->pyobj_slot();
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 10
    object = slot._unchecked_untagged_pyobj();
    return leaf.use_count() == nodes;
#else
    object = slot.load_pyobj();  // it keeps the tensor, and the tensor keeps it
    return leaf.use_count() == nodes + (object != nullptr ? 1 : 0) &&
           (object == nullptr || slot.has_unique_reference());
#endif
  }

  // Nobody has the node but the call's own ones, `edges` times, and nobody waits for a gradient.
  bool is_of_call(const std::shared_ptr<Node>& node, long edges) const {
    auto* const leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node.get());
    if (leaf == nullptr || node.use_count() != edges) return false;
    const at::Tensor& variable = leaf->variable;
    const bool plain = variable.layout() == at::kStrided && !variable.is_nested() &&
                       !variable.unsafeGetTensorImpl()->is_python_dispatch() &&
                       variable.device() == tensor_of(call_.results[0]).device();
    return plain && variable.weak_use_count() == 1 && !variable.grad().defined() && !has_hooks(*node);
  }

  void find_leaves() {
    std::unordered_map<const Node*, long> uses;
    for (const Target& edge : border_.edges) ++uses[static_cast<const Node*>(edge.node)];
    for (const Node* node : border_.link_nodes) {
      const std::size_t link = link_of_[numbers_.at(node)];
      std::uint32_t at = border_.links[link].first_edge;
      for (const auto& edge : node->next_edges()) {
        if (!edge.is_valid() || numbers_.count(edge.function.get()) != 0) continue;
        if (is_of_call(edge.function, uses[edge.function.get()])) add_leaf(*edge.function, at);
        ++at;
      }
    }
  }

  void add_leaf(const Node& node, std::uint32_t edge) {
    const at::Tensor& variable = static_cast<const torch::autograd::AccumulateGrad&>(node).variable;
    const void* object = nullptr;
    if (!is_of_nodes(variable, object)) return;
    const auto& sizes = border_.shapes.emplace_back(variable.sizes().vec());
    border_.leaves.push_back(
        {edge, object, variable.dim(), sizes.data(), static_cast<std::int32_t>(variable.scalar_type())});
    const bool own = variable.has_storage() && variable.storage().use_count() == 1;
    if (own) border_.hidden.push_back(reinterpret_cast<std::uint64_t>(variable.storage().data()));
  }

  using Bits = std::vector<std::uint64_t>;
  static Bits no_bits(std::size_t count) { return Bits((count + 63) / 64, 0); }
  static void set(Bits& bits, std::size_t bit) { bits[bit / 64] |= std::uint64_t{1} << bit % 64; }
  static void merge(Bits& into, const Bits& from) {
    for (std::size_t i = 0; i < into.size(); ++i) into[i] |= from[i];
  }

  template <class Use>
  void for_each_inner_edge(std::size_t node, const Use& use) const {
    for (const auto& edge : border_.inner[node]->next_edges()) {
      const auto next = edge.is_valid() ? numbers_.find(edge.function.get()) : numbers_.end();
      if (next != numbers_.end()) use(next->second);
    }
  }

  // Per inner node: which links gradients get to from it.
  void find_links_behind() {
    links_behind_.assign(border_.inner.size(), no_bits(border_.links.size()));
    for (std::size_t i = border_.inner.size(); i-- != 0;) {
      if (link_of_[i] != OwnedBorder::kNone) set(links_behind_[i], link_of_[i]);
      for_each_inner_edge(i, [&](std::uint32_t next) {
        merge(links_behind_[i], links_behind_[next]);
        border_.fed.insert(border_.inner[next].get());
      });
    }
  }

  // Per inner node: from which tops gradients get to it.
  void find_tops_before() {
    tops_before_.assign(border_.inner.size(), no_bits(border_.tops.size()));
    for (std::size_t t = 0; t < border_.top_nodes.size(); ++t) set(tops_before_[numbers_.at(border_.top_nodes[t])], t);
    for (std::size_t i = 0; i < border_.inner.size(); ++i)
      for_each_inner_edge(i, [&](std::uint32_t next) { merge(tops_before_[next], tops_before_[i]); });
  }

  // The link that checks what node `i` saved: its own, or the next one to run.
  std::uint32_t link_behind(std::size_t i) const {
    for (; i < link_of_.size(); ++i) {
      if (link_of_[i] != OwnedBorder::kNone) return link_of_[i];
    }
    return OwnedBorder::kNone;
  }

  // Its tensors are gone.
  void find_freed(const Node& node, std::uint32_t number) {
    note_constants(node, {}, {});
    if (open_[number] && is_slices(node)) throw Refused{Unfit::kCustomNode, node.name()};  // may be given no gradient
    const std::uint32_t link = link_behind(number);
    if (!open_[number] || link == OwnedBorder::kNone) return;
    Saved saved = {};
    saved.link = link;
    saved.links = border_.sets.emplace_back(links_behind_[number]).data();
    saved.tops = border_.sets.emplace_back(tops_before_[number]).data();
    saved.text = "";
    saved.node = number;
    saved.freed = true;
    border_.saved.push_back(saved);
  }

  // No pass needs what is in it.
  void hide(const at::Tensor& tensor) {
    hidden_.push_back(tensor.unsafeGetTensorImpl());
    if (tensor.device().is_cuda() && tensor.has_storage())
      border_.hidden.push_back(reinterpret_cast<std::uint64_t>(tensor.storage().data()));
  }

  void find_saved(const std::shared_ptr<Node>& node) {
    const std::uint32_t number = numbers_.at(node.get());
    if (border_.freed[number] != 0) return find_freed(*node, number);
    compiled::AutogradCompilerCall call(compiled::SizeInput::STATIC);
    std::string others;
    if (!read_contents(node, call, others)) throw Refused{Unfit::kUnknownSaved, node->name()};
    note_constants(*node, others, call.all_size_inputs);
    if (!call.hooks.empty()) throw Refused{Unfit::kSavedHooks, node->name()};
    const bool hidden = border_.border.sealed && !open_[number];
    const std::uint32_t link = link_behind(number);
    if (hidden) {
      for (const at::Tensor& tensor : call.tensor_args.inputs) hide(tensor);
    }
    if (hidden || link == OwnedBorder::kNone) return;
    const std::uint64_t* const links = border_.sets.emplace_back(links_behind_[number]).data();
    const std::uint64_t* const tops = border_.sets.emplace_back(tops_before_[number]).data();
    if (!call.tensor_args.inputs.empty() || is_slices(*node)) note_keeper(number, link);
    for (const at::Tensor& tensor : call.tensor_args.inputs) {
      if (!tensor.has_storage()) throw Refused{Unfit::kUnknownSaved, node->name()};
      note_place(tensor);
      const auto& version = torch::autograd::impl::version_counter(tensor);
      border_.saved.push_back({reinterpret_cast<std::uint64_t>(tensor.storage().data()), tensor.storage().nbytes(),
                               identity_of(version), tensor.unsafeGetTensorImpl(),
                               version.enabled() ? version.current_version() : 0,
                               static_cast<std::int32_t>(tensor.device().type()), value_of(tensor), link, links, tops,
                               border_.keep(in_words(tensor)), number, false});
    }
  }

  void note_keeper(std::uint32_t number, std::uint32_t link) {
    const Bits &links = links_behind_[number], &tops = tops_before_[number];
    border_.keepers.push_back({number, link});
    border_.paths.insert(border_.paths.end(), links.begin(),
                         links.begin() + static_cast<std::ptrdiff_t>(no_bits(border_.link_nodes.size()).size()));
    border_.paths.insert(border_.paths.end(), tops.begin(), tops.end());
  }

  static std::uint64_t value_of(const at::Tensor& tensor) {
    if (!tensor.device().is_cpu()) return 0;
    const std::string_view bytes(static_cast<const char*>(tensor.storage().data()), tensor.storage().nbytes());
    return std::hash<std::string_view>()(bytes) | 1;
  }

  void note_number(std::uint64_t number) {
    border_.constants.append(reinterpret_cast<const char*>(&number), sizeof number);
  }

  void note_constants(const Node& node, std::string_view key, const std::vector<compiled::SizeInput>& sizes) {
    std::string& all = border_.constants;
    all += node.name();
    all += border_.freed[numbers_.at(&node)] != 0 ? '-' : '+';
    const auto* slices = dynamic_cast<const torch::autograd::CopySlices*>(&node);
    if (slices != nullptr && slices->fn != nullptr) all += slices->fn->name();
    all += key;
    for (const compiled::SizeInput& size : sizes) note_number(static_cast<std::uint64_t>(size.value));
    for (const auto& edge : node.next_edges()) {
      const auto inner = edge.is_valid() ? numbers_.find(edge.function.get()) : numbers_.end();
      note_number(edge.is_valid() ? 1 : 0);
      note_number(inner != numbers_.end() ? inner->second : ~std::uint64_t{0});
      note_number(edge.input_nr);
    }
  }

  // Where a tensor that is saved next lies in its storage, and which one before it has the same.
  void note_place(const at::Tensor& tensor) {
    const bool strided = tensor.layout() == at::kStrided;
    note_number(static_cast<std::uint64_t>(tensor.scalar_type()));
    note_number(strided ? static_cast<std::uint64_t>(tensor.storage_offset()) : ~std::uint64_t{0});
    for (std::int64_t i = 0; i < tensor.dim(); ++i) {
      note_number(static_cast<std::uint64_t>(tensor.size(i)));
      if (strided) note_number(static_cast<std::uint64_t>(tensor.stride(i)));
    }
    const auto address = reinterpret_cast<std::uint64_t>(tensor.storage().data());
    const auto first = std::find_if(border_.saved.begin(), border_.saved.end(),
                                    [&](const Saved& saved) { return !saved.freed && saved.storage == address; });
    note_number(static_cast<std::uint64_t>(first - border_.saved.begin()));
  }

  // The counter is the first word of the object that shares it.
  static const void* identity_of(const c10::VariableVersion& version) noexcept {
    static_assert(sizeof version == sizeof(void*));
    return *reinterpret_cast<const void* const*>(&version);
  }

  // As in the error of torch/csrc/autograd/saved_variable.cpp.
  static std::string in_words(const at::Tensor& tensor) {
    std::ostringstream text;
    text << '[' << tensor.toString() << ' ' << tensor.sizes() << ']';
    // A view's node is made anew once its base was written to.
    const auto* view = torch::autograd::impl::get_view_autograd_meta(tensor);
    if (view != nullptr && view->has_bw_view() && tensor.grad_fn() != nullptr) {
      text << ", which is output 0 of AsStridedBackward0,";
    } else if (tensor.grad_fn() != nullptr)
      text << ", which is output " << tensor.output_nr() << " of " << tensor.grad_fn()->name() << ',';
    return text.str();
  }

  void find_tops(const Tensor* results, std::size_t count) {
    std::vector<Node*>& tops = border_.top_nodes;
    for (std::size_t i = 0; i < count; ++i) {
      Node* const node = tensor_of(results[i]).grad_fn().get();
      if (std::find(tops.begin(), tops.end(), node) == tops.end()) tops.push_back(node);
    }
    std::sort(tops.begin(), tops.end(),
              [](const Node* a, const Node* b) { return a->sequence_nr() < b->sequence_nr(); });
    std::uint32_t slots = 0;
    for (const Node* node : tops) {
      const auto first = static_cast<std::uint32_t>(border_.reach.size());
      const Bits& links = links_behind_[numbers_.at(node)];
      for (std::uint32_t link = 0; link < border_.links.size(); ++link) {
        if ((links[link / 64] >> link % 64 & 1) != 0) border_.reach.push_back(link);
      }
      border_.tops.push_back({node->sequence_nr(), border_.keep(node->name()), slots, node->num_inputs(), first,
                              static_cast<std::uint32_t>(border_.reach.size()) - first, 0, 0});
      slots += node->num_inputs();
    }
    border_.border.slot_count = slots;
    for (std::size_t i = 0; i < count; ++i) {
      const auto at =
          std::find(border_.top_nodes.begin(), border_.top_nodes.end(), tensor_of(results[i]).grad_fn().get());
      border_.slots.push_back(border_.tops[static_cast<std::size_t>(at - border_.top_nodes.begin())].first_slot +
                              tensor_of(results[i]).output_nr());
      const auto* const view = torch::autograd::impl::get_view_autograd_meta(tensor_of(results[i]));
      const bool known = view != nullptr && view->has_bw_view();
      border_.views.push_back(known ? static_cast<std::uint8_t>(view->get_creation_meta()) : 0);
    }
  }

  // Results of which other results were computed: their gradients are those from outside and those of inner nodes.
  void find_fed() {
    std::unordered_map<const Node*, std::size_t> tops;
    for (std::size_t t = 0; t < border_.top_nodes.size(); ++t) tops.emplace(border_.top_nodes[t], t);
    const std::unordered_set<std::uint32_t> of_results(border_.slots.begin(), border_.slots.end());
    std::vector<std::set<std::uint32_t>> fed(tops.size());
    for (std::size_t i = 0; i < border_.inner.size(); ++i) {
      for (const auto& edge : border_.inner[i]->next_edges()) {
        const auto top = tops.find(edge.function.get());
        if (top == tops.end()) continue;
        const std::uint32_t slot = border_.tops[top->second].first_slot + edge.input_nr;
        if (of_results.count(slot) == 0) continue;
        for (std::size_t t = 0; t < fed.size(); ++t) {
          if ((tops_before_[i][t / 64] >> t % 64 & 1) != 0) fed[t].insert(slot);
        }
      }
    }
    for (std::size_t t = 0; t < fed.size(); ++t) {
      border_.tops[t].first_fed = static_cast<std::uint32_t>(border_.fed_slots.size());
      border_.tops[t].fed_count = static_cast<std::uint32_t>(fed[t].size());
      border_.fed_slots.insert(border_.fed_slots.end(), fed[t].begin(), fed[t].end());
    }
  }

  void add_casts() {
    for (std::size_t i = 0; i < call_.cast_count; ++i) {
      const std::shared_ptr<Node> node = tensor_of(call_.casts[i]).grad_fn();
      const auto edge = static_cast<std::uint32_t>(border_.edges.size() + i);
      border_.links.push_back({node->sequence_nr(), border_.keep(node->name()), edge, 1});
      border_.casts.push_back(node);
    }
  }

  OwnedBorder& border_;
  const CallNodes& call_;
  const KeptCasts casts_;
  const std::uint64_t thread_;
  std::unordered_map<const Node*, std::uint32_t> numbers_;  // of the inner nodes, in `inner`
  std::vector<std::uint32_t> link_of_;                      // per inner node
  std::vector<bool> open_;                                  // per inner node
  std::vector<const void*> hidden_;                         // identities of tensors
  std::vector<Bits> links_behind_, tops_before_;            // per inner node
};

void refuse(const Refused& refused, Unfit* unfit, char* name, std::size_t room) noexcept {
  *unfit = refused.unfit;
  if (room == 0) return;
  const std::size_t length = std::min(refused.name.size(), room - 1);
  std::memcpy(name, refused.name.data(), length);
  name[length] = '\0';
}

}  // namespace

void OwnedBorder::finish() noexcept {
  border.links = links.data();
  border.edges = edges.data();
  border.leaves = leaves.data();
  border.tops = tops.data();
  border.reach = reach.data();
  border.fed = fed_slots.data();
  border.slots = slots.data();
  border.views = views.data();
  border.saved = saved.data();
  border.numbers = numbers.data();
  border.freed = freed.data();
  border.hidden = hidden.data();
  border.keepers = keepers.data();
  border.paths = paths.data();
  border.keeper_count = static_cast<std::uint32_t>(keepers.size());
  border.hidden_count = static_cast<std::uint32_t>(hidden.size());
  border.node_count = static_cast<std::uint32_t>(inner.size());
  border.cast_count = static_cast<std::uint32_t>(casts.size());
  border.link_count = static_cast<std::uint32_t>(links.size() - casts.size());
  border.edge_count = static_cast<std::uint32_t>(edges.size());
  border.leaf_count = static_cast<std::uint32_t>(leaves.size());
  border.top_count = static_cast<std::uint32_t>(tops.size());
  border.saved_count = static_cast<std::uint32_t>(saved.size());
  border.constants = std::hash<std::string>()(constants);
}

Border* find_border(const CallNodes& call, Unfit* unfit, char* name, std::size_t room) noexcept {
  *unfit = Unfit::kNone;
  try {
    auto owned = std::make_unique<OwnedBorder>();
    Walk(*owned, call).run();
    owned->border.adds_up_first = adds_up_first(owned->border);
    return &owned.release()->border;
  } catch (const Refused& refused) {
    refuse(refused, unfit, name, room);
  } catch (const std::exception&) {
    refuse({Unfit::kNoMemory, ""}, unfit, name, room);
  }
  return nullptr;
}

void free_border(Border* border) noexcept { delete OwnedBorder::of(border); }

}  // namespace grape::python::bridge
