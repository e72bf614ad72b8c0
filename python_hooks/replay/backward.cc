#include "python_hooks/replay/backward.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>

#include "python_hooks/bridge/loaded.h"
#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/replay/casts.h"
#include "python_hooks/replay/clock.h"
#include "python_hooks/replay/proof_guards.h"
#include "python_hooks/replay/run.h"
#include "shim/device/thread_context.h"
#include "shim/lifecycle/config.h"
#include "shim/lifecycle/log.h"

namespace grape::python::replay {
namespace {

// Calls whose nodes are gone. The end of a proof needs the GIL, which the end of a node has not.
std::mutex g_gone_mutex;
ReplayedCall* g_gone = nullptr;

void note_gone(void* call) noexcept {
  auto* const gone = static_cast<ReplayedCall*>(call);
  const std::lock_guard<std::mutex> lock(g_gone_mutex);
  gone->next = g_gone;
  g_gone = gone;
}

// With the GIL.
void free_gone() noexcept {
  ReplayedCall* gone = nullptr;
  {
    const std::lock_guard<std::mutex> lock(g_gone_mutex);
    std::swap(gone, g_gone);
  }
  while (gone != nullptr) delete std::exchange(gone, gone->next);
}

constexpr char kSavedLasts[] = "what its call saved is needed behind it";

std::uint64_t piece_address(const ReplayedCall& call, const ProvenPass::Lent& lent) noexcept {
  return call.saved[lent.saved].address - program::offset_in_piece(lent.at);
}

// What a pass needs besides what its call saved, and that: part by part.
class PassSupply final : public grape::replay::Supply {
 public:
  PassSupply(const ProvenPass& pass, bridge::Cut* cut, std::int32_t device)
      : pass_(pass), cut_(cut), device_(device), addresses_(pass.forms.size(), 0) {}

  bool before_part(std::size_t part, program::Bindings& bindings) override {
    const auto number = static_cast<std::uint32_t>(part);
    if (number != 0) end_part(number - 1);
    no_memory_ = !bridge::loaded()->make_contributions(cut_, pass_.forms.data(), number, addresses_.data()) ||
                 !make_rooms(number, bindings);
    if (no_memory_) return false;
    for (std::size_t i = 0; i < addresses_.size(); ++i) {
      const std::uint32_t block = pass_.contributions[i].block;
      if (block != MadeContribution::kNoBlock) bindings.outputs[block] = addresses_[i];
    }
    return true;
  }
  bool no_memory() const noexcept { return no_memory_; }
  // The pass ends here, and may have written to what the call saved: no other one may begin.
  void spend() noexcept {
    for (const ProvenPass::Lent& lent : pass_.lent) bridge::loaded()->give_back(cut_, program::piece_of(lent.at));
  }

 private:
  void end_part(std::uint32_t part) noexcept {
    const program::Parts& parts = pass_.parts;
    for (std::uint32_t i = 0; i < parts.pieces.size(); ++i) {
      if (parts.pieces[i] == part) bridge::loaded()->give_back(cut_, i);
    }
    for (std::uint32_t i = 0; i < parts.rooms.size(); ++i) {
      if (parts.rooms[i].last == part) bridge::loaded()->drop_room(cut_, i);
    }
  }
  bool make_rooms(std::uint32_t part, program::Bindings& bindings) noexcept {
    for (std::uint32_t i = 0; i < pass_.parts.rooms.size(); ++i) {
      const program::Parts::Room& room = pass_.parts.rooms[i];
      std::uint64_t& address = bindings.lent[program::kMostPieces + i];
      if (room.first == part && !bridge::loaded()->make_room(cut_, i, room.bytes, device_, &address)) return false;
    }
    return true;
  }

