#include "python_hooks/control/module_state.h"

#include <algorithm>
#include <utility>

#include "python_hooks/proof/observe.h"
#include "shim/lifecycle/log.h"

namespace grape::python::replay {
namespace {

constexpr std::uint32_t kLastingCalls = 2;  // of a state of the module, for it to be kept
constexpr std::uint32_t kMostRefusals = 3;  // calls in a row
constexpr std::size_t kMostParked = 3;      // states of a region's module besides the present one

// Worth keeping: a module that is another one in each call leaves one call in each of its states.
bool lasted(const Signatures& signatures) {
  std::uint32_t calls = 0;
  for (const auto& entry : signatures) calls += entry.second->calls;
  return calls >= kLastingCalls;
}

// Puts what was proven aside, and takes what was proven in the state that the module is in now. False: nothing was.
bool change_state(Region& region) {
  if (region.guard != nullptr && lasted(region.signatures)) {
    region.parked.insert(region.parked.begin(),
                         ParkedState{std::move(region.guard), std::move(region.casts), std::move(region.signatures)});
    if (region.parked.size() > kMostParked) region.parked.pop_back();
  }
  region.guard = nullptr;
  region.casts.weights.clear();
  region.signatures.clear();
  for (auto at = region.parked.begin(); at != region.parked.end(); ++at) {
    if (!at->guard->holds()) continue;
    region.guard = std::move(at->guard);
    region.casts = std::move(at->casts);
    region.signatures = std::move(at->signatures);
    region.parked.erase(at);
    return true;
  }
  return false;
}

}  // namespace

bool has_proofs(const Signatures& signatures) {
  return std::any_of(signatures.begin(), signatures.end(),
                     [](const auto& entry) { return entry.second->stage == Stage::kProven; });
}

Guarded ensure_guard(Region& region, const Call& call, refusal::Refusal& refusal) {
  if (region.guard != nullptr && region.guard->holds()) return Guarded::kHolds;
  const bool proofs = has_proofs(region.signatures);
  if (region.guard != nullptr) {
    const bool itself = region.function && call.self == nullptr;
    refusal =
        refusal::make(itself ? refusal::function_not_as_it_was : refusal::module_not_as_it_was, region.guard->change());
  }
  if (change_state(region)) return Guarded::kHolds;
  refusal::Refusal unguarded;
  region.guard = state::ModuleGuard::take(call.root, call.self, unguarded);
  if (region.guard == nullptr) {
    refusal = unguarded ? std::move(unguarded) : refusal::out_of_memory();
    // Before its first call a module may hold what that replaces, and that is too large, on the CPU (weight_norm).
    if (++region.guard_refusals < kMostRefusals) return Guarded::kNotNow;
    region.given_up = true;
    region.drop_proofs();
    return Guarded::kRefused;
  }
  region.guard_refusals = 0;
  if (refusal) {
    log_line(LogLevel::kDebug, "%s: %s", region.name.c_str(), refusal.text.c_str());
    region.reasons.add(refusal);
  }
  return proofs ? Guarded::kAnew : Guarded::kHolds;
}

}  // namespace grape::python::replay
