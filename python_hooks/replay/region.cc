#include "python_hooks/replay/region.h"

#include <algorithm>

#include "python_hooks/replay/run.h"

namespace grape::python::replay {
namespace {

constexpr std::uint32_t kLastingCalls = 2;  // of a state of the module, for it to be kept
constexpr std::size_t kMostParked = 3;      // states of a region's module besides the present one
// Each state that is parked is walked to find the one that holds. A program that calls train() and eval() in each step
// has two, of a call each. A module that counts its calls has a new one in each: there it is tried now and then.
constexpr std::uint32_t kMostUnknown = 16, kTriedAgain = 64, kTries = 4;

bool lasted(const Signatures& signatures) {
  std::uint32_t calls = 0;
  for (const auto& entry : signatures) calls += entry.second->calls;
  return calls >= kLastingCalls;
}

bool may_come_again(std::uint32_t unknown_states) {
  return unknown_states < kMostUnknown || unknown_states % kTriedAgain < kTries;
}

}  // namespace

bool ProvenState::has_proofs() const {
  return std::any_of(signatures.begin(), signatures.end(),
                     [](const auto& entry) { return entry.second->stage == Stage::kProven; });
}

void ProvenState::count(report::StageCounts& counts) const noexcept {
  // As in Stage.
  std::size_t* const places[] = {&counts.seen, &counts.observed, &counts.observed, &counts.proven, &counts.given_up};
  for (const auto& entry : signatures) ++*places[static_cast<std::size_t>(entry.second->stage)];
}

bool Evidence::change_state() {
  const auto holding =
      std::find_if(parked.begin(), parked.end(), [](const ProvenState& state) { return state.guard->holds(); });
  const bool known = holding != parked.end();
  ProvenState now;
  if (known) {
    now = std::move(*holding);
    parked.erase(holding);
  }
  if (guard != nullptr && (may_come_again(unknown_states) || lasted(signatures))) {
    parked.insert(parked.begin(), std::move(static_cast<ProvenState&>(*this)));
    if (parked.size() > kMostParked) parked.pop_back();
  }
  static_cast<ProvenState&>(*this) = std::move(now);
  unknown_states = known ? 0 : unknown_states + 1;
  return known;
}

void Evidence::count(report::StageCounts& counts) const noexcept {
  ProvenState::count(counts);
  for (const ProvenState& state : parked) state.count(counts);
}

void Region::drop_proofs() noexcept {
  prefetch.clear();
  evidence.signatures.clear();
  evidence.families.clear();
  evidence.parked.clear();
}

void Region::give_up() noexcept {
  given_up = true;
  evidence.count(statistics.signatures);
  drop_proofs();
}

Region::~Region() {
  drop_proofs();
  drop(replaced);
  for (Object* reference : {weak_root, weak_self}) {
    if (reference != nullptr) g_api.Py_DecRef(reference);
  }
}

store::Store& programs() {
  static auto& store = *new store::Store;
  return store;
}

}  // namespace grape::python::replay
