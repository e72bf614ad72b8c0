// The tops of a replayed call, which keep the gradients that come to its results, and the call's backward pass, which
// the first link that runs has launched.
#include "python_hooks/bridge/cut.h"

#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <sstream>
#include <unordered_set>
#include <utility>

#include "python_hooks/bridge/kept_casts.h"
#include "python_hooks/bridge/links.h"

namespace grape::python::bridge {

namespace {

constexpr const char* kLate =
    "grape: a gradient comes to a result of a replayed call after the call's backward pass has begun, as from another "
    "device. GRAPE_AUTOGRAD=0 runs calls under autograd as always";
constexpr const char* kDetached =
    "Trying to use a saved tensor that has been detached in-place, i.e. with .detach_()."
    "This is not supported, please use out-of-place `.detach()` instead";

}  // namespace

class TopNode final : public autograd::Node, public ReplayedNode {
 public:
  TopNode(std::uint64_t sequence, std::shared_ptr<Cut> cut, std::uint32_t index)
      : Node(sequence), cut_(std::move(cut)), index_(index) {}
  std::string name() const override { return cut_->form.tops[index_].name; }
  void complete(const Node& eager) {
    const std::vector<autograd::InputMetadata> known(input_metadata_.begin(), input_metadata_.end());
    input_metadata_.clear();  // they cannot be assigned
    for (std::size_t i = 0; i < known.size(); ++i)
      input_metadata_.push_back(known[i].was_default_constructed() ? eager.input_metadata(i) : known[i]);
  }

 protected:
  variable_list apply(variable_list&& gradients) override {
    if (!post_hooks_.empty()) cut_->take_hooks(index_, std::move(post_hooks_));
    post_hooks_.clear();
    if (!cut_->redirected.empty()) return std::move(gradients);
    if (cut_->form.sealed) {
      cut_->begin(autograd::get_current_graph_task_id());
      cut_->came[index_] = true;
      cut_->fail(true);
      return variable_list(num_outputs());
    }
    const bool begins = cut_->begin(autograd::get_current_graph_task_id());
    // Where the pass fails, hooks see what comes before that: links give it as the engine does.
    if (begins &&
        (cut_->is_seen_inside() || (has_late_hooks(*cut_) && !(cut_->form.adds_up_first && cut_->meets_freed())))) {
      cut_->splice();
      return std::move(gradients);
    }
    const Top& top = cut_->form.tops[index_];
    TORCH_CHECK(!cut_->ran, kLate);
    cut_->came[index_] = true;
    for (std::uint32_t i = 0; i < top.slot_count && i < gradients.size(); ++i)
      cut_->given[top.first_slot + i] = std::move(gradients[i]);
    return variable_list(num_outputs());
  }

