// From an observed backward pass to one that may stand in for others.
#include <algorithm>
#include <utility>

#include "compressor/program/prove.h"
#include "compressor/program/symbolise.h"
#include "python_hooks/proof/backward_watch.h"
#include "python_hooks/proof/recipes.h"
#include "python_hooks/proof/shadow_inputs.h"
#include "python_hooks/replay/run.h"
#include "shim/device/thread_context.h"
#include "shim/lifecycle/config.h"
#include "shim/lifecycle/log.h"
#include "shim/memory/live_blocks.h"

namespace grape::python::proof {
namespace {

using Kind = bridge::Contribution::Kind;
using Range = grape::replay::Shadow::Range;

constexpr std::size_t kMostWaiting = 4;
constexpr std::uint32_t kMostShadows = 5;

// Neither do two empty ones have memory in common.
bool same_memory(const SeenGradient& a, const SeenGradient& b) noexcept {
  return a.as.identity != nullptr && b.as.identity != nullptr && a.as.storage == b.as.storage && a.serial == b.serial &&
         a.as.storage_bytes != 0;
}

bool same_tensor(const SeenGradient& a, const SeenGradient& b) noexcept {
  return a.as.identity != nullptr && a.as.identity == b.as.identity;
}

bool same_root(const SeenGradient& a, const SeenGradient& b) noexcept {
  return a.as.identity != nullptr && a.as.by_strides && a.root() == b.root();
}

bool is_base(const SeenGradient& a, const SeenGradient& b) noexcept {
  return a.as.identity != nullptr && b.as.by_strides && a.as.identity == b.as.base;
}

bool any_overlap(std::vector<program::Extent> extents) {
  extents.erase(std::remove_if(extents.begin(), extents.end(), [](const program::Extent& e) { return e.bytes == 0; }),
                extents.end());
  std::sort(extents.begin(), extents.end(), [](const auto& a, const auto& b) { return a.address < b.address; });
  return std::adjacent_find(extents.begin(), extents.end(), overlap<program::Extent, program::Extent>) != extents.end();
}

}  // namespace

// To a gradient that came, or to a contribution before it. False: to none.
bool BackwardWatch::relate(std::uint32_t edge, bridge::Contribution& form) const {
  const SeenGradient& seen = pass_.contributions[edge];
  const auto search = [&](const std::vector<SeenGradient>& among, std::size_t count, auto related, Kind kind) {
    for (std::uint32_t i = 0; i < count && form.kind == Kind::kUndefined; ++i) {
      if (!related(seen, among[i])) continue;
      form.kind = kind;
      form.of = i;
    }
  };
  search(pass_.given, pass_.given.size(), same_tensor, Kind::kGiven);
  search(pass_.contributions, edge, same_tensor, Kind::kAnother);
  search(pass_.given, pass_.given.size(), same_root, Kind::kOfGiven);
  search(pass_.contributions, edge, same_root, Kind::kOfAnother);
  search(pass_.contributions, edge, is_base, Kind::kBase);
  return form.kind != Kind::kUndefined;
}

// In memory of its own, as a tensor or a view of one that nobody else has? What else lies in the memory is a later
// contribution, which is related to this one.
bool BackwardWatch::may_be_made(std::uint32_t edge) const {
  const SeenGradient& seen = pass_.contributions[edge];
  const auto shares = [&seen](const SeenGradient& other) { return same_memory(other, seen); };
  const auto& others = pass_.contributions;
  const auto own = others.begin() + static_cast<std::ptrdiff_t>(edge);
  if (std::any_of(pass_.given.begin(), pass_.given.end(), shares) || std::any_of(others.begin(), own, shares))
    return false;
  if (seen.as.base == nullptr) return seen.as.unique || std::any_of(own + 1, others.end(), shares);
  return seen.as.by_strides && seen.as.whole_base && seen.span_of_base() == seen.as.storage_bytes;
}

replay::MadeContribution BackwardWatch::contribution(std::uint32_t edge,
                                                     const std::vector<program::BlockEvent>& outputs) {
  const SeenGradient& seen = pass_.contributions[edge];
  replay::MadeContribution made;
  made.sizes = seen.sizes;
  made.strides = seen.strides;
  bridge::Contribution& form = made.form;
  form.dimensions = seen.as.dimensions;
  form.offset = seen.as.offset;
  form.type = seen.as.type;
  form.device_type = seen.as.device_type;
  form.device_index = seen.as.device_index;
  form.goes_inside = seen.as.goes_inside;
  if (seen.as.identity == nullptr) return made;
  if (relate(edge, form)) {
    if (form.kind == Kind::kGiven) form.writes = seen.as.version - pass_.given[form.of].as.version;
    return made;
  }
  const auto output = std::find_if(outputs.begin(), outputs.end(),
                                   [&seen](const program::BlockEvent& block) { return block.serial == seen.serial; });
  form.kind = Kind::kMade;
  form.writes = seen.as.version;
  form.is_view = seen.as.base != nullptr;
  made.base_sizes = seen.base_sizes;
  made.base_strides = seen.base_strides;
  form.of_base.dimensions = static_cast<std::int64_t>(seen.base_sizes.size());
  if (output != outputs.end()) made.block = static_cast<std::uint32_t>(output - outputs.begin());
  const bool whole = form.offset == 0 && seen.span() == seen.as.storage_bytes;
  if ((output == outputs.end() && seen.as.storage_bytes != 0) || !whole) {
    pass_.refusal = refusal::make(refusal::gradient_elsewhere);
  } else if (!may_be_made(edge)) {
    pass_.refusal = refusal::make(refusal::gradient_of_other_kind);
  }
  return made;
}

bool BackwardWatch::find_contributions(const program::RegionRecord& record, replay::ObservedPass& observed) {
  const std::vector<program::BlockEvent> outputs = surviving_blocks(record);
  std::vector<bool> held(outputs.size(), false);
  for (std::uint32_t i = 0; i < contribution_count_ && !pass_.refusal; ++i) {
    observed.contributions.push_back(contribution(i, outputs));
    const std::uint32_t block = observed.contributions.back().block;
    if (block != replay::MadeContribution::kNoBlock) held[block] = true;
  }
  if (!pass_.refusal && std::find(held.begin(), held.end(), false) != held.end())
    pass_.refusal = refusal::make(refusal::keeps_memory);
  return !pass_.refusal;
}

std::unique_ptr<replay::ObservedPass> BackwardWatch::symbolise() {
  grape::observation::RegionSink::Result recorded = std::move(recorded_);
  recorded_ = {};
  if (recorded.record == nullptr) {
    pass_.refusal = refusal::make(refusal::backward_not_recorded, recorded.refusal.text);
    return nullptr;
  }
  if (pass_.refusal) return nullptr;
  program::RegionRecord& record = *recorded.record;
  for (std::size_t i = 0; i < pass_.given.size(); ++i) {
    const SeenGradient& given = pass_.given[i];
    const bool before = std::any_of(pass_.given.begin(), pass_.given.begin() + static_cast<std::ptrdiff_t>(i),
                                    [&](const SeenGradient& other) { return same_memory(other, given); });
    const bool has_own = given.as.identity != nullptr && !before;
    record.inputs.push_back({has_own ? given.as.storage : 0, has_own ? given.as.storage_bytes : 0});
  }
  record.inputs.insert(record.inputs.end(), pass_.saved.begin(), pass_.saved.end());
  if (any_overlap(record.inputs)) {
    pass_.refusal = refusal::make(refusal::gradients_overlap);
    return nullptr;
  }
  for (const SeenGradient& contribution : pass_.contributions) {
    if (contribution.as.identity != nullptr && contribution.serial != 0)
      record.given_away.push_back(contribution.serial);
  }
  std::sort(record.given_away.begin(), record.given_away.end());
  record.random = call_.random;
  const std::vector<program::HostWord> host_words = record.host_words;
  auto observed = std::make_unique<replay::ObservedPass>();
  if (!find_contributions(record, *observed)) return nullptr;
  std::vector<bridge::Gradient> given;
  for (SeenGradient& seen : pass_.given) {
    seen.as.sizes = seen.sizes.data();
    seen.as.strides = seen.strides.data();
    given.push_back(seen.as);
  }
  observed->key =
      replay::key_of(pass_.dispatch, given.data(), slots_, pass_.runs.data(), contribution_count_, pass_.keeps_graph);
  observed->module_epoch = call_.module_epoch;
  observed->loaded = recorded.loaded;
  observed->host_words = host_words;
  note_streams(record, call_.work, *observed);
  observed->program = program::symbolise(std::move(record), [](const program::FunctionInfo& f, std::uint32_t word) {
    return padding().may_be_pointer(f, word);
  });
  return observed;
}

void BackwardWatch::conclude() {
  std::uint64_t seed = 0, offset = 0;
  const bool draws = torch::random_state(call_.work.device, seed, offset) && offset != pass_.random.offset_before;
  std::unique_ptr<replay::ObservedPass> observed = symbolise();
  if (call_.checks) return check(observed.get());
  ++passes_->observed;
  if (observed != nullptr && draws)
    pass_.refusal = refusal::make(refusal::backward_not_recorded, "draws random numbers");
  if (observed != nullptr && !joins(*observed)) pass_.refusal = refusal::make(refusal::leaves_work);
  passes_->refusal = pass_.refusal;
  if (observed != nullptr && !pass_.refusal) compare(std::move(observed));
  const bool lasting = passes_->refusal && !refusal::is_passing(passes_->refusal.id);
  passes_->failures = lasting ? passes_->failures + 1 : 0;
}

// Why two passes of one kind are not the same; none: they are.
refusal::Refusal BackwardWatch::difference(const replay::ObservedPass& last, const replay::ObservedPass& observed,
                                           const program::Comparison& comparison) const {
  if (comparison.difference != program::Difference::kNone) {
    return refusal::make(refusal::backward_not_recorded,
                         program::describe(comparison, last.program, observed.program, readable).text);
  }
  if (last.host_words != observed.host_words) return refusal::make(refusal::library_memory_changed);
  if (!(last.contributions == observed.contributions)) return refusal::make(refusal::gradient_elsewhere);
  return call_.proves ? refusal::Refusal() : refusal::make(refusal::no_backward);
}

// Null: `passes_->refusal`; then `observed` waits for the next one.
std::unique_ptr<replay::ProvenPass> BackwardWatch::prove_by(replay::ObservedPass& last,
                                                            replay::ObservedPass& observed) {
  const program::HostPlaces host = host_places();
  const program::Comparison comparison = program::compare_and_settle(last.program, observed.program, host);
  passes_->refusal = difference(last, observed, comparison);
  if (passes_->refusal) return nullptr;
  padding().set_module_epoch(observed.module_epoch);
  learned_ = padding().note_pointers(last.program, observed.program);
  if (learned_) {
    passes_->refusal = refusal::make(refusal::no_backward);
    return nullptr;
  }
  std::unique_ptr<replay::PaddingTrial> trial = trial_of(last, observed, comparison.noise, host);
  std::unique_ptr<replay::ProvenPass> proven = prove(observed, *trial);
  if (proven == nullptr || unknown_padding(*trial, *proven->program.whole()).empty() || trial->shadows >= kMostShadows)
    return proven;
  observed.trial = std::move(trial);
  passes_->refusal = refusal::make(refusal::no_backward);
  return nullptr;
}

// Did a proven pass come once more? Another one with the same key means that the key does not tell all.
bool BackwardWatch::is_again(const replay::ProvenPass& proven, replay::ObservedPass& observed) {
  const auto program = proven.program.whole();
  if (program == nullptr || !(proven.contributions == observed.contributions)) return false;
  program::Program last = *program;
  const program::Comparison comparison = program::compare_and_settle(last, observed.program, host_places());
  return comparison.difference == program::Difference::kNone && proven.host_words == observed.host_words;
}

void BackwardWatch::compare(std::unique_ptr<replay::ObservedPass> observed) {
  const auto known = [&](const auto& pass) { return pass->key == observed->key; };
  const auto same = std::find_if(passes_->proven.begin(), passes_->proven.end(), known);
  if (same != passes_->proven.end() && is_again(**same, *observed)) {
    ++passes_->streak;
    return;
  }
  if (same != passes_->proven.end()) passes_->proven.erase(same);
  auto& waiting = passes_->waiting;
  const auto last = std::find_if(waiting.begin(), waiting.end(), known);
  std::unique_ptr<replay::ProvenPass> proven = last != waiting.end() ? prove_by(**last, *observed) : nullptr;
  if (proven != nullptr) {
    ++passes_->streak;
    waiting.erase(last);
    log_line(LogLevel::kDebug, "%s: a backward pass of %zu nodes is proven", call_.name.c_str(),
             proven->program.whole()->nodes.size());
    passes_->proven.push_back(std::move(proven));
    return;
  }
  passes_->streak = 0;
  if (last != waiting.end()) {
    if (learned_) {  // the next two passes are told apart anew
      waiting.erase(last);
    } else {
      *last = std::move(observed);
    }
    return;
  }
  passes_->refusal = refusal::make(refusal::no_backward);
  if (waiting.size() == kMostWaiting) waiting.erase(waiting.begin());
  waiting.push_back(std::move(observed));
}

std::vector<Range> BackwardWatch::replayed_ranges(const replay::ProvenPass& pass) const {
  std::vector<Range> ranges;
  std::vector<std::uint64_t> storages(contribution_count_, 0);
  for (std::uint32_t i = 0; i < contribution_count_; ++i) {
    const replay::MadeContribution& made = pass.contributions[i];
    const SeenGradient& seen = pass_.contributions[i];
    if (made.form.kind == Kind::kUndefined) continue;
    if (made.form.kind == Kind::kMade && made.block != replay::MadeContribution::kNoBlock) {
      storages[i] = pass.bindings.outputs[made.block];
    } else if (made.form.kind == Kind::kAnother || made.form.kind == Kind::kOfAnother ||
               made.form.kind == Kind::kBase) {
      storages[i] = storages[made.form.of];
    } else if (made.form.kind == Kind::kGiven || made.form.kind == Kind::kOfGiven) {
      storages[i] = pass.bindings.inputs[made.form.of];
    }
    if (seen.bytes != 0) ranges.push_back({storages[i] + (seen.as.data - seen.as.storage), seen.bytes});
  }
  return ranges;
}

// What only the backward pass needs, and frees.
program::LentMemory BackwardWatch::lent_memory() const {
  program::LentMemory lent;
  for (std::size_t i = 0; i < pass_.saved.size() && i < call_.shadowed.size(); ++i) {
    if (call_.shadowed[i] == 0 || pass_.saved[i].bytes == 0) continue;
    const auto input = static_cast<std::uint32_t>(pass_.given.size() + i);
    lent.blocks.push_back({program::Role::kInput, input, call_.saved_at[i]});
  }
  return lent;
}

// Of temporary memory that is kept from step to step. More than that comes and goes with the pass.
std::uint64_t BackwardWatch::most_arena(const program::Program& whole) const {
  constexpr std::uint64_t kLeast = 8 << 20, kShare = 32;
  std::uint64_t bytes = 0;
  for (const program::Extent& saved : pass_.saved) bytes += saved.bytes;
  for (const program::BornBlock& output : whole.outputs) bytes += output.bytes;
  return std::max(kLeast, bytes / kShare);
}

// Where the graph is kept, another pass finds all that the call saved.
void BackwardWatch::plan(const program::Program& whole, replay::ProvenPass& pass) const {
  program::LentMemory lent;
  if (!pass_.keeps_graph && !passes_->saved_lasts) lent = lent_memory();
  const bool one_launch = whole.waited_streams.empty() && program::segments(whole).size() == 1;
  pass.plan =
      one_launch ? program::plan_parts(whole, lent, most_arena(whole), pass.parts) : program::plan_arena(whole, lent);
  const auto temps = std::count(pass.plan.lent.begin(), pass.plan.lent.end(), 1);
  if (temps == 0 && pass.plan.cuts.empty()) return;
  log_line(LogLevel::kDebug,
           "%s: a backward pass in %zu parts: %d of %zu temporary blocks lie in what the call saved, or in %zu rooms",
           call_.name.c_str(), pass.plan.cuts.size() + 1, static_cast<int>(temps), whole.temps.size(),
           pass.parts.rooms.size());
  for (const program::LentMemory::Block& block : lent.blocks) {
    const auto saved = static_cast<std::uint32_t>(block.block - pass_.given.size());
    pass.lent.push_back({saved, block.at, pass_.saved[saved].bytes});
  }
}

// Memory for a run of the pass in the shadow: its inputs, each time as they came, its outputs, its arena.
bool BackwardWatch::place(const program::Program& whole, replay::ProvenPass& pass,
                          std::vector<grape::replay::Shadow::Fresh>& fresh) {
  program::Bindings& bindings = pass.bindings;
  bindings.seed = call_.random.seed;
  bindings.offset = call_.random.offset_before;
  bool placed = true;
  const auto input = [&](std::uint64_t from, std::uint64_t bytes) {
    const std::uint64_t to = copy(from, bytes);
    bindings.inputs.push_back(to);
    if (to != 0) fresh.push_back({to, from, bytes});
    placed = placed && (to != 0 || bytes == 0);
  };
  const auto room = [&](std::uint64_t bytes, std::uint64_t& address) {
    if (bytes == 0) return;
    Object* const tensor = replay::new_bytes(bytes, torch::kCudaDevice, call_.work.device, address);
    if (tensor != nullptr) owned_.push_back(tensor);
    placed = placed && tensor != nullptr;
  };
  // Side by side, as a replay has them. Of a checked call some may be gone, with results that were dropped.
  const auto lend = [&] {
    bindings.lent.assign(pass.lent.empty() ? 0 : program::kMostPieces + pass.parts.rooms.size(), 0);
    std::vector<std::uint64_t> ends(bindings.lent.size(), 0);
    for (std::size_t i = 0; i < pass.parts.rooms.size(); ++i)
      ends[program::kMostPieces + i] = pass.parts.rooms[i].bytes;
    for (const replay::ProvenPass::Lent& lent : pass.lent) program::reach(ends, lent.at, lent.bytes);
    for (std::size_t i = 0; i < ends.size(); ++i) room(ends[i], bindings.lent[i]);
    for (const replay::ProvenPass::Lent& lent : pass.lent) {
      const std::uint64_t to = program::address_in(bindings.lent, lent.at), from = pass_.saved_copies[lent.saved];
      const std::uint64_t bytes = pass_.saved[lent.saved].bytes;
      if (!placed || bytes == 0) continue;
      bindings.inputs[pass_.given.size() + lent.saved] = to;
      fresh.push_back({to, from, bytes});
      placed = device::copy_on_device(call_.work.driver_stream(), to, from, bytes);
    }
  };
  for (const SeenGradient& given : pass_.given) {
    const bool came = given.as.identity != nullptr;
    input(came ? given.copy : 0, came ? given.bytes : 0);
  }
  for (std::size_t i = 0; i < pass_.saved.size(); ++i) {
    const bool lent =
        std::any_of(pass.lent.begin(), pass.lent.end(), [i](const auto& each) { return each.saved == i; });
    if (lent) bindings.inputs.push_back(0);
    if (!lent) input(pass_.saved_copies[i], pass_.saved[i].bytes);
  }
  lend();
  bindings.outputs.assign(whole.outputs.size(), 0);
  for (std::size_t i = 0; i < whole.outputs.size(); ++i) room(whole.outputs[i].bytes, bindings.outputs[i]);
  room(pass.plan.bytes, bindings.arena);
  for (const SeenGradient& seen : pass_.contributions) placed = placed && (seen.bytes == 0 || seen.copy != 0);
  return placed;
}

// Memory that the pass is given besides. What is not the module's only its kernels know of.
std::vector<grape::replay::Shadow::Watched> BackwardWatch::watched_by(const program::Program& whole) const {
  std::vector<grape::replay::Shadow::Watched> watched;
  for (const program::StaticBlock& block : whole.statics) {
    const bool hidden = std::none_of(call_.guarded.begin(), call_.guarded.end(),
                                     [&](const program::Extent& extent) { return overlap(extent, block); });
    watched.push_back({{block.address, block.bytes}, hidden});
  }
  std::sort(watched.begin(), watched.end(), [](const Range& a, const Range& b) { return a.address < b.address; });
  return watched;
}

// Runs the pass in the shadow. False: `passes_->refusal`.
bool BackwardWatch::run_in_shadow(replay::ProvenPass& pass, const std::vector<grape::replay::Shadow::Watched>& watched,
                                  std::vector<grape::replay::Shadow::Fresh> fresh, grape::replay::Shadow::Found& found,
                                  refusal::Refusal& difference) {
  refusal::Refusal& refused = passes_->refusal;
  CUstream stream = call_.work.driver_stream();
  std::vector<Range> eager;
  std::vector<device::Element> elements;
  for (const SeenGradient& seen : pass_.contributions) {
    if (seen.as.identity == nullptr || seen.bytes == 0) continue;
    eager.push_back({seen.copy, seen.bytes});
    elements.push_back(element_of(seen.as.type));
  }
  grape::replay::Shadow shadow;
  if (!shadow.before(stream, watched, refused) || !shadow.after(stream, std::move(eager), refused) ||
      !pass.steps.prepare(pass.execs, pass.program, pass.plan, pass.bindings, refused)) {
    return false;
  }
  shadow.set_fresh(std::move(fresh));
  shadow.set_elements(std::move(elements));
  return shadow.compare(stream, pass.others, pass.steps, replayed_ranges(pass), false, found, difference, refused);
}

std::unique_ptr<replay::ProvenPass> BackwardWatch::prove(replay::ObservedPass& observed, replay::PaddingTrial& trial) {
  using Found = grape::replay::Shadow::Found;
  refusal::Refusal& refused = passes_->refusal;
  const auto refuse = [&](auto form, const auto&... parts) {
    refused = refusal::make(form, parts...);
    return nullptr;
  };
  const replay::OnWorkDevice device(call_.work);
  if (!device.entered()) return refuse(refusal::no_context);
  program::Program whole = observed.program;
  if (!whole.host_data.empty()) return refuse(refusal::copies_too_much_in_all);
  std::vector<program::NoiseWord> tried;
  if (!exchange_padding(call_.work.device, trial, observed.module_epoch, whole, tried, refused)) return nullptr;
  auto pass = std::make_unique<replay::ProvenPass>();
  pass->key = observed.key;
  pass->contributions = observed.contributions;
  for (const replay::MadeContribution& made : pass->contributions) {
    pass->forms.push_back(made.form);
    pass->forms.back().sizes = made.sizes.data();
    pass->forms.back().strides = made.strides.data();
    pass->forms.back().of_base.sizes = made.base_sizes.data();
    pass->forms.back().of_base.strides = made.base_strides.data();
  }
  pass->others = observed.others;
  pass->host_words = observed.host_words;
  pass->module_epoch = observed.module_epoch;
  plan(whole, *pass);
  for (std::size_t i = 0; i < pass->forms.size() && !pass->plan.cuts.empty(); ++i) {
    const std::uint32_t block = pass->contributions[i].block;
    if (block != replay::MadeContribution::kNoBlock) pass->forms[i].part = pass->parts.outputs[block];
  }
  std::vector<grape::replay::Shadow::Fresh> fresh;
  if (!place(whole, *pass, fresh)) return refuse(refusal::no_device_memory);
  const auto watched = watched_by(whole);
  pass->program = store::KeptProgram(std::move(whole));
  auto found = Found::kDifferent;
  refusal::Refusal difference;
  if (!run_in_shadow(*pass, watched, std::move(fresh), found, difference)) return nullptr;
  if (found == Found::kNotDeterministic || found == Found::kWithinSpread) {
    if (!is_good(found)) return refuse(refusal::other_bytes_each_time, difference.text);
    note_varying(found, *pass->program.whole(), tried, trial);
  } else if (found != Found::kSame) {
    learned_ = padding().refute(observed.program, tried);
    return refuse(refusal::left_other_bytes, difference.text);
  } else {
    padding().confirm(*pass->program.whole(), tried);
    ++trial.shadows;
  }
  pass->block_epoch = memory::LiveBlocks::instance().epoch();
  if (!pass->references.take(pass->program.head())) return refuse(refusal::memory_replaced);
  return pass;
}

}  // namespace grape::python::proof
