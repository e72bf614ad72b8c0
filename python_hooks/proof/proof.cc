#include "python_hooks/proof/proof.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <unordered_map>
#include <utility>

#include "python_hooks/interpreter/memory_map.h"
#include "python_hooks/proof/cached_proofs.h"
#include "python_hooks/proof/shadow_inputs.h"
#include "python_hooks/replay/clock.h"
#include "python_hooks/replay/gil_release.h"
#include "python_hooks/replay/run.h"
#include "shim/device/harmless_memory.h"
#include "shim/lifecycle/config.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/lifecycle/log.h"
#include "shim/record/api_table.h"

namespace grape::python::proof {
namespace {

using Range = grape::replay::Shadow::Range;

// Memory for pointers that should be padding: never freed, alive as long as the process. 0: there is none.
std::uint64_t harmless_memory(std::int32_t device) noexcept {
  static std::unordered_map<std::int32_t, std::uint64_t> addresses;
  std::uint64_t& address = addresses[device];
  if (address == 0) address = device::harmless_memory(device);
  if (address != 0) return address;
  // The driver has no virtual memory.
  constexpr std::uint64_t kBytes = 1 << 20;
  replay::new_bytes(kBytes, torch::kCudaDevice, device, address);
  return address;
}

// What was changed before a read by the host, or may have been: should the value be another one, eager runs from the
// start, and finds it changed.
enum class ArgumentReads : std::uint8_t { kNothing, kHidden, kVisible };

// The storages of tensors that the call wrote to.
std::vector<walk::StorageExtent> written_by(const replay::Observation& observation) {
  std::vector<walk::StorageExtent> written = observation.outcome->written();
  for (const walk::GlobalWrite& write : observation.writes) {
    torch::TensorView view;
    if (torch::view_tensor(observation.globals->tensor(write.tensor), view)) {
      written.push_back({view.storage, view.storage_bytes});
    }
  }
  return written;
}

// A replay has PyTorch cast after it what the call cast in the middle.
bool changes_cast_weights(const replay::Region& region, const replay::Observation& observation,
                          const grape::replay::Shadow& shadow) {
  const std::vector<walk::StorageExtent> written = written_by(observation);
  for (const replay::OutputRecipe& recipe : observation.recipes) {
    if (recipe.cast < 0) continue;
    torch::TensorView weight;
    Object* tensor = region.evidence.cast_weights[static_cast<std::size_t>(recipe.cast)];
    if (!torch::view_tensor(tensor, weight)) return true;
    const auto holds_it = [&weight](std::uint64_t address, std::uint64_t bytes) {
      return weight.storage >= address && weight.storage < address + bytes;
    };
    const auto& watched = shadow.watched();
    const auto range = std::find_if(watched.begin(), watched.end(),
                                    [&](const Range& each) { return holds_it(each.address, each.bytes); });
    if (range == watched.end() || shadow.changed(static_cast<std::size_t>(range - watched.begin()))) return true;
    const auto is_it = [&](const walk::StorageExtent& extent) { return holds_it(extent.address, extent.bytes); };
    if (std::any_of(written.begin(), written.end(), is_it)) return true;
  }
  return false;
}

ArgumentReads changed_before_reads(const replay::Observation& observation, const replay::Call& call,
                                   const grape::replay::Shadow& shadow) {
  const program::Program& program = observation.program;
  const auto last_read = std::find_if(program.nodes.rbegin(), program.nodes.rend(), [](const program::RecordedNode& n) {
    return n.kind == program::NodeKind::kHostRead;
  });
  ArgumentReads found = ArgumentReads::kNothing;
  if (last_read == program.nodes.rend()) return found;
  const std::vector<walk::StorageExtent> written = written_by(observation);
  for (const program::Reference& reference : program.references) {
    if (reference.word >= last_read->words_at) break;
    Range used;
    if (reference.role == program::Role::kStatic) {
      used = {program.statics[reference.block].address, program.statics[reference.block].bytes};
    } else if (reference.role == program::Role::kInput) {
      used = {call.walk->extents()[reference.block].address, call.walk->extents()[reference.block].bytes};
    }
    // Bytes may be the same in the end, or this time.
    const bool writes = std::any_of(written.begin(), written.end(),
                                    [&](const walk::StorageExtent& extent) { return overlap(used, extent); });
    if (writes) return ArgumentReads::kVisible;
    for (std::size_t i = 0; i < shadow.watched().size(); ++i) {
      const Range& range = shadow.watched()[i];
      if (!overlap(used, range) || !shadow.changed(i)) continue;
      if (!shadow.hidden(i)) return ArgumentReads::kVisible;
      found = ArgumentReads::kHidden;
    }
  }
  return found;
}

__attribute__((constructor)) void write_at_end() { lifecycle::add_finish(write_cache); }

}  // namespace

void write_cache() noexcept {
  if (CachedProofs* proofs = CachedProofs::in_use()) proofs->write();
}

std::uint64_t kernel_identity(const program::FunctionInfo& function) {
  cache::Digest digest;
  return kernel_digest(function, digest) ? cache::handle_of(digest) : function.handle;
}

program::PaddingKnowledge& padding() {
  static auto& knowledge = *[] {
    auto* made = new program::PaddingKnowledge;
    made->set_identity(kernel_identity);
    if (CachedProofs* proofs = CachedProofs::instance()) {
      made->set_source([proofs](const program::FunctionInfo& function) { return proofs->padding_of(function); });
    }
    return made;
  }();
  return knowledge;
}

program::HostPlaces host_places() {
  return [memory = std::make_shared<const AddressSpace>()](std::uint64_t address) {
    using program::HostPlace;
    constexpr HostPlace kPlaces[] = {HostPlace::kNone, HostPlace::kReserved, HostPlace::kData, HostPlace::kCode};
    return kPlaces[static_cast<std::size_t>(memory->at(static_cast<std::uintptr_t>(address)))];  // as in Kind
  };
}

std::unique_ptr<replay::PaddingTrial> trial_of(replay::Observation& last, const replay::Observation& second,
                                               const std::vector<std::uint32_t>& noise,
                                               const program::HostPlaces& host) {
  std::unique_ptr<replay::PaddingTrial> trial =
      last.trial != nullptr ? std::move(last.trial) : std::make_unique<replay::PaddingTrial>();
  auto& runs = trial->runs;
  if (runs.empty()) trial->noise.clear();  // to the run of an earlier process; this one now saw the program twice
  trial->foreign = {};
  const auto add = [&](const program::Program& run) {
    const program::Comparison comparison = program::compare(run, second.program, host);
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

std::vector<program::NoiseWord> unknown_padding(const replay::PaddingTrial& trial, const program::Program& program) {
  const bool often = trial.shadows >= program::PaddingKnowledge::kEnough;
  auto unknown = padding().unknown(program, trial.noise, often ? 1 : program::PaddingKnowledge::kEnough);
  const auto foreign = padding().unsettled(program, trial.foreign);
  unknown.insert(unknown.end(), foreign.begin(), foreign.end());
  return unknown;
}

bool exchange_padding(std::int32_t device, const replay::PaddingTrial& trial, std::uint32_t module_epoch,
                      program::Program& program, std::vector<program::NoiseWord>& tried, refusal::Refusal& refusal) {
  const bool quite_equal = trial.noise.empty() && trial.foreign.plain.empty();
  const std::uint64_t harmless = quite_equal ? 1 : harmless_memory(device);
  if (harmless == 0) return refusal::refuse(refusal, refusal::no_device_memory);
  padding().set_module_epoch(module_epoch);
  std::vector<const program::Program*> donors;
  for (const program::Program& run : trial.runs) donors.push_back(&run);
  tried = program::settle_noise(program, donors, trial.noise, padding(), harmless);
  if (trial.foreign.plain.empty()) return true;
  const auto careful = program::settle_foreign_noise(program, trial.foreign, padding(), host_places(), harmless);
  tried.insert(tried.end(), careful.begin(), careful.end());
  return true;
}

namespace {

// Is what the call changed nothing that its graph depends on otherwise than the call did? `before_reads`: see there.
// False: `observed.refusal`.
bool changes_may_be(const replay::Region& region, const replay::Call& call, const replay::Observation& second,
                    ArgumentReads& before_reads, ObservedCall& observed) {
  if (!observed.shadow.after(call.work.driver_stream(),
                             output_ranges(second.program, second.output_addresses, second.recipes, *second.outcome),
                             observed.refusal)) {
    return false;
  }
  if (changes_cast_weights(region, second, observed.shadow)) return observed.refuse(refusal::cast_weight_changed);
  before_reads = changed_before_reads(second, call, observed.shadow);
  return before_reads != ArgumentReads::kVisible || observed.refuse(refusal::changes_before_read);
}

// Adds memory of the module's that the call changed without telling autograd, as BatchNorm does. False: an argument's.
bool note_written(const grape::replay::Shadow& shadow, const replay::Call& call, replay::Border& border) {
  for (std::size_t i = 0; i < shadow.watched().size(); ++i) {
    const Range& range = shadow.watched()[i];
    if (shadow.hidden(i) || !shadow.changed(i)) continue;
    for (const walk::StorageExtent& extent : call.walk->extents()) {
      if (overlap(extent, range)) return false;
    }
    border.written.erase(std::remove_if(border.written.begin(), border.written.end(),
                                        [&](const program::Extent& known) { return overlap(known, range); }),
                         border.written.end());
    border.written.push_back({range.address, range.bytes});
  }
  return true;
}

// What only the backward pass needs is not there yet while the call's first kernels run.
program::LentMemory saved_memory(const std::vector<replay::OutputRecipe>& recipes) {
  program::LentMemory saved;
  for (const replay::OutputRecipe& recipe : recipes) {
    if (recipe.saved_bytes != 0) saved.blocks.push_back({program::Role::kOutput, recipe.block, recipe.saved_at});
  }
  return saved;
}

// Of a call with a backward pass: for what is kept until that was seen, for copies of what it reads and of gradients.
bool claim_room(const replay::Region& region, const replay::Call& call, const replay::Observation& second,
                const program::ArenaPlan& plan, ObservedCall& observed) {
  if (!replay::awaits_backward(second.border.get())) return true;
  std::uint64_t kept = 0, saved = 0, gradients = 0;
  for (const replay::OutputRecipe& recipe : second.recipes) kept += bytes_of(recipe, *second.outcome);
  for (const program::Extent& extent : observed.border.saved) saved += extent.bytes;
  for (const walk::StorageExtent& extent : region.evidence.guard->extents()) gradients += extent.bytes;
  const std::uint64_t copied = saved - std::min(saved, second.border->saved_bytes);
  const std::uint64_t held = 2 * (kept + copied) + plan.bytes;
  if (observed.room.claim(call.work, held, gradients)) return true;
  return observed.refuse(refusal::little_device_memory, std::to_string((held + gradients) >> 20));
}

// Memory for the graph, and its executable graphs. False: `observed.refusal`; `tensors` are the caller's to drop.
bool make_ready(replay::Region& region, const replay::Call& call, replay::PaddingTrial& trial,
                const replay::Observation& second, program::Program&& whole, replay::Proven& proven,
                std::vector<Object*>& tensors, ObservedCall& observed) {
  proven.module_epoch = second.module_epoch;
  proven.pool = &region.execs;
  proven.plan = program::plan_arena(whole, saved_memory(second.recipes));
  proven.is_one_launch = whole.waited_streams.empty() && program::segments(whole).size() == 1;
  program::Bindings& bindings = proven.bindings;
  bindings.inputs.resize(call.walk->extents().size());
  bindings.outputs.resize(whole.outputs.size());
  bindings.numbers = second.numbers.numbers;
  bindings.seed = observed.random.seed;
  bindings.offset = observed.random.offset_before;
  if (!claim_room(region, call, second, proven.plan, observed)) return false;
  if (!replay::place_call(region, proven, second, call, tensors)) return observed.refuse(refusal::no_device_memory);
  if (!replay::place_host_data(proven, whole, call.work, observed.refusal)) return false;
  proven.program = store::KeptProgram(std::move(whole));
  if (trial.candidate != nullptr) {
    region.execs.hand_over(trial.candidate->program, proven.program, proven.plan, bindings);
    trial.candidate = nullptr;
  }
  return proven.steps.prepare(region.execs, proven.program, proven.plan, bindings, observed.refusal);
}

}  // namespace

void note_varying(grape::replay::Shadow::Found found, const program::Program& program,
                  const std::vector<program::NoiseWord>& tried, replay::PaddingTrial& trial) {
  if (found == grape::replay::Shadow::Found::kWithinSpread) {
    padding().confirm(program, tried);
    ++trial.shadows;
  } else {
    trial.noise.clear();  // its shadows tell nothing about padding
  }
}

namespace {

// What the shadow found. True: the graph may stand in for the call. False: `observed.refusal`.
bool judge(grape::replay::Shadow::Found found, const refusal::Refusal& difference, const replay::Observation& second,
           const program::Program& program, const std::vector<program::NoiseWord>& tried, replay::PaddingTrial& trial,
           ObservedCall& observed) {
  using Found = grape::replay::Shadow::Found;
  if (found == Found::kSame) {
    padding().confirm(program, tried);
    ++trial.shadows;
    return true;
  }
  if (observed.shadow.others_worked()) return observed.refuse(refusal::others_worked);
  if (found == Found::kNotDeterministic || found == Found::kWithinSpread) {
    if (!is_good(found)) return observed.refuse(refusal::other_bytes_each_time, difference.text);
    note_varying(found, program, tried, trial);
    return true;
  }
  observed.differed = true;
  observed.learned = padding().refute(second.program, tried);
  return observed.refuse(refusal::left_other_bytes, difference.text);
}

}  // namespace

std::unique_ptr<replay::Proven> prove(replay::Region& region, const replay::Call& call, replay::PaddingTrial& trial,
                                      replay::Observation& second, ObservedCall& observed) {
  const auto quiet = replay::quiet_after_call(region, call);
  if (quiet == nullptr) return observed.refuse(refusal::never_idle);
  const replay::OnWorkDevice device(call.work);
  if (!device.entered()) return observed.refuse(refusal::no_context);
  ArgumentReads before_reads = ArgumentReads::kNothing;
  if (!changes_may_be(region, call, second, before_reads, observed)) return nullptr;
  if (second.border != nullptr && !note_written(observed.shadow, call, *second.border))
    return observed.refuse(refusal::not_made_twice);
  auto proven = std::make_unique<replay::Proven>();
  program::Program whole = second.program;
  std::vector<program::NoiseWord> tried;
  if (!exchange_padding(call.work.device, trial, observed.module_epoch, whole, tried, observed.refusal)) return nullptr;
  const double planned = replay::now();
  std::vector<Object*> tensors;
  refusal::Refusal difference;
  auto found = grape::replay::Shadow::Found::kDifferent;
  observed.shadow.set_elements(output_elements(second.recipes, *second.outcome));
  if (second.border != nullptr && !second.border->written.empty()) observed.shadow.ask_for_state();
  const bool ran =
      make_ready(region, call, trial, second, std::move(whole), *proven, tensors, observed) &&
      observed.shadow.compare(call.work.driver_stream(), second.others, proven->steps,
                              output_ranges(second.program, proven->bindings.outputs, second.recipes, *second.outcome),
                              before_reads == ArgumentReads::kHidden, found, difference, observed.refusal);
  if (second.border != nullptr) second.border->depends_on_written = observed.shadow.depends_on_state();
  if (second.border != nullptr && second.border->saved_bytes != 0 && !tensors.empty()) {
    observed.saved_memory = tensors.back();
    tensors.pop_back();
  }
  replay::drop(tensors);
  if (!ran) return nullptr;
  log_line(LogLevel::kDebug, "%s: %zu nodes built and run in the shadow in %.2f ms", region.name.c_str(),
           second.program.nodes.size(), (replay::now() - planned) * 1e3);
  const std::shared_ptr<const program::Program> program = proven->program.whole();
  return judge(found, difference, second, *program, tried, trial, observed) ? std::move(proven) : nullptr;
}

void note_streams(const program::RegionRecord& record, const replay::WorkPlace& work,
                  replay::Observation& observation) {
  const std::uint64_t current = work.stream == 0 ? record::kLegacyStream : work.stream;
  for (std::uint32_t i = 0; i < record.streams.size(); ++i) {
    if (record.streams[i] == current) {
      observation.current_stream = i;
    } else {
      observation.others.push_back(reinterpret_cast<CUstream>(record.streams[i]));
    }
  }
}

bool joins(const replay::Observation& observation) {
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

}  // namespace grape::python::proof