 private:
  const std::shared_ptr<Cut> cut_;
  const std::uint32_t index_;
};

void Cut::complete_tops() {
  for (std::size_t i = 0; i < tops.size(); ++i) {
    const std::shared_ptr<autograd::Node> top = tops[i].lock();
    if (top != nullptr) static_cast<TopNode&>(*top).complete(*again->top_nodes[i]);
  }
}

bool Cut::find_running() {
  bool all = true;
  runs.assign(count_contributions(form), 0);
  running.assign((form.link_count + 63) / 64, 0);
  last_link = form.link_count;
  for (std::uint32_t i = 0; i < form.link_count; ++i) {
    const std::shared_ptr<autograd::Node> node = links[i].node.lock();
    if (node == nullptr) continue;
    bool asked = will_run(node.get());
    bool any = false;
    for (std::uint32_t e = 0; e < form.links[i].edge_count && asked; ++e) {
      const bool runs_here = node->task_should_compute_output(links[i].first_edge + e);
      runs[form.links[i].first_edge + e] = runs_here ? 1 : 0;
      any = any || runs_here;
    }
    asked = asked && (any || node->num_outputs() == form.links[i].edge_count);
    all = all && asked;
    if (!asked) continue;
    last_link = std::min(last_link, i);  // the engine descends
    running[i / 64] |= std::uint64_t{1} << i % 64;
  }
  return all;
}

void Cut::has_owner_run(Pass& now) {
  std::vector<Gradient> gradients;
  gradients.reserve(given.size());
  for (const at::Tensor& tensor : given) gradients.push_back(describe(tensor));
  now.given = gradients.data();
  now.runs = runs.data();
  now.keeps_graph = autograd::get_current_graph_task_keep_graph();
  now.makes_graph = at::GradMode::is_enabled();
  std::vector<Remains> remains;
  remains.reserve(parts.size());
  for (const Part& part : parts) remains.push_back(remains_of(part));
  now.kept = remains.data();
  char error[1024] = "";
  const bool good = owner.run(call, this, now, error, sizeof error);
  rooms.clear();
  if (failure != nullptr) std::rethrow_exception(std::exchange(failure, nullptr));
  if (!good) check(0);  // what has changed since is PyTorch's own error
  TORCH_CHECK(good, error);
}

// Asks for what the engine will execute, and has it computed.
void Cut::run() {
  TORCH_CHECK(!is_spent(), autograd::ERR_BACKWARD_TWICE);
  for (std::uint32_t i = 0; i < form.top_count; ++i) {
    const std::shared_ptr<autograd::Node> top = tops[i].lock();
    TORCH_CHECK(came[i] || top == nullptr || !will_run(top.get()), kLate);
  }
  const bool all = find_running();
  const std::vector<std::uint64_t> from = tops_that_came();
  check_there();
  const bool whole = std::count(runs.begin(), runs.begin() + form.edge_count, 0) == 0;
  take_casts();
  Pass now;
  now.whole = whole;
  now.all_run = all && !form.saved_lasts && uses_all(from);
  const bool hooked = std::any_of(hooks.begin(), hooks.end(), [](const PostHooks& of) { return !of.empty(); });
  now.looks_at_nodes = hooked || looks_for_anomalies();
  has_owner_run(now);
  ran = true;
  given.assign(form.slot_count, at::Tensor());
  if (!now.keeps_graph) freed_by.push_back({from, running});
  releases = now.all_run && !now.keeps_graph;  // as eager's nodes, which release what they keep
  if (!releases) return;
  gone = !memory.empty() || !parts.empty();
  memory.clear();
  for (Part& part : parts) part.itself = at::Tensor();
}

namespace {

// What this PyTorch says behind that, as it says it of a tensor of ours.
std::string hint() {
  const at::Tensor tensor = at::empty({1}, at::kFloat);
  const autograd::SavedVariable saved(tensor, false);
  autograd::impl::bump_version(tensor);
  try {
    static_cast<void>(saved.unpack());
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    const std::size_t at = text.find(" Hint:");
    if (at != std::string::npos) return text.substr(at);
  }
  return {};
}

// What made it, as PyTorch says it: of a tensor that a node has itself that is what made it last.
std::string in_words(const Cut::Part& part) {
  const at::Tensor original = part.original();
  std::string text = part.text;
  if (!original.defined()) return text;
  constexpr std::string_view kMadeBy = ", which is output ";
  const std::size_t made_by = text.find(kMadeBy);
  const std::string_view number =
      made_by != std::string::npos ? std::string_view(text).substr(made_by + kMadeBy.size()) : std::string_view("0 ");
  const std::string output(number.substr(0, number.find(' ')));
  text = text.substr(0, made_by);
  const std::shared_ptr<autograd::Node>& node = original.grad_fn();
  return node == nullptr ? text : text + std::string(kMadeBy) + output + " of " + node->name() + ",";
}

[[noreturn]] void say_changed(const Cut::Part& part, std::uint32_t version) {
  std::ostringstream text;
  text << "one of the variables needed for gradient computation has been modified by an inplace operation: "
       << in_words(part) << " is at version " << version << "; expected version " << part.count << " instead.";
  text << hint();
  TORCH_CHECK(false, text.str());
}

}  // namespace

at::Tensor Cut::Part::original() const { return itself.defined() ? itself : at::Tensor(living.lock()); }

std::vector<std::uint64_t> Cut::tops_that_came() const {
  std::vector<std::uint64_t> from(words(form.top_count), 0);
  for (std::uint32_t i = 0; i < form.top_count; ++i) from[i / 64] |= std::uint64_t{came[i]} << i % 64;
  return from;
}

bool Cut::is_used(const Part& part, const std::vector<std::uint64_t>& from) const {
  return part.links != nullptr && meet(part.tops, from) && meet(part.links, running);
}

void Cut::check(const Part& part) const {
  TORCH_CHECK(!part.freed, autograd::ERR_BACKWARD_TWICE);
  if (!part.tensor.defined()) return;
  const at::Tensor original = part.original();
  TORCH_CHECK(!original.defined() || part.is_leaf || original.grad_fn() != nullptr, kDetached);
  const auto version = autograd::impl::version_counter(part.tensor).current_version();
  if (version != part.count) say_changed(part, version);
}

// As eager's own check, of the nodes that have run with this link or since the last one.
void Cut::check(std::uint32_t link) {
  const std::vector<std::uint64_t> from = tops_that_came();
  for (; next_part < parts.size() && parts[next_part].link >= link; ++next_part) {
    if (freed_before != 0) check_freed(parts[next_part].node, link, from);
    if (is_used(parts[next_part], from)) check(parts[next_part]);
  }
  if (freed_before != 0) check_freed(form.node_count, link, from);
}

Remains Cut::remains_of(const Part& part) const noexcept {
  const at::Tensor& now = part.itself.defined() ? part.itself : part.tensor;
  const void* const address = now.has_storage() ? now.storage().data() : nullptr;
  const bool replaced = part.itself.defined() && !now.is_alias_of(part.tensor);
  const bool alike = now.has_storage() && now.storage().nbytes() == part.bytes &&
                     now.scalar_type() == part.tensor.scalar_type() && now.sizes() == part.tensor.sizes() &&
                     now.strides() == part.tensor.strides() && now.storage_offset() == part.tensor.storage_offset();
  return {reinterpret_cast<std::uint64_t>(address), address != part.memory, replaced, alike};
}

bool Cut::is_spent() const noexcept {
  return std::any_of(memory.begin(), memory.end(), [](const c10::Storage& piece) { return !piece; });
}

void Cut::release_parts() noexcept { parts.clear(); }

namespace {

WeakTensor weak(const at::Tensor& tensor) {
  const auto strong = tensor.defined() ? tensor.getIntrusivePtr() : at::Tensor().getIntrusivePtr();
  return WeakTensor(strong);
}

void keep_parts(Cut& made, const CallTensors& tensors) {
  made.parts.reserve(tensors.kept_count);
  for (std::size_t i = 0; i < tensors.kept_count; ++i) {
    const Kept& kept = tensors.kept[i];
    if (kept.tensor == nullptr) {
      made.parts.push_back({at::Tensor(), at::Tensor(), nullptr, 0, 0, kept.link, kept.links, kept.tops, kept.text,
                            weak(at::Tensor()), false, kept.node, kept.freed});
      continue;
    }
    const at::Tensor& tensor = tensor_of(kept.tensor);
    const Tensor* const results = tensors.results + made.form.result_count;
    const bool result = std::find(tensors.results, results, kept.tensor) != results;
    const bool leaf = !result && tensor.is_leaf();  // results get their nodes later
    made.parts.push_back({tensor.tensor_data(), kept.itself && !result ? tensor : at::Tensor(), tensor.storage().data(),
                          tensor.storage().nbytes(), kept.count, kept.link, kept.links, kept.tops, kept.text,
                          weak(kept.itself && !leaf ? tensor : at::Tensor()), leaf, kept.node, kept.freed});
  }
}

// Numbers tell the engine what runs first: links and casts as eager's nodes, and before them the tops. A single top
// runs as eager's node, and is the first of the call's in any case. So do tops of a sealed form: no link has work.
// What is no CastNode was cast by PyTorch itself.
void join_casts(const std::shared_ptr<Cut>& cut, const Tensor* casts) {
  cut->casts.reserve(cut->form.cast_count);
  for (std::uint32_t i = 0; i < cut->form.cast_count; ++i) {
    const std::shared_ptr<autograd::Node> node = tensor_of(casts[i]).grad_fn();
    node->set_sequence_nr(cut->number(cut->form.casts[i]));
    const auto cast = std::dynamic_pointer_cast<CastNode>(node);
    cut->casts.push_back(cast);
    const auto* const weight = cast_weight(*node);
    if (weight != nullptr) cut->cast_weights.push_back(weight->variable.unsafeGetTensorImpl());
    if (cast == nullptr) continue;
    cast->cut = cut;
    cast->index = i;
  }
}

void make_tops(const std::shared_ptr<Cut>& cut, const std::vector<std::shared_ptr<autograd::Node>>& links,
               const Tensor* results) {
  const Template& form = cut->form;
  cut->tops.reserve(form.top_count);
  const std::uint64_t first = cut->number(*std::max_element(form.numbers, form.numbers + form.node_count)) + 1;
  for (std::uint32_t i = 0; i < form.top_count; ++i) {
    const Top& top = form.tops[i];
    const std::uint64_t number = form.top_count == 1 || form.sealed ? cut->number(top.sequence) : first + i;
    auto node = std::make_shared<TopNode>(number, cut, i);
    cut->tops.push_back(node);
    std::unordered_set<const autograd::Node*> reached;
    for (std::uint32_t r = 0; r < top.reach_count; ++r) {
      const auto& link = links[form.reach[top.first_reach + r]];
      if (reached.insert(link.get()).second) node->add_next_edge({link, 0});
    }
    for (std::uint32_t f = 0; f < top.fed_count; ++f) {
      std::uint32_t input = 0;
      auto fed = cut->top_of(form.fed[top.first_fed + f], input);
      node->add_next_edge({std::move(fed), input});
    }
    for (std::uint32_t slot = top.first_slot; slot < top.first_slot + top.slot_count; ++slot) {
      std::uint32_t result = 0;
      while (result < form.result_count && form.slots[result] != slot) ++result;
      if (result == form.result_count) {
        node->add_input_metadata(autograd::Node::undefined_input{});
        continue;
      }
      const at::Tensor& tensor = tensor_of(results[result]);
      autograd::impl::set_gradient_edge(tensor, {node, node->add_input_metadata(tensor)});
      if (form.views[result] != 0)
        autograd::impl::get_view_autograd_meta(tensor)->set_creation_meta(
            static_cast<autograd::CreationMeta>(form.views[result]));
    }
  }
}

}  // namespace

Cut* cut(const Template* form, const CallTensors& tensors, const Owner* owner, void* call) noexcept {
  std::shared_ptr<Cut> made;
  try {
    made = std::make_shared<Cut>(*form, *owner, call);
  } catch (const std::exception&) {
    return nullptr;
  }
  try {
    made->first_sequence = tensors.first_sequence;
    for (std::size_t i = 0; i < tensors.pieces; ++i)
      made->memory.push_back(tensors.blocks->storages[tensors.first_piece + i]);
    keep_parts(*made, tensors);
    join_casts(made, tensors.casts);
    make_tops(made, make_links(made, tensors.targets, tensor_of(tensors.results[0])), tensors.results);
    return made.get();
  } catch (const std::exception&) {
    return nullptr;
  }
}

const std::vector<const void*>& cast_weights_of(const Cut& cut) noexcept { return cut.cast_weights; }

namespace {

at::Tensor view(const at::Tensor& of, const Contribution& like) {
  return of.as_strided({like.sizes, static_cast<std::size_t>(like.dimensions)},
                       {like.strides, static_cast<std::size_t>(like.dimensions)}, like.offset);
}

void move_version(const at::Tensor& made, std::uint32_t writes) {
  for (std::uint32_t w = 0; w < writes; ++w) autograd::impl::bump_version(made);
}

// In the memory of what came, or of another one.
at::Tensor relate(const Cut& cut, const Contribution& like) {
  using Kind = Contribution::Kind;
  switch (like.kind) {
    case Kind::kGiven:
      return cut.given[like.of];
    case Kind::kAnother:
      return cut.contributions[like.of];
    case Kind::kOfGiven:
      return view(cut.given[like.of], like);
    case Kind::kOfAnother:
      return view(cut.contributions[like.of], like);
    case Kind::kBase:
      return autograd::impl::get_view_autograd_meta(cut.contributions[like.of])->get_backward_view().base_;
    default:
      return {};
  }
}

}  // namespace

bool make_contributions(Cut* cut, const Contribution* contributions, std::uint32_t part,
                        std::uint64_t* addresses) noexcept {
  try {
    const c10::DeviceIndex current = c10::impl::VirtualGuardImpl(at::kCUDA).getDevice().index();
    for (std::uint32_t i = 0; i < count_contributions(cut->form); ++i) {
      const Contribution& like = contributions[i];
      if (like.kind != Contribution::Kind::kMade || like.part != part) continue;
      at::Tensor& made = cut->contributions[i];
      made = make_tensor(like, current);
      addresses[i] = reinterpret_cast<std::uint64_t>(made.data_ptr());
      if (like.is_view) made = view(made, like);  // which keeps the other one
      move_version(made, like.writes);
    }
    return true;
  } catch (const std::exception&) {
    cut->failure = std::current_exception();
    return false;
  }
}

bool relate_contributions(Cut* cut, const Contribution* contributions) noexcept {
  try {
    for (std::uint32_t i = 0; i < count_contributions(cut->form); ++i) {
      const Contribution& like = contributions[i];
      if (i < cut->form.edge_count) cut->go_inside[i] = like.goes_inside ? 1 : 0;
      if (like.kind == Contribution::Kind::kMade) continue;
      cut->contributions[i] = relate(*cut, like);
      if (like.kind != Contribution::Kind::kUndefined) move_version(cut->contributions[i], like.writes);
    }
    return true;
  } catch (const std::exception&) {
    cut->failure = std::current_exception();
    return false;
  }
}

void give_back(Cut* cut, std::uint32_t piece) noexcept {
  if (piece < cut->memory.size()) cut->memory[piece] = c10::Storage();
}

bool make_room(Cut* cut, std::uint32_t room, std::uint64_t bytes, std::int32_t device,
               std::uint64_t* address) noexcept {
  try {
    const c10::DeviceGuard on_device(c10::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device)));
    if (cut->rooms.size() <= room) cut->rooms.resize(room + 1);
    cut->rooms[room] = device_allocator()->allocate(static_cast<std::size_t>(bytes));
    *address = reinterpret_cast<std::uint64_t>(cut->rooms[room].get());
    return true;
  } catch (const std::exception&) {
    cut->failure = std::current_exception();
    return false;
  }
}

void drop_room(Cut* cut, std::uint32_t room) noexcept { cut->rooms[room].clear(); }

void fail_for_memory(Cut* cut, const char* text) noexcept {
  try {
    TORCH_CHECK_WITH(OutOfMemoryError, false, text);
  } catch (const std::exception&) {
    cut->failure = std::current_exception();
  }
}

}  // namespace grape::python::bridge
