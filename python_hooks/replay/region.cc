#include "python_hooks/replay/region.h"

#include "python_hooks/replay/run.h"

namespace grape::python::replay {

void Region::drop_proofs() noexcept {
  prefetch.clear();
  signatures.clear();
  parked.clear();
}

void Region::give_up() noexcept {
  given_up = true;
  last_counts = count_stages(*this);
  drop_proofs();
}

Region::~Region() {
  drop_proofs();
  for (const Arena& arena : arenas) {
    if (arena.tensor != nullptr) g_api.Py_DecRef(arena.tensor);
  }
  drop(replaced);
  for (Object* reference : {weak_root, weak_self}) {
    if (reference != nullptr) g_api.Py_DecRef(reference);
  }
}

StageCounts count_stages(const Region& region) noexcept {
  StageCounts counts = region.last_counts;
  const auto add = [&](const Signatures& signatures) {
    for (const auto& [hash, signature] : signatures) {
      switch (signature->stage) {
        case Stage::kSeen:
          ++counts.seen;
          break;
        case Stage::kObserved:
          ++counts.observed;
          break;
        case Stage::kProven:
          ++counts.proven;
          break;
        case Stage::kGivenUp:
          ++counts.given_up;
          break;
      }
    }
  };
  add(region.signatures);
  for (const ParkedState& state : region.parked) add(state.signatures);
  return counts;
}

store::Store& programs() {
  static auto& store = *new store::Store;
  return store;
}

}  // namespace grape::python::replay