  const ProvenPass& pass_;
  bridge::Cut* cut_;
  std::int32_t device_;
  std::vector<std::uint64_t> addresses_;
  bool no_memory_ = false;
};

// False: no memory.
bool place(const ReplayedCall& call, ProvenPass& pass, PassSupply& supply, const bridge::Pass& asked) {
  program::Bindings& bindings = pass.bindings;
  const Border& border = *call.border;
  if (!supply.before_part(0, bindings)) return false;
  const std::uint32_t slots = border.form.slot_count;
  for (std::uint32_t i = 0; i < slots; ++i) bindings.inputs[i] = asked.given[i].storage;
  for (std::size_t i = 0; i < call.saved.size(); ++i) bindings.inputs[slots + i] = call.saved[i].address;
  for (const ProvenPass::Lent& lent : pass.lent) bindings.lent[program::piece_of(lent.at)] = piece_address(call, lent);
  bindings.seed = call.seed;
  bindings.offset = call.offset;
  return true;
}

// May temps of the pass lie in what the call saved? Null, or why not. Nobody needs it behind a pass of all nodes that
// keeps no graph.
const char* why_not_lent(const ReplayedCall& call, const ProvenPass& pass, const bridge::Pass& asked) noexcept {
  if (pass.lent.empty()) return nullptr;
  if (!asked.all_run || asked.keeps_graph) return kSavedLasts;
  std::uint64_t pieces[program::kMostPieces] = {};
  for (const ProvenPass::Lent& each : pass.lent) {
    std::uint64_t& begin = pieces[program::piece_of(each.at)];
    if (begin != 0 && begin != piece_address(call, each)) return "what its call saved lies elsewhere";
    begin = piece_address(call, each);
  }
  return nullptr;
}

// They are proven anew, with temps elsewhere.
void drop_borrowers(Passes& passes) noexcept {
  auto& proven = passes.proven;
  const auto borrows = [](const std::unique_ptr<ProvenPass>& pass) { return !pass->lent.empty(); };
  proven.erase(std::remove_if(proven.begin(), proven.end(), borrows), proven.end());
}

// kNotNow: nothing was done, and the call may be made again.
enum class Launched : std::uint8_t { kDone, kFailed, kNoMemory, kNotNow };
Launched launch(const ReplayedCall& call, ProvenPass& pass, bridge::Cut* cut, const bridge::Pass& asked,
                std::vector<Object*>& replaced) {
  const NoCollection no_collection;
  const device::ContextScope scope(call.work.context);
  refusal::Refusal refused;
  if (!scope.entered() || !pass.arena.reserve(call.work, pass.plan.bytes, true, pass.bindings.arena, replaced))
    return Launched::kNotNow;
  PassSupply supply(pass, cut, call.work.device);
  if (!place(call, pass, supply, asked)) return Launched::kNoMemory;
  if (!pass.steps.prepare(pass.execs, pass.program, pass.plan, pass.bindings, refused)) {
    log_line(LogLevel::kDebug, "a proven backward pass is not replayed: %s", refused.text.c_str());
    return Launched::kNotNow;
  }
  using Result = grape::replay::ProgramRun::Result;
  const Result ran = pass.steps.run(call.work.driver_stream(), pass.others, nullptr, &supply);
  if (ran != Result::kDone) {
    if (pass.steps.launched()) supply.spend();
    return supply.no_memory() ? Launched::kNoMemory : Launched::kFailed;
  }
  return bridge::loaded()->relate_contributions(cut, pass.forms.data()) ? Launched::kDone : Launched::kNoMemory;
}

// What it saved is spent on proofs of others.
void note_replayed(Passes& passes, double seconds) noexcept {
  passes.times.replay = std::min(passes.times.replay, seconds);
  LookBudget::earn(passes.times, passes.times.replay);
}

// Memory that nodes keep may lie elsewhere by now: `x.data = y`, or a storage that was freed and filled again. Nodes
// read it where it is, and so does the pass. `in_place`: the module's own memory, which a graph knows by its address,
// has not moved. Null, or why the call cannot be computed any more.
const char* follow_memory(ReplayedCall& call, const bridge::Remains* kept, bool& in_place) {
  const Border& border = *call.border;
  std::vector<std::uint64_t> now(call.saved.size(), 0);
  const auto follow = [&](const bridge::Remains& remains, std::uint32_t place) {
    const bool known = place != Border::kNone;
    if (!remains.alike || (remains.replaced && !known)) return false;
    if (!known) in_place = in_place && !remains.moved;
    if (known && now[place] != 0 && now[place] != remains.storage) return false;
    if (known) now[place] = remains.storage;
    return true;
  };
  bool good = true;
  for (std::size_t i = 0; i < border.kept.size(); ++i)
    good = good && follow(kept[i], border.saved_tensors[border.kept[i].saved].first);
  for (std::size_t i = 0; i < border.held.size(); ++i) {
    const bridge::Remains& remains = kept[border.kept.size() + i];
    const bool followed = now[border.held_saved[i]] != 0;
    good = good && remains.alike && (followed || follow(remains, border.held_saved[i]));
  }
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (now[i] != 0) call.saved[i].address = now[i];
  }
  return good ? nullptr : "memory that its nodes keep was replaced";
}

// Of what the proof stands on.
const char* what_is_gone(const ProvenPass& pass) noexcept {
  if (!kernels_are_loaded(pass.module_epoch)) return "a kernel of its proof is gone";
  for (const program::StaticBlock& block : pass.program.head().statics) {
    if (memory::LiveBlocks::instance().alive(block.address, block.serial)) continue;
    log_line(LogLevel::kDebug, "%llu bytes that a backward pass works on are gone",
             static_cast<unsigned long long>(block.bytes));
    return "memory of its proof is gone";
  }
  return "a stream, an event or a library's memory of its proof is not as it was";
}

const char* run_pass(ReplayedCall& call, bridge::Cut* cut, const bridge::Pass& asked, char* error, std::size_t room) {
  const double began = now();
  const Border& border = *call.border;
  if (border.form.sealed) return "its graph was freed in it";  // its nodes fail before that
  Passes& passes = *call.passes;
  passes.makes_graph = passes.makes_graph || asked.makes_graph;
  const bool plain = std::all_of(asked.given, asked.given + border.form.slot_count, [](const bridge::Gradient& given) {
    return given.identity == nullptr || given.plain;
  });
  torch::DispatchState dispatch;
  refusal::Form<0> blocked;
  std::uint64_t stream = 0;
  bool in_place = true;
  const bool again = bridge::loaded()->was_run_again(cut);
  const char* const gone = again ? nullptr : follow_memory(call, asked.kept, in_place);
  if (gone != nullptr) return gone;
  const char* why = "it is of another kind, or on another stream";
  if (in_place && plain && !asked.makes_graph && !asked.looks_at_nodes && !again &&
      torch::take_dispatch_state(dispatch, blocked) && torch::current_stream_of(call.work.device, stream) &&
      stream == call.work.stream) {
    const PassKey key = key_of(dispatch, asked.given, border.form.slot_count, asked.runs,
                               bridge::count_contributions(border.form), asked.keeps_graph);
    why = "none that is proven has its gradients";
    for (const auto& pass : passes.proven) {
      if (pass->key != key) continue;
      if (!is_usable(*pass)) {
        why = what_is_gone(*pass);
        continue;
      }
      if (const char* const lasts = why_not_lent(call, *pass, asked)) {
        passes.saved_lasts = passes.saved_lasts || lasts == kSavedLasts;
        why = lasts;
        continue;
      }
      std::vector<Object*> replaced;
      const Launched launched = launch(call, *pass, cut, asked, replaced);
      drop(replaced);
      if (launched == Launched::kDone) {
        note_replayed(passes, now() - began);
        return nullptr;
      }
      if (launched == Launched::kNoMemory) return "";  // the bridge has the error
      if (launched == Launched::kFailed) return "its graph does not run";
      why = "its graph cannot be made ready";
      break;
    }
  }
  passes.streak = 0;
  if (passes.saved_lasts) drop_borrowers(passes);
  log_line(LogLevel::kDebug, "a backward pass is computed by its nodes: %s", why);
  return make_again(call, asked.kept, cut, error, room);
}

bool run(void* owner, bridge::Cut* cut, const bridge::Pass& asked, char* error, std::size_t room) noexcept {
  const WithGil gil;
  const KeepException keep;
  const char* why = nullptr;
  auto& call = *static_cast<ReplayedCall*>(owner);
  try {
    why = run_pass(call, cut, asked, error, room);
  } catch (const std::bad_alloc&) {
    why = "there is no memory";
  }
  if (why == nullptr && asked.whole && asked.all_run && !asked.keeps_graph) forget(call);
  if (why != nullptr && *why != '\0') {
    std::snprintf(error, room,
                  "grape: the backward pass of a replayed call is not one that was seen, and the call cannot be made "
                  "again: %s. GRAPE_AUTOGRAD=0 runs calls under autograd as always",
                  why);
  }
  return why == nullptr;
}

constexpr bridge::Owner kOwner = {run, note_gone};

template <typename Value>
void write(PassKey& key, const Value& value) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(&value);
  key.insert(key.end(), bytes, bytes + sizeof value);
}

