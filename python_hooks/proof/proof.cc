#include "python_hooks/proof/proof.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <unordered_map>
#include <utility>

#include "python_hooks/interpreter/memory_map.h"
#include "python_hooks/proof/cached_proofs.h"
#include "python_hooks/proof/kernel_digest.h"
#include "python_hooks/proof/shadowed.h"
#include "python_hooks/replay/clock.h"
#include "python_hooks/replay/pause.h"
#include "python_hooks/replay/run.h"
#include "shim/device/harmless_memory.h"
#include "shim/lifecycle/config.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/lifecycle/log.h"

namespace grape::python::replay {
namespace {

using Range = grape::replay::Shadow::Range;

// Memory for pointers that should be padding: never freed, alive as long as the process. 0: there is none.
std::uint64_t harmless_memory(std::int32_t device) noexcept {
  static std::unordered_map<std::int32_t, std::uint64_t> addresses;
  std::uint64_t& address = addresses[device];
  if (address == 0) address = grape::replay::harmless_memory(device);
  if (address != 0) return address;
  // The driver has no virtual memory.
  constexpr std::uint64_t kBytes = 1 << 20;
  new_bytes(kBytes, state::kCudaDevice, device, address);
  return address;
}

// What was changed before a read by the host, or may have been: should the value be another one, eager runs from the
// start, and finds it changed.
enum class BeforeReads : std::uint8_t { kNothing, kHidden, kVisible };

// The storages of tensors that the call wrote to.
std::vector<state::StorageExtent> written_by(const Observation& observation) {
  std::vector<state::StorageExtent> written = observation.outcome->written();
  for (const state::GlobalWrite& write : observation.writes) {
    state::TensorView view;
    if (state::view_tensor(observation.globals->tensor(write.tensor), view)) {
      written.push_back({view.storage, view.storage_bytes});
    }
  }
  return written;
}

// A replay has PyTorch cast after it what the call cast in the middle.
bool changes_cast_weights(const Region& region, const Observation& observation, const grape::replay::Shadow& shadow) {
  const std::vector<state::StorageExtent> written = written_by(observation);
  for (const OutputRecipe& recipe : observation.recipes) {
    if (recipe.cast < 0) continue;
    state::TensorView weight;
    Object* tensor = region.evidence.cast_weights[static_cast<std::size_t>(recipe.cast)];
    if (!state::view_tensor(tensor, weight)) return true;
    const auto holds_it = [&weight](std::uint64_t address, std::uint64_t bytes) {
      return weight.storage >= address && weight.storage < address + bytes;
    };
    const auto& watched = shadow.watched();
    const auto range = std::find_if(watched.begin(), watched.end(),
                                    [&](const Range& each) { return holds_it(each.address, each.bytes); });
    if (range == watched.end() || shadow.changed(static_cast<std::size_t>(range - watched.begin()))) return true;
    const auto is_it = [&](const state::StorageExtent& extent) { return holds_it(extent.address, extent.bytes); };
    if (std::any_of(written.begin(), written.end(), is_it)) return true;
  }
  return false;
}

BeforeReads changed_before_reads(const Observation& observation, const Call& call,
                                 const grape::replay::Shadow& shadow) {
  const program::Program& program = observation.program;
  const auto last_read = std::find_if(program.nodes.rbegin(), program.nodes.rend(), [](const program::RecordedNode& n) {
    return n.kind == program::NodeKind::kHostRead;
  });
  BeforeReads found = BeforeReads::kNothing;
  if (last_read == program.nodes.rend()) return found;
  const std::vector<state::StorageExtent> written = written_by(observation);
  for (const program::Reference& reference : program.references) {
    if (reference.word >= last_read->words_at) break;
    Range used;
    if (reference.role == program::Role::kStatic) {
      used = {program.statics[reference.block].address, program.statics[reference.block].bytes};
    } else if (reference.role == program::Role::kInput) {
      used = {call.walk->extents()[reference.block].address, call.walk->extents()[reference.block].bytes};
    }
    const auto overlap = [&used](std::uint64_t address, std::uint64_t bytes) {
      return address < used.address + used.bytes && used.address < address + bytes;
    };
    // Bytes may be the same in the end, or this time.
    const bool writes = std::any_of(written.begin(), written.end(), [&](const state::StorageExtent& extent) {
      return overlap(extent.address, extent.bytes);
    });
    if (writes) return BeforeReads::kVisible;
    for (std::size_t i = 0; i < shadow.watched().size(); ++i) {
      const Range& range = shadow.watched()[i];
      if (!overlap(range.address, range.bytes) || !shadow.changed(i)) continue;
      if (!shadow.hidden(i)) return BeforeReads::kVisible;
      found = BeforeReads::kHidden;
    }
  }
  return found;
}

__attribute__((constructor)) void write_at_end() { lifecycle::add_finish(write_cache); }

}  // namespace

void write_cache() noexcept {
  if (CachedProofs* proofs = CachedProofs::in_use()) proofs->write();
}

program::PaddingKnowledge& padding() {
  static auto& knowledge = *[] {
    auto* made = new program::PaddingKnowledge;
    made->set_identity([](const program::FunctionInfo& function) {
      cache::Digest digest;
      return kernel_digest(function, digest) ? cache::handle_of(digest) : function.handle;
    });
    if (CachedProofs* proofs = CachedProofs::instance()) {
      made->set_source([proofs](const program::FunctionInfo& function) { return proofs->padding_of(function); });
    }
    return made;
  }();
  return knowledge;
}

program::HostPlaces host_places() {
  return [memory = std::make_shared<const AddressSpace>()](std::uint64_t address) {
    switch (memory->at(static_cast<std::uintptr_t>(address))) {
      case AddressSpace::Kind::kNone:
        return program::HostPlace::kNone;
      case AddressSpace::Kind::kReserved:
        return program::HostPlace::kReserved;
      case AddressSpace::Kind::kData:
        return program::HostPlace::kData;
      case AddressSpace::Kind::kCode:
        return program::HostPlace::kCode;
    }
    return program::HostPlace::kReserved;
  };
}

std::unique_ptr<Trial> trial_of(Observation& last, const Observation& second, const std::vector<std::uint32_t>& noise) {
  std::unique_ptr<Trial> trial = last.trial != nullptr ? std::move(last.trial) : std::make_unique<Trial>();
  auto& runs = trial->runs;
  if (runs.empty()) trial->noise.clear();  // to the run of an earlier process; this one now saw the program twice
  trial->foreign = {};
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

std::vector<program::NoiseWord> unknown_padding(const Trial& trial, const program::Program& program) {
  const bool often = trial.shadows >= program::PaddingKnowledge::kEnough;
  auto unknown = padding().unknown(program, trial.noise, often ? 1 : program::PaddingKnowledge::kEnough);
  const auto foreign = padding().unsettled(program, trial.foreign);
  unknown.insert(unknown.end(), foreign.begin(), foreign.end());
  return unknown;
}

std::unique_ptr<Proven> prove(Region& region, const Call& call, Trial& trial, Observation& second, Seen& seen) {
  auto* stream = reinterpret_cast<CUstream>(call.work.stream);
  const auto quiet = quiet_after_call(region, call);
  if (quiet == nullptr) {
    seen.refusal = refusal::make(refusal::never_idle);
    return nullptr;
  }
  const OnWorkDevice device(call.work);
  if (!device.entered()) {
    seen.refusal = refusal::make(refusal::no_context);
    return nullptr;
  }
  if (!seen.shadow.after(stream,
                         output_ranges(second.program, second.output_addresses, second.recipes, *second.outcome),
                         seen.refusal)) {
    return nullptr;
  }
  if (changes_cast_weights(region, second, seen.shadow)) {
    seen.refusal = refusal::make(refusal::cast_weight_changed);
    return nullptr;
  }
  const BeforeReads before_reads = changed_before_reads(second, call, seen.shadow);
  if (before_reads == BeforeReads::kVisible) {
    seen.refusal = refusal::make(refusal::changes_before_read);
    return nullptr;
  }
  auto proven = std::make_unique<Proven>();
  program::Program whole = second.program;
  proven->others = second.others;
  proven->module_epoch = second.module_epoch;
  const bool quite_equal = trial.noise.empty() && trial.foreign.plain.empty();
  const std::uint64_t harmless = quite_equal ? 1 : harmless_memory(call.work.device);
  if (harmless == 0) {
    seen.refusal = refusal::make(refusal::no_device_memory);
    return nullptr;
  }
  padding().set_module_epoch(second.module_epoch);
  std::vector<const program::Program*> donors;
  for (const program::Program& run : trial.runs) donors.push_back(&run);
  std::vector<program::NoiseWord> tried = program::settle_noise(whole, donors, trial.noise, padding(), harmless);
  if (!trial.foreign.plain.empty()) {
    const auto careful = program::settle_foreign_noise(whole, trial.foreign, padding(), host_places(), harmless);
    tried.insert(tried.end(), careful.begin(), careful.end());
  }
  proven->plan = program::plan_arena(whole);
  program::Bindings& bindings = proven->bindings;
  bindings.outputs.resize(whole.outputs.size());
  for (const state::StorageExtent& extent : call.walk->extents()) bindings.inputs.push_back(extent.address);
  bindings.seed = seen.random.seed;
  bindings.offset = seen.random.offset_before;
  std::vector<Object*> tensors;
  if (!reserve_arena(region, call.work, proven->plan.bytes, bindings.arena) ||
      !make_outputs(*second.outcome, second.recipes, tensors, bindings.outputs)) {
    seen.refusal = refusal::make(refusal::no_device_memory);
    return nullptr;
  }
  if (!place_host_data(*proven, whole, call.work, seen.refusal)) {
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
  const bool prepared = proven->steps.prepare(region.execs, proven->program, proven->plan, bindings, seen.refusal);
  refusal::Refusal difference;
  auto found = grape::replay::Shadow::Found::kDifferent;
  const bool ran =
      prepared && seen.shadow.compare(stream, proven->others, proven->steps,
                                      output_ranges(second.program, bindings.outputs, second.recipes, *second.outcome),
                                      before_reads == BeforeReads::kHidden, found, difference, seen.refusal);
  drop(tensors);
  log_line(LogLevel::kDebug, "%s: %zu nodes built and run in the shadow in %.2f ms", region.name.c_str(),
           program->nodes.size(), (now() - planned) * 1e3);
  if (!ran) return nullptr;
  if (found != grape::replay::Shadow::Found::kSame && seen.shadow.others_worked()) {
    seen.refusal = refusal::make(refusal::others_worked);
    return nullptr;
  }
  if (found == grape::replay::Shadow::Found::kNotDeterministic) {
    if (config().allow_nondeterministic) {
      trial.noise.clear();  // its shadows tell nothing about padding
      return proven;
    }
    seen.refusal = refusal::make(refusal::other_bytes_each_time, difference.text);
    return nullptr;
  }
  if (found != grape::replay::Shadow::Found::kSame) {
    seen.differed = true;
    seen.learned = padding().refute(second.program, tried);
    seen.refusal = refusal::make(refusal::left_other_bytes, difference.text);
    return nullptr;
  }
  padding().confirm(*program, tried);
  ++trial.shadows;
  return proven;
}

bool joins(const Observation& observation) {
  const program::Program& program = observation.program;
  std::vector<bool> followed(program.nodes.size(), false);
  for (const std::uint32_t node : program.after) followed[node] = true;
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    if (!followed[i] && program.nodes[i].stream != observation.current_stream) return false;
  }
  return true;
}

std::string readable(const std::string& name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string result = status == 0 && text != nullptr ? text : name;
  std::free(text);
  return result;
}

}  // namespace grape::python::replay
