#include "python_hooks/proof/observe.h"

#include <algorithm>
#include <new>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "compressor/program/kept_blocks.h"
#include "compressor/program/symbolise.h"
#include "python_hooks/interpreter/observers.h"
#include "python_hooks/proof/cached_proofs.h"
#include "python_hooks/proof/earlier.h"
#include "python_hooks/proof/functions.h"
#include "python_hooks/proof/proof.h"
#include "python_hooks/proof/recipes.h"
#include "python_hooks/proof/shadowed.h"
#include "python_hooks/replay/clock.h"
#include "python_hooks/replay/look_limits.h"
#include "python_hooks/replay/pause.h"
#include "python_hooks/replay/run.h"
#include "python_hooks/scopes/frame_names.h"
#include "shim/device/thread_context.h"
#include "shim/lifecycle/config.h"
#include "shim/lifecycle/log.h"
#include "shim/memory/live_blocks.h"
#include "shim/observation/region_sink.h"
#include "shim/record/api_table.h"
#include "shim/replay/shadow.h"

namespace grape::python::replay {
namespace {

constexpr std::uint32_t kMostShadows = 5;    // of one program, until its padding is known
constexpr std::uint32_t kMostPostponed = 8;  // useless observations of a signature that are not held against it

// Of what was observed of the region, as many programs as tell all that it uses beside its module's memory.
program::Program statics_of(const Region& region) {
  constexpr std::size_t kMost = 8;
  std::vector<const program::Program*> known;
  for (const auto& [hash, signature] : region.evidence.signatures) {
    if (known.size() == kMost) break;
    if (signature->proven != nullptr) known.push_back(&signature->proven->program.head());
    if (signature->observation != nullptr) known.push_back(&signature->observation->waiting.head());
  }
  program::Program all;
  for (const program::Program* each : known) {
    all.statics.insert(all.statics.end(), each->statics.begin(), each->statics.end());
  }
  return all;
}

// What the call can reach is copied where a proof may follow: it was observed before, or an earlier process proved it.
// False: `seen.refusal`.
bool copy_memory(const Region& region, const Signature& signature, const Call& call, Seen& seen) {
  CUstream stream = call.work.driver_stream();
  const grape::replay::ContextScope scope(call.work.context);
  if (!scope.entered()) return seen.refuse(refusal::no_context);
  if (signature.stage == Stage::kObserved) {
    const Observation& first = *signature.observation;
    const auto memory = reachable_memory(region, first.waiting.head(), first.globals.get(), call);
    seen.shadowed = seen.shadow.before(stream, memory, seen.refusal);
    return seen.shadowed;
  }
  if (!known_earlier(region, signature)) return true;
  refusal::Refusal ignored;
  seen.shadowed = seen.shadow.before(stream, reachable_memory(region, statics_of(region), nullptr, call), ignored);
  return true;
}

bool prepare(Region& region, Signature& signature, const Call& call, Seen& seen) {
  // What the code names was changed since the first observation: that one proves nothing any more.
  if (signature.stage == Stage::kObserved && !signature.observation->globals->holds()) {
    signature.observation = nullptr;
    signature.stage = Stage::kSeen;
  }
  seen.before = state::Before::take(*call.walk, *region.evidence.guard, lasting_argument(region), seen.refusal);
  if (seen.before == nullptr) return false;
  if (signature.stage == Stage::kObserved) signature.observation->globals->take_versions(seen.globals_before);
  seen.module_epoch = record::g_module_epoch.load(std::memory_order_acquire);
  auto& random = seen.random;
  random.known = state::random_state(call.work.device, random.seed, random.offset_before);
  seen.host_random.take();
  if (!copy_memory(region, signature, call, seen)) return false;
  if (!seen.code.begin()) return seen.refuse(refusal::observed_by_others);
  seen.nodes_before = state::autograd_nodes();
  if (seen.sink.begin(reinterpret_cast<std::uint64_t>(call.work.context))) return true;
  seen.code.end();
  seen.refusal = seen.sink.end().refusal;
  return false;
}

// What the call wrote to of what only globals hold. False: of some of that nobody knows how it was before.
bool find_writes(const state::GlobalsGuard& globals, const Seen& seen, std::vector<state::GlobalWrite>& writes) {
  std::vector<state::TensorVersion> now;
  globals.take_versions(now);
  std::unordered_map<const state::VersionCounter*, std::uint32_t> before;
  std::unordered_set<const Object*> noted;  // what autograd noted of these before the call is known
  for (const state::TensorVersion& tensor : seen.globals_before) {
    before.emplace(tensor.counter, tensor.count);
    noted.insert(tensor.tensor);
  }
  std::unordered_set<const state::VersionCounter*> met;
  for (std::uint32_t i = 0; i < now.size(); ++i) {
    const state::VersionCounter* const counter = now[i].counter;
    if (state::autograd_facts(now[i].tensor) != 0 && noted.count(now[i].tensor) == 0) return false;
    if (counter == nullptr || seen.before->knows(counter) || !met.insert(counter).second) continue;
    const auto known = before.find(counter);
    if (known == before.end()) return false;
    if (now[i].count != known->second) writes.push_back({i, now[i].count - known->second});
  }
  return true;
}

// What the call drew on the host, where a replay can draw the same. False: `seen.refusal`.
bool find_draws(Seen& seen, state::HostDraws& draws) {
  if (state::HostDraws* unseen = seen.code.unseen_draws()) draws = std::move(*unseen);
  return seen.host_random.moved_by(draws) || seen.refuse(refusal::draws_on_host);
}

using Recorded = grape::replay::RegionSink::Result;

// Is what was recorded work that a program can be made of? False: `seen.refusal`.
bool is_of_use(Region& region, bool raised, bool may_set_up, Recorded& recorded, Seen& seen) {
  const bool clean = seen.code.end();
  if (raised) return seen.refuse(refusal::raised);
  // A function may find its work in globals; what the driver's calls refuse, a device was asked for.
  region.on_gpu = region.on_gpu || recorded.record == nullptr || !recorded.record->nodes.empty();
  if (recorded.record == nullptr) {
    seen.refusal = std::move(recorded.refusal);
    seen.refusal.place = place_of_frame(recorded.frame);
  } else if (recorded.set_up && !may_set_up) {
    recorded.record = nullptr;  // what was observed before waits for the next one
    recorded.again = true;
    seen.refusal = std::move(recorded.set_up);
    seen.refusal.place = place_of_frame(recorded.set_up_frame);
  }
  seen.again = recorded.again || (recorded.record != nullptr && recorded.loaded);
  if (!clean) {
    seen.refusal = seen.code.refusal();
    seen.autograd = seen.code.ran_backward();
  }
  if (!clean || recorded.record == nullptr) return false;
  if (region.is_found() && recorded.record->nodes.size() < g_look_limits.least_work) {
    region.unfit = refusal::found_small;
  }
  return !region.of_function() || !recorded.record->nodes.empty() || seen.refuse(refusal::no_gpu_work);
}

// Did the call leave all as it was that a replay leaves as it was? False: `seen.refusal`.
bool leaves_state(Region& region, const Signature& signature, const Call& call, state::HostDraws& draws, Seen& seen) {
  program::RandomState& random = seen.random;
  if (random.known && !state::random_state(call.work.device, random.seed, random.offset_after)) return false;
  if (!find_draws(seen, draws)) {
    seen.again = seen.again || (!region.inner && state::other_threads());  // maybe one of these did
    return false;
  }
  state::GlobalsGuard* known = signature.stage == Stage::kObserved ? signature.observation->globals.get() : nullptr;
  seen.refusal = changed_by_call(region, known, call);
  if (seen.refusal) {
    if (!region.evidence.guard->holds()) note_change_of_self(region, call);
    return false;
  }
  seen.refusal = moved_in_globals(seen.globals_before);
  seen.autograd = static_cast<bool>(seen.refusal);
  return !seen.refusal;
}

// What the call did for Python, and what its code names. False: `seen.refusal`.
bool learn_facts(Region& region, const Call& call, Object* result, Seen& seen, Observation& observation) {
  observation.outcome =
      state::Outcome::learn(result, *seen.before, *region.evidence.guard, seen.refusal, &seen.autograd);
  if (observation.outcome == nullptr) return false;
  if (observation.outcome->lets_go() && seen.code.makes_weak_references()) {
    return seen.refuse(refusal::lets_go_with_weak_references);
  }
  observation.globals = state::GlobalsGuard::take(seen.code, seen.refusal);
  if (observation.globals == nullptr) return false;
  observation.writes_known = find_writes(*observation.globals, seen, observation.writes);
  const state::Sharing& sharing = observation.globals->sharing();
  sharing.relate(*call.walk, observation.shared);
  sharing.relate_by_address(*call.walk, observation.shared_addresses);
  return true;
}

// Which memory the call left, and the streams of its work. False: `seen.refusal`.
bool learn_memory(Region& region, const Call& call, bool may_set_up, program::RegionRecord& record, Seen& seen,
                  Observation& observation) {
  // A library's workspace, say. A call that keeps memory each time is found out by the second one.
  std::vector<std::uint64_t> left = blocks_without_result(record, *observation.outcome);
  std::vector<LeftCast> casts;
  if (!find_left_casts(region, call, record, left, casts)) return seen.refuse(refusal::unknown_casts);
  if (!left.empty() && may_set_up) {
    observation.set_up = program::count_as_before(record, left) || observation.set_up;
  }
  if (!make_recipes(record, *observation.outcome, casts, observation.recipes, observation.output_addresses,
                    seen.refusal)) {
    return false;
  }
  const std::uint64_t current = call.work.stream == 0 ? record::kLegacyStream : call.work.stream;
  for (std::uint32_t i = 0; i < record.streams.size(); ++i) {
    if (record.streams[i] == current) {
      observation.current_stream = i;
    } else {
      observation.others.push_back(reinterpret_cast<CUstream>(record.streams[i]));
    }
  }
  return true;
}

// Null: `seen.refusal` says why this call is of no use.
std::unique_ptr<Observation> conclude(Region& region, const Signature& signature, const Call& call, Object* result,
                                      Seen& seen) {
  Recorded recorded = seen.sink.end();
  auto observation = std::make_unique<Observation>();
  observation->nodes_made = state::autograd_nodes() - seen.nodes_before;
  const bool may_set_up = signature.stage != Stage::kObserved && !signature.set_up;
  if (!is_of_use(region, result == nullptr, may_set_up, recorded, seen) ||
      !leaves_state(region, signature, call, observation->draws, seen)) {
    return nullptr;
  }
  observation->module_epoch = seen.module_epoch;
  observation->loaded = recorded.loaded;
  observation->set_up = static_cast<bool>(recorded.set_up);
  program::RegionRecord& record = *recorded.record;
  if (!learn_facts(region, call, result, seen, *observation) ||
      !learn_memory(region, call, may_set_up, record, seen, *observation)) {
    return nullptr;
  }
  for (const state::StorageExtent& extent : call.walk->extents())
    record.inputs.push_back({extent.address, extent.bytes});
  record.random = seen.random;
  observation->program = program::symbolise(std::move(record), [](const program::FunctionInfo& f, std::uint32_t word) {
    return padding().may_be_pointer(f, word);
  });
  return observation;
}

bool refer_to_memory(Proven& proven) {
  proven.block_epoch = grape::replay::LiveBlocks::instance().epoch();
  return proven.references.take(proven.program.head());
}

// Of the only read by the host; "" where there is none, or more.
std::string place_of_read(const program::Program& program) {
  const program::RecordedNode* read = nullptr;
  for (const program::RecordedNode& node : program.nodes) {
    if (node.kind != program::NodeKind::kHostRead) continue;
    if (read != nullptr) return {};
    read = &node;
  }
  return read != nullptr ? place_of_frame(read->frame) : std::string();
}

// Its shadow was equal, but not all that differs between the runs is known to be padding: the next call tries again.
void try_again(std::unique_ptr<Trial> trial, std::unique_ptr<Proven> candidate, Observation& observation, Seen& seen) {
  if (trial->shadows >= kMostShadows) return void(seen.refuse(refusal::differs_each_time));
  trial->candidate = std::move(candidate);
  observation.trial = std::move(trial);
}

void wait_with(Signature& signature, std::unique_ptr<Observation> observation) {
  observation->lows = std::move(observation->program.lows);
  observation->waiting = store::KeptProgram(std::move(observation->program));
  observation->program = {};
  observation->waiting.put_away(programs());
  signature.observation = std::move(observation);
}

bool leave_same_casts(const Observation& last, const Observation& observation) {
  return std::equal(last.recipes.begin(), last.recipes.end(), observation.recipes.begin(), observation.recipes.end(),
                    [](const OutputRecipe& a, const OutputRecipe& b) { return a.cast == b.cast; });
}

// What two observed calls of the same program are to have in common besides, and the second one for itself. None: they
// have, but for what they did for Python.
refusal::Form<0> why_not_as_last(const Observation& last, const Observation& observation) {
  if (last.module_epoch != observation.module_epoch) return refusal::kernels_unloaded_between;
  if (last.shared_addresses != observation.shared_addresses) return refusal::argument_is_global_once;
  if (!joins(observation)) return refusal::leaves_work;
  if (!observation.writes_known) return refusal::unknown_writes;
  if (!last.draws.same_as(observation.draws)) return refusal::draws_otherwise;
  if (last.nodes_made != observation.nodes_made) return refusal::makes_other_nodes;
  return leave_same_casts(last, observation) ? refusal::Form<0>() : refusal::other_casts;
}

// The last observed call, and this one. Null: `seen.refusal` says why not.
std::unique_ptr<Proven> prove_by_last(Region& region, const Call& call, Observation& last, Observation& observation,
                                      std::unique_ptr<Trial>& trial, Seen& seen) {
  const program::Comparison comparison = program::compare(last.program, observation.program);
  if (comparison.difference != program::Difference::kNone) {
    seen.refusal = program::describe(comparison, last.program, observation.program, readable);
    const auto& nodes = observation.program.nodes;
    if (comparison.node < nodes.size()) seen.refusal.place = place_of_frame(nodes[comparison.node].frame);
    return nullptr;
  }
  if (const refusal::Form<0> unlike = why_not_as_last(last, observation)) return seen.refuse(unlike);
  if (!last.outcome->same_as(*observation.outcome, seen.refusal)) return nullptr;
  trial = trial_of(last, observation, comparison.noise);
  return prove(region, call, *trial, observation, seen);
}

// From one observation to the next stage.
void advance(Region& region, Signature& signature, const Call& call, std::unique_ptr<Observation> observation,
             Seen& seen) {
  const auto before = signature.stage == Stage::kObserved ? signature.observation->waiting.whole() : nullptr;
  std::unique_ptr<Trial> trial;
  std::unique_ptr<Proven> proven;
  if (before != nullptr) {
    signature.observation->program = *before;
    signature.observation->program.lows = std::move(signature.observation->lows);
    proven = prove_by_last(region, call, *signature.observation, *observation, trial, seen);
    seen.again = seen.again || (trial == nullptr && (signature.observation->loaded || signature.observation->set_up));
  }
  if (trial != nullptr) {
    note_earlier(region, signature, *observation, seen);
  } else if (!observation->set_up && observation->nodes_made == 0) {
    proven = prove_by_earlier(region, signature, call, *observation, trial, seen);
  }
  signature.stage = Stage::kObserved;
  signature.set_up = signature.set_up || observation->set_up;
  const auto program = proven != nullptr ? proven->program.whole() : nullptr;
  const auto unknown = program != nullptr ? unknown_padding(*trial, *program) : std::vector<program::NoiseWord>();
  if (!unknown.empty()) {
    log_line(LogLevel::kDebug, "%s: padding, or not, of %zu words; the first one: %s", region.name.c_str(),
             unknown.size(), program::describe(*program, unknown.front()).c_str());
    try_again(std::move(trial), std::move(proven), *observation, seen);
    return wait_with(signature, std::move(observation));
  }
  if (seen.learned) {  // the next two calls are told apart anew
    signature.stage = Stage::kSeen;
    signature.observation = nullptr;
    return;
  }
  if (program == nullptr || !refer_to_memory(*proven)) return wait_with(signature, std::move(observation));
  const bool portable = observation->draws.empty() && observation->nodes_made == 0;
  CachedProofs* proofs = portable ? CachedProofs::in_use() : nullptr;
  if (proofs != nullptr) {
    proofs->add(name_of(region, signature, *observation, seen), observation->outcome->digest(), observation->program,
                padding());
  }
  proven->read_place = place_of_read(*program);
  static_cast<CallFacts&>(*proven) = std::move(*observation);
  signature.observation = nullptr;
  proven->program.put_away(programs());
  signature.proven = std::move(proven);
  signature.stage = Stage::kProven;
}

// `again`: for what may not come again.
void note_useless(Region& region, Signature& signature, bool again) noexcept {
  if (again && ++signature.postponed <= kMostPostponed) return;
  ++signature.failures;
  ++region.budget.failures;
}

}  // namespace

Object* observe(Region& region, Signature& signature, const Call& call) {
  // As the call's first work would: what comes before needs one. Where there is none, that is refused, with a reason.
  if (region.on_gpu && call.work.context == nullptr) grape::replay::have_context(call.work.device);
  if (signature.stage == Stage::kObserved || proven_earlier(region, signature, call)) {
    const Settled settled = let_device_finish(region, call);
    if (settled == Settled::kBusy) {
      note_useless(region, signature, true);
      region.reasons.add(refusal::make(refusal::never_idle));
    }
    if (settled != Settled::kIdle) return run_as_it_is(call);
  }
  const double started = now();
  Seen seen;
  if (!prepare(region, signature, call, seen)) {
    region.reasons.add(seen.refusal);
    note_useless(region, signature, false);
    return run_as_it_is(call);
  }
  ++region.statistics.observed;
  const double called = now();
  Object* result = run_as_it_is(call);
  const KeepException keep;
  const double begin = now();
  region.times.observed += begin - called;
  Payoff::observed(signature.times, begin - called);
  ++region.times.observed_calls;
  try {
    std::unique_ptr<Observation> observation = conclude(region, signature, call, result, seen);
    if (observation != nullptr) advance(region, signature, call, std::move(observation), seen);
  } catch (const std::bad_alloc&) {
    seen.refusal = refusal::make(refusal::no_host_memory);
  }
  log_line(LogLevel::kDebug, "%s: looked at for %.2f ms before and %.2f ms after a call of %.2f ms",
           region.name.c_str(), (called - started) * 1e3, (now() - begin) * 1e3, (begin - called) * 1e3);
  if (!seen.refusal) {
    region.budget.useful = true;
    signature.failures = region.budget.failures = 0;
  } else if (result != nullptr) {
    if (call.dispatch.grad_enabled && seen.autograd) {
      region.autograd.begin();
      region.free_of_gradients = false;
    } else {
      note_useless(region, signature, seen.again || refusal::is_passing(seen.refusal.id));
    }
    region.reasons.add(seen.refusal);
    log_line(LogLevel::kDebug, "%s: not replayed: %s%s%s", region.name.c_str(), seen.refusal.text.c_str(),
             seen.refusal.place.empty() ? "" : ", at ", seen.refusal.place.c_str());
  }
  return result;
}

}  // namespace grape::python::replay
