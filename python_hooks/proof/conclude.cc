#include "python_hooks/proof/conclude.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "compressor/program/kept_blocks.h"
#include "compressor/program/symbolise.h"
#include "python_hooks/interpreter/observers.h"
#include "python_hooks/proof/functions.h"
#include "python_hooks/proof/recipes.h"
#include "python_hooks/proof/shadow_inputs.h"
#include "python_hooks/replay/look_limits.h"
#include "python_hooks/scopes/frame_names.h"
#include "shim/lifecycle/config.h"
#include "shim/observation/region_sink.h"

namespace grape::python::proof {
namespace {

// What the call wrote to of what only globals hold. False: of some of that nobody knows how it was before.
bool find_writes(const guards::GlobalsGuard& globals, const ObservedCall& observed,
                 std::vector<walk::GlobalWrite>& writes) {
  std::vector<walk::TensorVersion> now;
  globals.take_versions(now);
  std::unordered_map<const torch::VersionCounter*, std::uint32_t> before;
  std::unordered_set<const Object*> noted;  // what autograd noted of these before the call is known
  for (const walk::TensorVersion& tensor : observed.globals_before) {
    before.emplace(tensor.counter, tensor.count);
    noted.insert(tensor.tensor);
  }
  std::unordered_set<const torch::VersionCounter*> met;
  for (std::uint32_t i = 0; i < now.size(); ++i) {
    const torch::VersionCounter* const counter = now[i].counter;
    if (torch::concern_gradients(torch::autograd_facts(now[i].tensor)) && noted.count(now[i].tensor) == 0) return false;
    if (counter == nullptr || observed.before->knows(counter) || !met.insert(counter).second) continue;
    const auto known = before.find(counter);
    if (known == before.end()) return false;
    if (now[i].count != known->second) writes.push_back({i, now[i].count - known->second});
  }
  return true;
}

// Which arguments are gradients asked for? False: of one with hooks, or of what is neither an argument nor made by the
// call. Others may have hooks on that.
bool find_differentiated(const replay::Region& region, const replay::Call& call, const ObservedCall& observed,
                         const guards::GlobalsGuard& globals, std::vector<std::uint32_t>& arguments) {
  const std::vector<const Object*>& asked = observed.code.differentiated();
  const std::vector<walk::WalkedTensor>& walked = call.walk->tensors();
  for (std::uint32_t i = 0; i < walked.size(); ++i) {
    Object* const tensor = walked[i].view.object;
    if (std::find(asked.begin(), asked.end(), tensor) == asked.end()) continue;
    if (torch::has_hooks(tensor)) return false;
    arguments.push_back(i);
  }
  std::unordered_set<const Object*> others;
  for (const walk::WalkedTensor& tensor : region.evidence.guard->tensors()) others.insert(tensor.view.object);
  std::vector<walk::TensorVersion> now;
  globals.take_versions(now);
  for (const auto* named : {&observed.globals_before, static_cast<const std::vector<walk::TensorVersion>*>(&now)}) {
    for (const walk::TensorVersion& tensor : *named) others.insert(tensor.tensor);
  }
  return std::none_of(asked.begin(), asked.end(), [&](const Object* tensor) { return others.count(tensor) != 0; });
}

// It has run a backward pass, and is refused for that.
bool refuse_for_pass(ObservedCall& observed) {
  observed.autograd = true;
  observed.refusal = observed.code.followed_pass();
  return false;
}

using Recorded = grape::observation::RegionSink::Result;

// Is what was recorded work that a program can be made of? False: `observed.refusal`.
bool is_of_use(replay::Region& region, const replay::Call& call, bool raised, bool may_set_up, Recorded& recorded,
               ObservedCall& observed) {
  const bool clean = observed.code.end();
  if (!call.numbers.empty() && !observed.code.is_librarys()) return observed.refuse(refusal::optimizer_runs_other_code);
  if (raised) return observed.refuse(refusal::raised);
  // A function may find its work in globals; what the driver's calls refuse, a device was asked for.
  region.on_gpu = region.on_gpu || recorded.record == nullptr || !recorded.record->nodes.empty();
  if (recorded.record == nullptr) {
    observed.refusal = std::move(recorded.refusal);
    observed.refusal.place = scopes::place_of_frame(recorded.frame);
  } else if (recorded.set_up && !may_set_up) {
    recorded.record = nullptr;  // what was observed before waits for the next one
    recorded.again = true;
    observed.refusal = std::move(recorded.set_up);
    observed.refusal.place = scopes::place_of_frame(recorded.set_up_frame);
  }
  observed.again = recorded.again || (recorded.record != nullptr && recorded.loaded);
  if (!clean) {
    observed.refusal = observed.code.refusal();
    observed.autograd = observed.code.ran_backward();
  }
  if (!clean || recorded.record == nullptr) return false;
  if (recorded.record->nodes.size() < region.least_work()) region.unfit = refusal::found_small;
  return !region.of_function() || !recorded.record->nodes.empty() || observed.refuse(refusal::no_gpu_work);
}

// Did the call leave all as it was that a replay leaves as it was? False: `observed.refusal`.
bool leaves_state(replay::Region& region, const replay::Signature& signature, const replay::Call& call,
                  host_draws::HostDraws& draws, ObservedCall& observed) {
  program::RandomState& random = observed.random;
  if (random.known && !torch::random_state(call.work.device, random.seed, random.offset_after)) return false;
  if (host_draws::HostDraws* followed = observed.code.followed_draws()) draws = std::move(*followed);
  if (!observed.host_random.moved_by(draws)) {
    // Maybe one of these did.
    observed.again = observed.again || (!region.inner && !observed.code.looks_at_draws() && other_threads());
    return observed.refuse(refusal::draws_on_host);
  }
  guards::GlobalsGuard* known =
      signature.stage == replay::Stage::kObserved ? signature.observation->globals.get() : nullptr;
  observed.refusal = changed_by_call(region, known, call);
  if (observed.refusal) {
    if (!region.evidence.guard->holds()) note_change_of_self(region, call);
    return false;
  }
  observed.refusal = moved_in_globals(observed.globals_before);
  observed.autograd = static_cast<bool>(observed.refusal);
  return !observed.refusal;
}

// The call's nodes, where something that it returned or changed requires grad. False: `observed.refusal`.
bool learn_border(const replay::Call& call, Object* result, ObservedCall& observed,
                  const replay::Observation& observation) {
  const bridge::InnerNodes* const ran = observed.code.nodes_of_passes();
  if (!observed.targets.add_arguments(call, observation.outcome->made_to_require_grad()))
    return observed.refuse(refusal::no_host_memory);
  if (!find_border(observed.targets, {observed.nodes_before, ran, nullptr}, observed.border, observed.refusal))
    return false;
  if (observed.border.lasting->form.sealed) return observed.border.casts.empty() || refuse_for_pass(observed);
  if (observation.runs_pass) return refuse_for_pass(observed);
  if (!replay::may_train(call.dispatch)) return observed.refuse(refusal::requires_grad, std::string("a result"));
  return can_be_made_again(result, *observation.outcome, call, observed.border, observed.refusal);
}

// What the call did for Python, and what its code names. `left`: gets the blocks that it left beside its result. False:
// `observed.refusal`.
bool learn_facts(replay::Region& region, const replay::Call& call, Object* result, const program::RegionRecord& record,
                 std::vector<std::uint64_t>& left, ObservedCall& observed, replay::Observation& observation) {
  observation.outcome =
      effects::CallOutcome::learn(result, *observed.before, *region.evidence.guard, observed.refusal,
                                  &observed.autograd, observed.trains ? &observed.border.results : nullptr);
  if (observation.outcome == nullptr) {
    const bool counts = observed.refusal.id == refusal::RefusalId::wrote_to_cpu;
    if (counts && region.kind == replay::RegionKind::kOptimizer) observed.refuse(refusal::steps_on_cpu);
    return false;
  }
  observation.runs_pass = static_cast<bool>(observed.code.followed_pass());
  if (!observation.runs_pass && !observation.outcome->made_to_require_grad().empty()) {
    observed.autograd = true;
    return observed.refuse(refusal::moved_requires_grad, std::string("an argument"));
  }
  left = blocks_without_result(record, *observation.outcome);
  if (!replay::find_left_casts(region, call, record, left, observed.border.casts))
    return observed.refuse(refusal::unknown_casts);
  if (!observed.border.results.empty() && !learn_border(call, result, observed, observation)) {
    observed.autograd = true;
    return false;
  }
  if (observation.outcome->lets_go() && observed.code.makes_weak_references()) {
    return observed.refuse(refusal::lets_go_with_weak_references);
  }
  observation.globals = guards::GlobalsGuard::take(observed.code, observed.refusal);
  if (observation.globals == nullptr) return false;
  if (observation.runs_pass &&
      !find_differentiated(region, call, observed, *observation.globals, observation.differentiated)) {
    return refuse_for_pass(observed);
  }
  observation.writes_known = find_writes(*observation.globals, observed, observation.writes);
  const bool made_again = replay::awaits_backward(observed.border.lasting.get());
  if (made_again && !observation.writes.empty()) {
    observed.autograd = true;
    return observed.refuse(refusal::not_made_twice);
  }
  const guards::AliasRelation& sharing = observation.globals->sharing();
  sharing.relate(*call.walk, observation.shared);
  sharing.relate(*call.walk, observation.shared_addresses, true);
  return true;
}

// Which memory the call left, and the streams of its work. False: `observed.refusal`.
bool learn_memory(replay::Region& region, const replay::Call& call, bool may_set_up, std::vector<std::uint64_t> left,
                  program::RegionRecord& record, ObservedCall& observed, replay::Observation& observation) {
  const bool small = record.nodes.size() < replay::g_look_limits.least_inner_pass;
  if (observed.border.border != nullptr && region.inner && small && !config().strict) {
    observed.autograd = true;
    return observed.refuse(refusal::small_under_autograd);
  }
  const std::vector<replay::LeftCast>& casts = observed.border.casts;
  const auto is_cast = [&](std::uint64_t at) {
    return std::any_of(casts.begin(), casts.end(), [at](const replay::LeftCast& cast) { return cast.address == at; });
  };
  left.erase(std::remove_if(left.begin(), left.end(), is_cast), left.end());
  const auto end_of_left =
      std::stable_partition(left.begin(), left.end(), [&](std::uint64_t at) { return !is_saved(observed.border, at); });
  const std::vector<std::uint64_t> saved(end_of_left, left.end());
  left.erase(end_of_left, left.end());
  // A library's workspace, say. A call that keeps memory each time is found out by the second one.
  if (!left.empty() && may_set_up) {
    observation.set_up = program::count_as_before(record, left) || observation.set_up;
  }
  if (!make_recipes(record, *observation.outcome, casts, saved, observation.recipes, observation.output_addresses,
                    observed.refusal)) {
    return false;
  }
  if (observed.border.lasting != nullptr) {
    find_saved_memory(call, observation.output_addresses, observation.recipes, observed.border);
    observation.border = std::move(observed.border.lasting);
  }
  note_streams(record, call.work, observation);
  return true;
}

}  // namespace

std::unique_ptr<replay::Observation> conclude(replay::Region& region, const replay::Signature& signature,
                                              const replay::Call& call, Object* result, ObservedCall& observed) {
  Recorded recorded = observed.sink.end();
  auto observation = std::make_unique<replay::Observation>();
  observation->nodes_made = torch::autograd_nodes() - observed.nodes_before;
  const bool may_set_up = signature.stage != replay::Stage::kObserved && !signature.set_up;
  if (!is_of_use(region, call, result == nullptr, may_set_up, recorded, observed) ||
      !leaves_state(region, signature, call, observation->draws, observed)) {
    return nullptr;
  }
  observation->module_epoch = observed.module_epoch;
  observation->numbers.numbers = call.numbers;
  observation->loaded = recorded.loaded;
  observation->set_up = static_cast<bool>(recorded.set_up);
  program::RegionRecord& record = *recorded.record;
  std::vector<std::uint64_t> left;
  if (!learn_facts(region, call, result, record, left, observed, *observation) ||
      !learn_memory(region, call, may_set_up, std::move(left), record, observed, *observation)) {
    return nullptr;
  }
  for (const walk::StorageExtent& extent : call.walk->extents())
    record.inputs.push_back({extent.address, extent.bytes});
  record.random = observed.random;
  observation->host_words = record.host_words;
  observation->program = program::symbolise(std::move(record), [](const program::FunctionInfo& f, std::uint32_t word) {
    return padding().may_be_pointer(f, word);
  });
  return observation;
}

}  // namespace grape::python::proof
