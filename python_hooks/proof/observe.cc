#include "python_hooks/proof/observe.h"

#include <algorithm>
#include <new>
#include <utility>

#include "python_hooks/proof/cached_evidence.h"
#include "python_hooks/proof/cached_proofs.h"
#include "python_hooks/proof/conclude.h"
#include "python_hooks/proof/functions.h"
#include "python_hooks/proof/observe_backward.h"
#include "python_hooks/proof/predicted.h"
#include "python_hooks/proof/proof.h"
#include "python_hooks/proof/shadow_inputs.h"
#include "python_hooks/replay/clock.h"
#include "python_hooks/replay/gil_release.h"
#include "python_hooks/replay/run.h"
#include "python_hooks/scopes/frame_names.h"
#include "shim/device/thread_context.h"
#include "shim/driver/kernel_content.h"
#include "shim/lifecycle/config.h"
#include "shim/lifecycle/log.h"
#include "shim/memory/live_blocks.h"
#include "shim/observation/dead_stack.h"
#include "shim/observation/region_sink.h"
#include "shim/record/api_table.h"
#include "shim/replay/shadow.h"

namespace grape::python::proof {
namespace {

constexpr std::uint32_t kMostShadows = 5;    // of one program, until its padding is known
constexpr std::uint32_t kMostPostponed = 8;  // useless observations of a signature that are not held against it

// Of what was observed of the region, as many programs as tell all that it uses beside its module's memory.
program::Program statics_of(const replay::Region& region) {
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
// False: `observed.refusal`.
bool copy_memory(const replay::Region& region, const replay::Signature& signature, const replay::Call& call,
                 ObservedCall& observed) {
  CUstream stream = call.work.driver_stream();
  const device::ContextScope scope(call.work.context);
  if (!scope.entered()) return observed.refuse(refusal::no_context);
  if (signature.stage == replay::Stage::kObserved) {
    const replay::Observation& first = *signature.observation;
    const auto memory = reachable_memory(region, first.waiting.head(), first.globals.get(), call);
    if (!claim_copies(region, call, memory, observed.room, observed.refusal)) return false;
    observed.shadowed = observed.shadow.before(stream, memory, observed.refusal);
    return observed.shadowed;
  }
  if (!observed.member.may_be_proven() && !known_in_cache(region, signature)) return true;
  refusal::Refusal ignored;
  observed.shadowed =
      observed.shadow.before(stream, reachable_memory(region, statics_of(region), nullptr, call), ignored);
  return true;
}

bool prepare(replay::Region& region, replay::Signature& signature, const replay::Call& call, ObservedCall& observed) {
  // What the code names was changed since the first observation: that one proves nothing any more.
  if (signature.stage == replay::Stage::kObserved && !signature.observation->globals->holds()) {
    signature.observation = nullptr;
    signature.stage = replay::Stage::kSeen;
  }
  if (region.budget.costs == nullptr) region.budget.costs = std::make_shared<replay::LookCosts>();
  observed.before = effects::ArgumentSnapshot::take(*call.walk, *region.evidence.guard, lasting_argument(region),
                                                    observed.refusal, call.steps_at != replay::Call::kNone);
  if (observed.before == nullptr) return false;
  if (signature.stage == replay::Stage::kObserved)
    signature.observation->globals->take_versions(observed.globals_before);
  observed.module_epoch = record::g_module_epoch.load(std::memory_order_acquire);
  auto& random = observed.random;
  random.known = torch::random_state(call.work.device, random.seed, random.offset_before);
  observed.host_random.take();
  observed.trains = replay::may_return_gradients(call.dispatch);
  if (observed.trains && !observed.targets.take(region, call, observed.refusal)) return false;
  if (!copy_memory(region, signature, call, observed)) return false;
  if (!observed.code.begin()) return observed.refuse(refusal::observed_by_others);
  observed.nodes_before = torch::autograd_nodes();
  if (observed.sink.begin(reinterpret_cast<std::uint64_t>(call.work.context))) return true;
  observed.code.end();
  observed.refusal = observed.sink.end().refusal;
  return false;
}

// Of the only read by the host; "" where there is none, or more.
std::string place_of_read(const program::Program& program) {
  const program::RecordedNode* read = nullptr;
  for (const program::RecordedNode& node : program.nodes) {
    if (node.kind != program::NodeKind::kHostRead) continue;
    if (read != nullptr) return {};
    read = &node;
  }
  return read != nullptr ? scopes::place_of_frame(read->frame) : std::string();
}

// Its shadow was equal, but not all that differs between the runs is known to be padding: the next call tries again.
void try_again(std::unique_ptr<replay::PaddingTrial> trial, std::unique_ptr<replay::Proven> candidate,
               replay::Observation& observation, ObservedCall& observed) {
  if (trial->shadows >= kMostShadows) return void(observed.refuse(refusal::differs_each_time));
  trial->candidate = std::move(candidate);
  observation.trial = std::move(trial);
}

void wait_with(replay::Signature& signature, std::unique_ptr<replay::Observation> observation) {
  observation->lows = std::move(observation->program.lows);
  observation->waiting = store::KeptProgram(std::move(observation->program));
  observation->program = {};
  observation->waiting.put_away(replay::programs());
  signature.observation = std::move(observation);
}

bool leave_same_casts(const replay::Observation& last, const replay::Observation& observation) {
  return std::equal(last.recipes.begin(), last.recipes.end(), observation.recipes.begin(), observation.recipes.end(),
                    [](const replay::OutputRecipe& a, const replay::OutputRecipe& b) { return a.cast == b.cast; });
}

// What two observed calls of the same program are to have in common besides, and the second one for itself. None: they
// have, but for what they did for Python.
refusal::Form<0> why_not_as_last(const replay::Observation& last, const replay::Observation& observation) {
  if (last.module_epoch != observation.module_epoch) return refusal::kernels_unloaded_between;
  if (last.host_words != observation.host_words) return refusal::library_memory_changed;
  if (last.shared_addresses != observation.shared_addresses) return refusal::argument_is_global_once;
  if (!joins(observation)) return refusal::leaves_work;
  if (!observation.writes_known) return refusal::unknown_writes;
  if (last.nodes_made != observation.nodes_made || last.differentiated != observation.differentiated)
    return refusal::makes_other_nodes;
  const bool borders = last.border != nullptr && observation.border != nullptr;
  if (borders ? !last.border->same_as(*observation.border) : last.border != observation.border) {
    return refusal::other_border;
  }
  return leave_same_casts(last, observation) ? refusal::Form<0>() : refusal::other_casts;
}

// The last observed call, and this one. Null: `observed.refusal` says why not.
std::unique_ptr<replay::Proven> prove_by_last(replay::Region& region, const replay::Call& call,
                                              replay::Observation& last, replay::Observation& observation,
                                              std::unique_ptr<replay::PaddingTrial>& trial, ObservedCall& observed) {
  if (!last.draws.same_as(observation.draws)) return observed.refuse(refusal::draws_otherwise);
  const auto settled = program::settle_numbers(last.program, last.numbers, observation.program, observation.numbers);
  if (settled == program::Settled::kUnlike) return observed.refuse(refusal::numbers_tell_nothing);
  const program::Comparison comparison = program::compare_and_settle(last.program, observation.program);
  if (comparison.difference != program::Difference::kNone) {
    observed.refusal = program::describe(comparison, last.program, observation.program, readable);
    const auto& nodes = observation.program.nodes;
    if (comparison.node < nodes.size()) observed.refusal.place = scopes::place_of_frame(nodes[comparison.node].frame);
    return nullptr;
  }
  if (const refusal::Form<0> unlike = why_not_as_last(last, observation)) return observed.refuse(unlike);
  if (!last.outcome->same_as(*observation.outcome, observed.refusal)) return nullptr;
  if (settled == program::Settled::kLearned) return nullptr;  // without a refusal: the next call is to show it again
  padding().set_module_epoch(observed.module_epoch);
  observed.learned = padding().note_pointers(last.program, observation.program);
  if (observed.learned) return nullptr;
  if (observation.border != nullptr) note_varying_values(*last.border, *observation.border);
  trial = trial_of(last, observation, comparison.noise);
  return prove(region, call, *trial, observation, observed);
}

// From one observation to the next stage.
void advance(replay::Region& region, replay::Signature& signature, const replay::Call& call,
             std::unique_ptr<replay::Observation> observation, ObservedCall& observed) {
  const auto before = signature.stage == replay::Stage::kObserved ? signature.observation->waiting.whole() : nullptr;
  const bool foretold = note_member(region, *observation, observed);
  signature.foretold = false;
  std::unique_ptr<replay::PaddingTrial> trial;
  std::unique_ptr<replay::Proven> proven;
  if (before != nullptr) {
    signature.observation->program = *before;
    signature.observation->program.lows = std::move(signature.observation->lows);
    proven = prove_by_last(region, call, *signature.observation, *observation, trial, observed);
    observed.again =
        observed.again || (trial == nullptr && (signature.observation->loaded || signature.observation->set_up));
  }
  if (trial != nullptr) {
    note_cached(region, signature, *observation, observed);
  } else if (!observation->set_up && observation->nodes_made == 0 && observation->numbers.numbers.empty()) {
    proven = prove_by_cache(region, signature, call, *observation, trial, observed);
  }
  if (foretold && trial == nullptr && before == nullptr) {
    proven = prove_by_family(region, call, *observation, trial, observed);
    signature.foretold = proven != nullptr;
  }
  // Passes are told apart by what they are given, so all that are kept are of calls with one program and one border.
  if (trial == nullptr) signature.passes = nullptr;
  signature.stage = replay::Stage::kObserved;
  signature.set_up = signature.set_up || observation->set_up;
  const auto program = proven != nullptr ? proven->program.whole() : nullptr;
  const auto unknown = program != nullptr ? unknown_padding(*trial, *program) : std::vector<program::NoiseWord>();
  if (!unknown.empty()) {
    log_line(LogLevel::kDebug, "%s: padding, or not, of %zu words; the first one: %s", region.name.c_str(),
             unknown.size(), program::describe(*program, unknown.front()).c_str());
    await_backward(region, signature, call, *observation, proven.get(), observed);
    try_again(std::move(trial), std::move(proven), *observation, observed);
    return wait_with(signature, std::move(observation));
  }
  if (observed.learned) {  // the next two calls are told apart anew
    signature.stage = replay::Stage::kSeen;
    signature.observation = nullptr;
    return;
  }
  if (program != nullptr) proven->block_epoch = memory::LiveBlocks::instance().epoch();
  const bool holds = program != nullptr && proven->references.take(proven->program.head());
  await_backward(region, signature, call, *observation, holds ? proven.get() : nullptr, observed);
  if (!holds) {
    return wait_with(signature, std::move(observation));
  }
  const bool portable = observation->draws.empty() && observation->nodes_made == 0 && observation->host_words.empty() &&
                        observation->numbers.numbers.empty();
  CachedProofs* proofs = portable ? CachedProofs::in_use() : nullptr;
  if (proofs != nullptr) {
    proofs->add(name_of(region, signature, *observation, observed), observation->outcome->digest(),
                observation->program, padding());
  }
  proven->read_place = place_of_read(*program);
  static_cast<replay::CallFacts&>(*proven) = std::move(*observation);
  proven->used_numbers = program::used_numbers(*program, proven->numbers.numbers.size());
  signature.observation = nullptr;
  proven->program.put_away(replay::programs());
  signature.proven = std::move(proven);
  region.budget.proven();
  const bool awaits = replay::awaits_backward(signature.proven->border.get());
  signature.proven->passes = awaits ? signature.passes : nullptr;
  signature.stage = awaits ? replay::Stage::kAwaitsBackward : replay::Stage::kProven;
}

// `again`: for what may not come again.
void note_useless(replay::Region& region, replay::Signature& signature, bool again) noexcept {
  if (again && ++signature.postponed <= kMostPostponed) return;
  ++signature.failures;
  ++region.budget.failures;
}

// A call that cannot be observed now. Its time is its own.
Object* run_unobserved(replay::Region& region, const replay::Call& call) {
  const double begin = replay::now();
  Object* result = replay::run_as_it_is(call);
  region.times.eager += replay::now() - begin;
  ++region.times.eager_calls;
  return result;
}

// Where operators leave addresses of the stack, these are the same in each observed call.
Object* run_at_step(const replay::Call& call) {
  struct Run {
    const replay::Call& call;
    Object* result;
  } run{call, nullptr};
  grape::observation::call_at_step(
      [](void* of) {
        Run& its = *static_cast<Run*>(of);
        its.result = replay::run_as_it_is(its.call);
      },
      &run);
  return run.result;
}

// What an observed call had in common with the one before, and what it had not.
void note_reads(replay::Region& region, const refusal::Refusal& refusal) noexcept {
  const bool otherwise = refusal.id == refusal::RefusalId::other_read_value;
  if (otherwise || !refusal) region.budget.read.note(!otherwise);
}

// Seconds that an observed call took longer than it would have. `times`: of its signature. One that loaded kernels
// tells nothing.
double recording_of(const replay::CallTimes& times, double seconds, bool loaded) noexcept {
  if (loaded) return 0;
  if (times.eager == replay::CallTimes::kNone) return replay::kRecording * seconds;
  return std::clamp(seconds - times.eager, 0.1 * seconds, (1 - replay::kOfObserved) * seconds);
}

// `proves`: a proof was tried. `beside`: seconds before and after the call.
void note_cost(replay::Region& region, bool proves, double beside, double recording) {
  region.budget.recording += recording;
  replay::LookCosts& costs = *region.budget.costs;
  replay::LookCosts::note(proves ? costs.proof : costs.first, beside + recording);
}

// What the look says of the signature and of the region. `returned`: the call raised nothing.
void note_outcome(replay::Region& region, replay::Signature& signature, const replay::Call& call,
                  const ObservedCall& observed, bool compares, bool returned) {
  if (!observed.refusal) {
    region.budget.useful = true;
    signature.failures = 0;
    // A first look at other arguments tells nothing of what keeps the region from being replayed.
    if (compares || signature.stage == replay::Stage::kProven) region.budget.failures = 0;
  } else if (returned) {
    const bool passing = observed.again || refusal::is_passing(observed.refusal.id);
    if (region.inner) replay::Siblings::refused(type_of(call.root), passing);
    // With GRAPE_STRICT nothing rests: such calls are given up like others.
    const bool rests = !config().strict || !config().autograd;
    if (rests && call.dispatch.grad_enabled && observed.autograd) {
      region.autograd.begin();
      region.free_of_gradients = false;
    } else {
      note_useless(region, signature, passing);
    }
    region.reasons.add(observed.refusal);
    log_line(LogLevel::kDebug, "%s: not replayed: %s%s%s", region.name.c_str(), observed.refusal.text.c_str(),
             observed.refusal.place.empty() ? "" : ", at ", observed.refusal.place.c_str());
  }
}

}  // namespace

void observe_again(replay::Signature& signature) {
  const auto program = signature.proven->program.whole();
  signature.stage = replay::Stage::kSeen;
  if (program != nullptr) {
    auto last = std::make_unique<replay::Observation>();
    last->program = *program;
    static_cast<replay::CallFacts&>(*last) = std::move(static_cast<replay::CallFacts&>(*signature.proven));
    wait_with(signature, std::move(last));
    signature.stage = replay::Stage::kObserved;
  }
  signature.proven = nullptr;
}

Object* observe(replay::Region& region, replay::Signature& signature, const replay::Call& call) {
  // As the call's first work would: what comes before needs one. Where there is none, that is refused, with a reason.
  if (region.on_gpu && call.work.context == nullptr) device::have_context(call.work.device);
  MemberCall member = find_family(region, call);
  if (signature.stage == replay::Stage::kObserved || member.may_be_proven() ||
      proven_in_cache(region, signature, call)) {
    const replay::Settled settled = replay::let_device_finish(region, call);
    if (settled == replay::Settled::kBusy) {
      note_useless(region, signature, true);
      region.reasons.add(refusal::make(refusal::never_idle));
    }
    if (settled != replay::Settled::kIdle) return run_unobserved(region, call);
  }
  const double started = replay::now();
  // On a stack that greenlets exchange, nothing that the thread still refers to may lie.
  const auto own = std::make_unique<ObservedCall>();
  ObservedCall& observed = *own;
  observed.member = std::move(member);
  if (!prepare(region, signature, call, observed)) {
    region.reasons.add(observed.refusal);
    note_useless(region, signature, false);
    return run_unobserved(region, call);
  }
  ++region.statistics.observed;
  const bool compares = signature.stage == replay::Stage::kObserved;
  const std::uint64_t loads = driver::code_loads();
  const double called = replay::now();
  Object* result = run_at_step(call);
  const KeepException keep;
  const double begin = replay::now();
  region.times.observed += begin - called;
  replay::Payoff::observed(signature.times, begin - called);
  ++region.times.observed_calls;
  try {
    std::unique_ptr<replay::Observation> observation = conclude(region, signature, call, result, observed);
    if (observation != nullptr) {
      region.budget.decided.observed(observation->draws.outcomes());
      advance(region, signature, call, std::move(observation), observed);
    }
  } catch (const std::bad_alloc&) {
    observed.refusal = refusal::make(refusal::no_host_memory);
  }
  if (compares && result != nullptr) note_reads(region, observed.refusal);
  note_cost(region, observed.shadowed, called - started + (replay::now() - begin),
            recording_of(signature.times, begin - called, driver::code_loads() != loads));
  log_line(LogLevel::kDebug, "%s: looked at for %.2f ms before and %.2f ms after a call of %.2f ms",
           region.name.c_str(), (called - started) * 1e3, (replay::now() - begin) * 1e3, (begin - called) * 1e3);
  note_outcome(region, signature, call, observed, compares, result != nullptr);
  return result;
}

}  // namespace grape::python::proof