void write_gradient(const bridge::Gradient& gradient, PassKey& key) {
  constexpr std::uint64_t kAlignment = 512;
  write(key, gradient.identity != nullptr);
  if (gradient.identity == nullptr) return;
  write(key, gradient.dimensions);
  for (std::int64_t i = 0; i < gradient.dimensions; ++i) {
    write(key, gradient.sizes[i]);
    write(key, gradient.strides[i]);
  }
  write(key, gradient.offset);
  write(key, gradient.storage_bytes);
  write(key, gradient.type);
  write(key, gradient.device_type);
  write(key, gradient.device_index);
  write(key, gradient.unique);
  write(key, gradient.storage % kAlignment);
}

}  // namespace

Passes::~Passes() = default;

bool Border::same_as(const Border& other) const {
  const auto same_link = [&](const bridge::Link& a, const bridge::Link& b) {
    return a.sequence - form.first_sequence == b.sequence - other.form.first_sequence &&
           std::strcmp(a.name, b.name) == 0 && a.edge_count == b.edge_count;
  };
  const auto same_top = [&](const bridge::Top& a, const bridge::Top& b) {
    return a.sequence - form.first_sequence == b.sequence - other.form.first_sequence &&
           std::strcmp(a.name, b.name) == 0 && a.slot_count == b.slot_count && a.reach_count == b.reach_count &&
           a.fed_count == b.fed_count;
  };
  const auto same_number = [&](std::uint64_t a, std::uint64_t b) {
    return a - form.first_sequence == b - other.form.first_sequence;
  };
  const auto same_keeper = [](const bridge::Keeper& a, const bridge::Keeper& b) {
    return a.node == b.node && a.link == b.link;
  };
  return std::equal(keepers.begin(), keepers.end(), other.keepers.begin(), other.keepers.end(), same_keeper) &&
         paths == other.paths &&
         std::equal(numbers.begin(), numbers.end(), other.numbers.begin(), other.numbers.end(), same_number) &&
         std::equal(casts.begin(), casts.end(), other.casts.begin(), other.casts.end(), same_number) &&
         std::equal(links.begin(), links.end(), other.links.begin(), other.links.end(), same_link) &&
         std::equal(tops.begin(), tops.end(), other.tops.begin(), other.tops.end(), same_top) && reach == other.reach &&
         fed == other.fed && freed == other.freed && form.sealed == other.form.sealed && slots == other.slots &&
         views == other.views && targets == other.targets && leaf_sizes == other.leaf_sizes &&
         results == other.results && kept == other.kept && saved == other.saved && constants == other.constants;
}

