#include "python_hooks/replay/observe.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

#include "compressor/program/padding.h"
#include "compressor/program/symbolise.h"
#include "python_hooks/frame_names.h"
#include "python_hooks/replay/clock.h"
#include "python_hooks/replay/pause.h"
#include "python_hooks/replay/recipes.h"
#include "python_hooks/replay/run.h"
#include "python_hooks/replay/shadowed.h"
#include "shim/lifecycle/config.h"
#include "shim/lifecycle/log.h"
#include "shim/record/api_table.h"
#include "shim/replay/live_blocks.h"
#include "shim/replay/region_sink.h"
#include "shim/replay/shadow.h"

namespace grape::python::replay {
namespace {

using Range = grape::replay::Shadow::Range;

constexpr std::uint32_t kMostShadows = 5;    // of one program, until its padding is known
constexpr std::uint32_t kMostPostponed = 8;  // useless observations of a signature that are not held against it

// What one observed call was, and what became of it.
struct Seen {
  state::ExecutedCode code;
  grape::replay::RegionSink sink;
  grape::replay::Shadow shadow;
  std::unique_ptr<state::Before> before;
  program::RandomState random;
  std::uint64_t host_random = 0;
  std::uint32_t module_epoch = 0;
  bool autograd = false;      // of no use because autograd is at work
  bool again = false;         // of no use this time, but maybe next time: kernels were loaded, ...
  std::string reason, place;  // where it stands in the program, if the reason does not say so itself
};

bool prepare(Region& region, Signature& signature, const Call& call, Seen& seen) {
  // What the code names was changed since the first observation: that one proves nothing any more.
  if (signature.stage == Stage::kObserved && !signature.observation->globals->holds()) {
    signature.observation = nullptr;
    signature.stage = Stage::kSeen;
  }
  seen.before = state::Before::take(*call.walk, seen.reason);
  if (seen.before == nullptr) return false;
  seen.module_epoch = record::g_module_epoch.load(std::memory_order_acquire);
  auto& random = seen.random;
  random.known = state::random_state(call.dispatch.device, random.seed, random.offset_before);
  seen.host_random = state::host_random_hash();
  if (signature.stage == Stage::kObserved) {
    auto* stream = reinterpret_cast<CUstream>(call.dispatch.stream);
    const Observation& first = *signature.observation;
    const auto memory = reachable_memory(region, first.waiting.head(), first.globals.get(), call);
    if (!seen.shadow.before(stream, memory, seen.reason)) return false;
  }
  if (!seen.code.begin()) {
    seen.reason = "another profiler or debugger is at work on this thread";
    return false;
  }
  if (seen.sink.begin()) return true;
  seen.code.end();
  seen.reason = seen.sink.end().reason;
  return false;
}

// Null: `seen.reason` says why this call is of no use.
std::unique_ptr<Observation> conclude(Region& region, const Signature& signature, const Call& call, Object* result,
                                      Seen& seen) {
  auto recorded = seen.sink.end();
  const bool clean = seen.code.end();
  if (result == nullptr) {
    seen.reason = "the call raised an exception";
    return nullptr;
  }
  if (recorded.record == nullptr) {
    seen.reason = std::move(recorded.reason);
    seen.place = place_of_frame(recorded.frame);
  }
  // A function may find its work in globals; what the driver's calls refuse, a device was asked for.
  region.on_gpu = region.on_gpu || recorded.record == nullptr || !recorded.record->nodes.empty();
  seen.again = recorded.again;
  if (!clean) {
    seen.reason = seen.code.reason();
    seen.autograd = seen.code.ran_backward();
    seen.place.clear();
  }
  if (!clean || recorded.record == nullptr) return nullptr;
  if (region.function && recorded.record->nodes.empty()) {
    seen.reason = "does no work on a GPU";
    return nullptr;
  }
  program::RandomState& random = seen.random;
  if (random.known && !state::random_state(call.dispatch.device, random.seed, random.offset_after)) return nullptr;
  if (state::host_random_hash() != seen.host_random) {
    seen.reason = "draws random numbers on the host";
    return nullptr;
  }
  state::GlobalsGuard* known = signature.stage == Stage::kObserved ? signature.observation->globals.get() : nullptr;
  seen.reason = changed_by_call(region, known, call);
  if (!seen.reason.empty()) return nullptr;
  auto observation = std::make_unique<Observation>();
  observation->module_epoch = seen.module_epoch;
  observation->outcome =
      state::Outcome::learn(result, *call.walk, *seen.before, *region.guard, seen.reason, &seen.autograd);
  if (observation->outcome == nullptr) return nullptr;
  observation->globals = state::GlobalsGuard::take(seen.code, seen.reason);
  if (observation->globals == nullptr) return nullptr;
  const state::Sharing& sharing = observation->globals->sharing();
  sharing.relate(*call.walk, observation->shared);
  sharing.relate_by_address(*call.walk, observation->shared_addresses);
  program::RegionRecord& record = *recorded.record;
  for (const state::StorageExtent& extent : call.walk->extents())
    record.inputs.push_back({extent.address, extent.bytes});
  record.random = random;
  if (!make_recipes(record, *observation->outcome, observation->recipes, observation->output_addresses, seen.reason)) {
    return nullptr;
  }
  const std::uint64_t current = call.dispatch.stream == 0 ? record::kLegacyStream : call.dispatch.stream;
  for (std::uint32_t i = 0; i < record.streams.size(); ++i) {
    if (record.streams[i] == current) {
      observation->current_stream = i;
    } else {
      observation->others.push_back(reinterpret_cast<CUstream>(record.streams[i]));
    }
  }
  observation->program = program::symbolise(std::move(record));
  return observation;
}

// What is known to be padding, in all regions. Never destroyed.
program::PaddingKnowledge& padding() {
  static auto& knowledge = *new program::PaddingKnowledge;
  return knowledge;
}

// Memory for pointers that should be padding: never freed, alive as long as the process.
std::uint64_t harmless_memory(std::int32_t device) noexcept {
  static std::unordered_map<std::int32_t, std::uint64_t> addresses;
  std::uint64_t& address = addresses[device];
  if (address != 0) return address;
  constexpr std::uint64_t kBytes = 1 << 20;
  new_bytes(kBytes, kCuda, device, address);
  return address;
}

// What was changed before a read by the host, or may have been: should the value be another one, eager runs from the
// start, and finds it changed.
enum class BeforeReads : std::uint8_t { kNothing, kHidden, kVisible };

BeforeReads changed_before_reads(const program::Program& program, const Call& call,
                                 const grape::replay::Shadow& shadow) {
  const auto last_read = std::find_if(program.nodes.rbegin(), program.nodes.rend(), [](const program::RecordedNode& n) {
    return n.kind == program::NodeKind::kHostRead;
  });
  BeforeReads found = BeforeReads::kNothing;
  if (last_read == program.nodes.rend()) return found;
  for (const program::Reference& reference : program.references) {
    if (reference.word >= last_read->words_at) break;
    Range used;
    if (reference.role == program::Role::kStatic) {
      used = {program.statics[reference.block].address, program.statics[reference.block].bytes};
    } else if (reference.role == program::Role::kInput) {
      used = {call.walk->extents()[reference.block].address, call.walk->extents()[reference.block].bytes};
    }
    for (std::size_t i = 0; i < shadow.watched().size(); ++i) {
      const Range& range = shadow.watched()[i];
      const bool overlap = range.address < used.address + used.bytes && used.address < range.address + range.bytes;
      if (!overlap || !shadow.changed(i)) continue;
      if (!shadow.hidden(i)) return BeforeReads::kVisible;
      found = BeforeReads::kHidden;
    }
  }
  return found;
}

// The observed runs of a program up to `second`, which is the same as the last one but for `noise`.
std::unique_ptr<Trial> trial_of(Observation& last, const Observation& second, const std::vector<std::uint32_t>& noise) {
  std::unique_ptr<Trial> trial = last.trial != nullptr ? std::move(last.trial) : std::make_unique<Trial>();
  auto& runs = trial->runs;
  const auto add = [&](const program::Program& run) {
    const program::Comparison comparison = program::compare(run, second.program);
    const bool same = comparison.difference == program::Difference::kNone;
    if (same) program::add_noise(trial->noise, run, second.program, comparison.noise);
    return same;
  };
  runs.erase(std::remove_if(runs.begin(), runs.end(), [&](const program::Program& run) { return !add(run); }),
             runs.end());
  program::add_noise(trial->noise, last.program, second.program, noise);
  runs.push_back(std::move(last.program));
  return trial;
}

// Is all that differs between the runs padding? Two shadow replays must have had other bytes there: of this program, or
// of any with the same kernel.
bool padding_known(const Trial& trial, const program::Program& program) {
  const bool often = trial.shadows >= program::PaddingKnowledge::kEnough;
  return padding().unknown(program, trial.noise, often ? 1 : program::PaddingKnowledge::kEnough).empty();
}

// Another observed call told the same program: its graph runs in the shadow, with the padding of the others. Null:
// `seen.reason` says why not.
std::unique_ptr<Proven> prove(Region& region, const Call& call, Trial& trial, Observation& second, Seen& seen) {
  auto* stream = reinterpret_cast<CUstream>(call.dispatch.stream);
  let_call_finish(region, call, second.others);
  if (!seen.shadow.after(stream,
                         output_ranges(second.program, second.output_addresses, second.recipes, *second.outcome),
                         seen.reason)) {
    return nullptr;
  }
  const BeforeReads before_reads = changed_before_reads(second.program, call, seen.shadow);
  if (before_reads == BeforeReads::kVisible) {
    seen.reason = "changes memory of its arguments or its module before it reads a value on the host";
    return nullptr;
  }
  auto proven = std::make_unique<Proven>();
  program::Program whole = second.program;
  proven->others = second.others;
  proven->module_epoch = second.module_epoch;
  const std::uint64_t harmless = trial.noise.empty() ? 1 : harmless_memory(call.dispatch.device);
  if (harmless == 0) {
    seen.reason = "no device memory";
    return nullptr;
  }
  padding().set_module_epoch(second.module_epoch);
  std::vector<const program::Program*> donors;
  for (const program::Program& run : trial.runs) donors.push_back(&run);
  const std::vector<program::NoiseWord> tried = program::settle_noise(whole, donors, trial.noise, padding(), harmless);
  proven->plan = program::plan_arena(whole);
  program::Bindings& bindings = proven->bindings;
  bindings.outputs.resize(whole.outputs.size());
  for (const state::StorageExtent& extent : call.walk->extents()) bindings.inputs.push_back(extent.address);
  bindings.seed = seen.random.seed;
  bindings.offset = seen.random.offset_before;
  std::vector<Object*> tensors;
  if (!reserve_arena(region, call.dispatch, proven->plan.bytes, bindings.arena) ||
      !make_outputs(*second.outcome, second.recipes, tensors, bindings.outputs)) {
    seen.reason = "no device memory";
    return nullptr;
  }
  if (!place_host_data(*proven, whole, call.dispatch, seen.reason)) {
    drop(tensors);
    return nullptr;
  }
  const double planned = now();
  proven->program = store::KeptProgram(std::move(whole));
  const std::shared_ptr<const program::Program> program = proven->program.whole();
  proven->pool = &region.execs;
  if (trial.candidate != nullptr) {
    region.execs.hand_over(trial.candidate->program, proven->program, proven->plan, bindings);
    trial.candidate = nullptr;
  }
  const bool prepared = proven->steps.prepare(region.execs, proven->program, proven->plan, bindings, seen.reason);
  std::string difference;
  auto found = grape::replay::Shadow::Found::kDifferent;
  const bool ran =
      prepared && seen.shadow.compare(stream, proven->others, proven->steps,
                                      output_ranges(second.program, bindings.outputs, second.recipes, *second.outcome),
                                      before_reads == BeforeReads::kHidden, found, difference, seen.reason);
  drop(tensors);
  log_line(LogLevel::kDebug, "%s: %zu nodes built and run in the shadow in %.2f ms", region.name.c_str(),
           program->nodes.size(), (now() - planned) * 1e3);
  if (!ran) return nullptr;
  if (found == grape::replay::Shadow::Found::kNotDeterministic) {
    if (config().allow_nondeterministic) {
      trial.noise.clear();  // its shadows tell nothing about padding
      return proven;
    }
    seen.reason = "gives other bytes each time it runs, on the same memory (" + difference +
                  "): GRAPE_ALLOW_NONDETERMINISTIC=1 replays it nevertheless";
    return nullptr;
  }
  if (found != grape::replay::Shadow::Found::kSame) {
    padding().refute(*program, tried);
    seen.reason = "a graph of the same work left other bytes than the call itself: " + difference;
    return nullptr;
  }
  padding().confirm(*program, tried);
  ++trial.shadows;
  return proven;
}

bool refer_to_memory(Proven& proven) {
  proven.block_epoch = grape::replay::LiveBlocks::instance().epoch();
  return proven.references.take(proven.program.head());
}

// The kernel's name as its author wrote it.
std::string readable(const std::string& name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string result = status == 0 && text != nullptr ? text : name;
  std::free(text);
  return result;
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

// Does all work end on the current stream? Then whoever waits for the stream that the graph is launched on waits for
// all of it, as in the eager call.
bool joins(const Observation& observation) {
  const program::Program& program = observation.program;
  std::vector<bool> followed(program.nodes.size(), false);
  for (const std::uint32_t node : program.after) followed[node] = true;
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    if (!followed[i] && program.nodes[i].stream != observation.current_stream) return false;
  }
  return true;
}

// Its shadow was equal, but not all that differs between the runs is known to be padding: the next call tries again.
void try_again(std::unique_ptr<Trial> trial, std::unique_ptr<Proven> candidate, Observation& observation, Seen& seen) {
  if (trial->shadows >= kMostShadows) {
    seen.reason = "what its kernels get differs from call to call, each time in other places: padding, or not";
    return;
  }
  trial->candidate = std::move(candidate);
  observation.trial = std::move(trial);
}

void wait_with(Signature& signature, std::unique_ptr<Observation> observation) {
  observation->waiting = store::KeptProgram(std::move(observation->program));
  observation->program = {};
  observation->waiting.put_away(programs());
  signature.observation = std::move(observation);
}

// From one observation to the next stage.
void advance(Region& region, Signature& signature, const Call& call, std::unique_ptr<Observation> observation,
             Seen& seen) {
  const bool first = signature.stage != Stage::kObserved;
  const auto before = first ? nullptr : signature.observation->waiting.whole();
  if (before == nullptr) {
    wait_with(signature, std::move(observation));
    signature.stage = Stage::kObserved;
    return;
  }
  Observation& last = *signature.observation;
  last.program = *before;
  const program::Comparison comparison = program::compare(last.program, observation->program);
  std::unique_ptr<Trial> trial;
  std::unique_ptr<Proven> proven;
  if (comparison.difference != program::Difference::kNone) {
    seen.reason = program::describe(comparison, last.program, observation->program, readable);
    const auto& nodes = observation->program.nodes;
    if (comparison.node < nodes.size()) seen.place = place_of_frame(nodes[comparison.node].frame);
  } else if (last.module_epoch != observation->module_epoch) {
    seen.reason = "kernels were unloaded between the observed calls";
  } else if (last.shared_addresses != observation->shared_addresses) {
    seen.reason = "an argument is what a global holds in one call, and not in the other";
  } else if (!joins(*observation)) {
    seen.reason = "leaves work on another stream that the current one does not wait for";
  } else if (last.outcome->same_as(*observation->outcome, seen.reason)) {
    trial = trial_of(last, *observation, comparison.noise);
    proven = prove(region, call, *trial, *observation, seen);
  }
  const auto program = proven != nullptr ? proven->program.whole() : nullptr;
  if (program != nullptr && !padding_known(*trial, *program)) {
    try_again(std::move(trial), std::move(proven), *observation, seen);
    return wait_with(signature, std::move(observation));
  }
  if (program == nullptr || !refer_to_memory(*proven)) return wait_with(signature, std::move(observation));
  proven->read_place = place_of_read(*program);
  proven->globals = std::move(observation->globals);
  proven->shared = std::move(observation->shared);
  proven->outcome = std::move(observation->outcome);
  proven->recipes = std::move(observation->recipes);
  signature.observation = nullptr;
  proven->program.put_away(programs());
  signature.proven = std::move(proven);
  signature.stage = Stage::kProven;
}

}  // namespace

store::Store& programs() {
  static auto& store = *new store::Store;
  return store;
}

Object* observe(Region& region, Signature& signature, const Call& call) {
  // The shadow waits for the device, and a function that the device calls may need the GIL.
  if (signature.stage == Stage::kObserved && !let_device_finish(region, call, signature.observation->others)) {
    return call.eager(call.function, call.arguments, call.count, call.names);
  }
  const KeptTensors kept(*call.walk);
  const double started = now();
  Seen seen;
  if (!prepare(region, signature, call, seen)) {
    region.reasons.add(seen.reason, seen.place);
    ++signature.failures;
    ++region.failures;
    return call.eager(call.function, call.arguments, call.count, call.names);
  }
  ++region.observed;
  const double called = now();
  Object* result = call.eager(call.function, call.arguments, call.count, call.names);
  const KeepException keep;
  const double begin = now();
  region.times.observed += begin - called;
  Payoff::observed(signature.times, begin - called);
  ++region.times.observed_calls;
  try {
    std::unique_ptr<Observation> observation = conclude(region, signature, call, result, seen);
    if (observation != nullptr) advance(region, signature, call, std::move(observation), seen);
  } catch (const std::bad_alloc&) {
    seen.reason = "no host memory";
  }
  log_line(LogLevel::kDebug, "%s: looked at for %.2f ms before and %.2f ms after a call of %.2f ms",
           region.name.c_str(), (called - started) * 1e3, (now() - begin) * 1e3, (begin - called) * 1e3);
  if (seen.reason.empty()) {
    region.useful = true;
    signature.failures = region.failures = 0;
  } else if (result != nullptr) {
    if (call.dispatch.grad_enabled && seen.autograd) {
      region.autograd.begin();
    } else if (!seen.again || ++signature.postponed > kMostPostponed) {
      ++signature.failures;
      ++region.failures;
    }
    region.reasons.add(seen.reason, seen.place);
    log_line(LogLevel::kDebug, "%s: not replayed: %s", region.name.c_str(), seen.reason.c_str());
  }
  return result;
}

}  // namespace grape::python::replay
