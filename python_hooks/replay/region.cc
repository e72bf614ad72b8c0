#include "python_hooks/replay/region.h"

#include <algorithm>

#include "python_hooks/replay/run.h"

namespace grape::python::replay {
namespace {

constexpr std::uint32_t kLastingCalls = 2;  // of a state of the module, for it to be kept
constexpr std::size_t kMostParked = 3;      // states of a region's module besides the present one

// Worth keeping: a module that is another one in each call leaves one call in each of its states.
bool lasted(const Signatures& signatures) {
  std::uint32_t calls = 0;
  for (const auto& entry : signatures) calls += entry.second->calls;
  return calls >= kLastingCalls;
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
  if (guard != nullptr && lasted(signatures)) {
    parked.insert(parked.begin(), std::move(static_cast<ProvenState&>(*this)));
    if (parked.size() > kMostParked) parked.pop_back();
  }
  static_cast<ProvenState&>(*this) = {};
  const auto holding =
      std::find_if(parked.begin(), parked.end(), [](const ProvenState& state) { return state.guard->holds(); });
  if (holding == parked.end()) return false;
  static_cast<ProvenState&>(*this) = std::move(*holding);
  parked.erase(holding);
  return true;
}

void Evidence::count(report::StageCounts& counts) const noexcept {
  ProvenState::count(counts);
  for (const ProvenState& state : parked) state.count(counts);
}

void Region::drop_proofs() noexcept {
  prefetch.clear();
  evidence.signatures.clear();
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