bool MadeContribution::operator==(const MadeContribution& o) const noexcept {
  return form.kind == o.form.kind && form.of == o.form.of && sizes == o.sizes && strides == o.strides &&
         base_sizes == o.base_sizes && base_strides == o.base_strides && form.offset == o.form.offset &&
         form.is_view == o.form.is_view && form.goes_inside == o.form.goes_inside && form.writes == o.form.writes &&
         form.type == o.form.type && block == o.block;
}

PassKey key_of(const torch::DispatchState& dispatch, const bridge::Gradient* given, std::uint32_t slots,
               const std::uint8_t* runs, std::uint32_t contributions, bool keeps_graph) {
  PassKey key(dispatch.bytes, dispatch.bytes + dispatch.byte_count);
  write(key, keeps_graph);
  for (std::uint32_t i = 0; i < slots; ++i) {
    write_gradient(given[i], key);
    std::uint32_t same = 0;
    while (given[same].storage != given[i].storage) ++same;
    write(key, same);
  }
  key.insert(key.end(), runs, runs + contributions);
  return key;
}

namespace {

// The tensors that a border names, in this call.
class Tensors {
 public:
  Tensors(const Region& region, const Call& call, const std::vector<Object*>& made, const LeftBlocks& left)
      : arguments_(call.walk->tensors()),
        module_(region.evidence.guard->tensors()),
        made_(made),
        casts_(left.casts()) {}

  bridge::Tensor handle(const TensorSource& source) const noexcept {
    if (source.of == TensorSource::Of::kCast) return casts_[source.index].tensor;
    const walk::WalkedTensor* const walked = walked_as(source);
    return walked != nullptr ? walked->view.handle : torch::handle_of_tensor(made_[source.index]);
  }
  std::uint32_t version(const TensorSource& source) const noexcept {
    if (source.of == TensorSource::Of::kCast) return casts_[source.index].version;
    const walk::WalkedTensor* const walked = walked_as(source);
    const torch::VersionCounter* const counter =
        torch::version_counter(walked != nullptr ? walked->view.object : made_[source.index]);
    return counter != nullptr ? counter->load() : 0;
  }

