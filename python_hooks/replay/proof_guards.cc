#include "python_hooks/replay/proof_guards.h"

#include <algorithm>
#include <new>

#include "python_hooks/bridge/loaded.h"
#include "python_hooks/torch/autograd_state.h"
#include "python_hooks/walk/portable.h"
#include "shim/record/thread_log.h"

namespace grape::python::replay {

bool kernels_are_loaded(std::uint32_t module_epoch) noexcept {
  return record::g_module_epoch.load(std::memory_order_acquire) == module_epoch;
}

bool memory_is_alive(const program::Program& program, std::uint32_t& block_epoch) noexcept {
  auto& blocks = memory::LiveBlocks::instance();
  const std::uint32_t epoch = blocks.epoch();
  if (epoch == block_epoch) return true;
  if (!blocks.alive(program)) return false;
  block_epoch = epoch;
  return true;
}

namespace {

bool kernels_of_proof_are_loaded(Proven& proven, const Call&) noexcept {
  return kernels_are_loaded(proven.module_epoch);
}

bool memory_of_proof_is_alive(Proven& proven, const Call&) noexcept {
  return memory_is_alive(proven.program.head(), proven.block_epoch);
}

bool memory_of_libraries_holds(Proven& proven, const Call&) noexcept {
  return memory::LiveBlocks::instance().hold(proven.host_words);
}

bool names_hold(Proven& proven, const Call&) noexcept { return proven.globals->holds(); }
refusal::Refusal explain_names(const Proven& proven) {
  return refusal::make(refusal::names_not_as_they_were, proven.globals->change());
}
cache::Digest identify_names(const CallFacts& facts) { return facts.globals->digest(); }

bool result_fits(Proven& proven, const Call& call) noexcept { return proven.outcome->fits(*call.walk); }

// Are the arguments what the globals hold where they were in the proof, and nowhere else?
bool shares_the_same(Proven& proven, const Call& call) noexcept {
  try {
    static auto& shared = *new std::vector<std::uint64_t>;  // reused
    shared.clear();
    proven.globals->sharing().relate(*call.walk, shared);
    return shared == proven.shared;
  } catch (const std::bad_alloc&) {
    return false;
  }
}
cache::Digest identify_shared(const CallFacts& facts) {
  const auto* shared = reinterpret_cast<const std::uint8_t*>(facts.shared.data());
  return walk::digest_of({shared, shared + facts.shared.size() * sizeof facts.shared.front()});
}

// Is as much memory behind the arguments as in the proof, if the code sees how much that is?
bool storages_fit(Proven& proven, const Call& call) noexcept {
  if (!proven.globals->sees_storages()) return true;
  const auto& extents = call.walk->extents();
  const std::vector<std::uint64_t>& bytes = proven.program.head().input_bytes;
  return std::equal(extents.begin(), extents.end(), bytes.begin(), bytes.end(),
                    [](const walk::StorageExtent& extent, std::uint64_t size) { return extent.bytes == size; });
}

// Objects that the call lets go of end later in a replay.
bool nobody_sees_ends(Proven& proven, const Call& call) noexcept { return !proven.outcome->end_is_seen(*call.walk); }

bool nobody_looks_for_anomalies(Proven& proven, const Call&) noexcept {
  return !proven.runs_pass || !bridge::loaded()->looks_for_anomalies();
}

// Has no argument hooks for which a pass inside of the call gives gradients?
bool nobody_sees_gradients(Proven& proven, const Call& call) noexcept {
  return std::none_of(proven.differentiated.begin(), proven.differentiated.end(),
                      [&](std::uint32_t place) { return torch::has_hooks(call.walk->tensors()[place].view.object); });
}

template <const refusal::Form<0>& form>
refusal::Refusal say(const Proven&) {
  return refusal::make(form);
}

// In the order in which they are asked: what the arguments share is known while the names hold.
constexpr Guard kGuards[] = {
    {kernels_of_proof_are_loaded, Guard::Failure::kStale, say<refusal::kernels_unloaded>, nullptr},
    {memory_of_proof_is_alive, Guard::Failure::kStale, say<refusal::memory_replaced>, nullptr},
    {memory_of_libraries_holds, Guard::Failure::kOther, say<refusal::library_memory_changed>, nullptr},
    {names_hold, Guard::Failure::kStale, explain_names, identify_names},
    {result_fits, Guard::Failure::kStale, say<refusal::result_not_as_it_was>, nullptr},
    {shares_the_same, Guard::Failure::kOther, say<refusal::argument_is_other_global>, identify_shared},
    {storages_fit, Guard::Failure::kOther, say<refusal::other_storage_size>, nullptr},
    {nobody_sees_ends, Guard::Failure::kOther, say<refusal::end_is_seen>, nullptr},
    {nobody_looks_for_anomalies, Guard::Failure::kOther, say<refusal::anomalies_looked_for>, nullptr},
    {nobody_sees_gradients, Guard::Failure::kOther, say<refusal::gradient_is_seen>, nullptr},
};

}  // namespace

const Guard* broken_guard(Proven& proven, const Call& call) noexcept {
  for (const Guard& guard : kGuards) {
    if (!guard.holds(proven, call)) return &guard;
  }
  return nullptr;
}

cache::Digest identify(const cache::Digest& code, const CallFacts& facts) {
  std::vector<cache::Digest> digests = {code};
  for (const Guard& guard : kGuards) {
    if (guard.identify == nullptr) continue;
    digests.push_back(guard.identify(facts));
    if (digests.back() == cache::Digest()) return {};
  }
  return walk::digest_of_all(std::move(digests));
}

}  // namespace grape::python::replay