 private:
  const walk::WalkedTensor* walked_as(const TensorSource& source) const noexcept {
    if (source.of == TensorSource::Of::kArgument) return &arguments_[source.index];
    return source.of == TensorSource::Of::kModule ? &module_[source.index] : nullptr;
  }

  const std::vector<walk::WalkedTensor>&arguments_, &module_;
  const std::vector<Object*>& made_;
  const std::vector<bridge::KeptCast>& casts_;
};

program::Extent memory_of(const SavedMemory& saved, const Proven& proven, const Call& call, const LeftBlocks& left) {
  if (saved.of == SavedMemory::Of::kBlock) return {proven.bindings.outputs[saved.index], 0};
  if (saved.of == SavedMemory::Of::kCast) return {left.casts()[saved.index].storage, 0};
  const walk::StorageExtent& extent = call.walk->extents()[saved.index];
  return {extent.address, extent.bytes};
}

}  // namespace

bool attach_backward(const Region& region, const Proven& proven, const Call& call, const std::vector<Object*>& made,
                     const LeftBlocks& left, std::uint64_t first_node) {
  free_gone();
  const Border& border = *proven.border;
  const Tensors tensors(region, call, made, left);
  std::vector<bridge::Tensor> targets, results, casts;
  std::vector<bridge::Kept> kept;
  targets.reserve(border.targets.size());
  kept.reserve(border.kept.size() + border.held.size());
  bool known = true;
  for (const TensorSource& source : border.targets) {
    const bool leaf = source.of == TensorSource::Of::kLeaf;
    targets.push_back(leaf ? nullptr : tensors.handle(source));
    known = known && (leaf || targets.back() != nullptr);
  }
  for (const std::uint32_t result : border.results) {
    results.push_back(tensors.handle({TensorSource::Of::kResult, result}));
    known = known && results.back() != nullptr;
  }
  if (!known) return false;
  for (const bridge::KeptCast& cast : left.casts()) casts.push_back(cast.tensor);
  for (const KeptTensor& each : border.kept) {
    kept.push_back({each.known ? tensors.handle(each.tensor) : nullptr, each.itself,
                    each.known ? tensors.version(each.tensor) : 0, each.link, each.links.data(), each.tops.data(),
                    each.text, each.node, each.freed});
  }
  for (const TensorSource& held : border.held)
    kept.push_back({tensors.handle(held), false, 0, 0, nullptr, nullptr, nullptr, 0, false});
  auto replayed = std::make_unique<ReplayedCall>();
  replayed->border = proven.border;
  replayed->passes = proven.passes;
  replayed->work = call.work;
  replayed->seed = proven.bindings.seed;
  replayed->offset = proven.bindings.offset;
  replayed->saved.reserve(border.saved.size());
  for (const SavedMemory& saved : border.saved) replayed->saved.push_back(memory_of(saved, proven, call, left));
  if (left.written_before() != nullptr) g_api.Py_IncRef(left.written_before());
  replayed->written_before = left.written_before();
  const bool sealed = border.form.sealed;  // no pass needs the call again, nor what it saved
  if (!sealed && !remember(*replayed, region, call)) return false;
  if (!sealed && !proven.draws.empty()) {
    replayed->host_random = host_draws::generator_state();
    if (replayed->host_random == nullptr) return false;
  }
  const std::size_t pieces = sealed ? 0 : left.pieces();
  const bridge::CallTensors all = {targets.data(), results.data(), casts.data(),        kept.data(), kept.size(),
                                   left.blocks(),  pieces,         left.casts().size(), first_node};
  return bridge::loaded()->cut(&border.form, all, &kOwner, replayed.release()) != nullptr;
}

bool may_train(const torch::DispatchState& dispatch) noexcept {
  return dispatch.grad_enabled && may_return_gradients(dispatch);
}

bool may_return_gradients(const torch::DispatchState& dispatch) noexcept {
  if (!config().autograd || dispatch.inference_mode) return false;
  // A call that switches gradients on for itself, and runs a pass, has the bridge loaded by that.
  return (dispatch.grad_enabled ? bridge::loaded() : bridge::loaded_before()) != nullptr;
}

}  // namespace grape::python::replay
