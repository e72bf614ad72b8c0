// The backward pass of a checked call (GRAPE_VALIDATE): eager's ran, and the proven one runs in the shadow, on what the
// shadow of the call left for it.
#include <algorithm>
#include <utility>

#include "python_hooks/proof/backward_watch.h"
#include "python_hooks/proof/shadow_inputs.h"
#include "python_hooks/replay/proof_guards.h"
#include "shim/lifecycle/log.h"

namespace grape::python::proof {
namespace {

// Which block it is in the one program says nothing of the other.
bool same_for_autograd(const replay::MadeContribution& a, replay::MadeContribution b) noexcept {
  b.block = a.block;
  return a == b;
}

// Does eager's pass read memory that the proven one does not know? Then that of the call was replaced before it.
bool reads_other_memory(const program::Program& eager, const program::Program& proven) {
  return std::any_of(eager.statics.begin(), eager.statics.end(), [&](const program::StaticBlock& block) {
    return std::none_of(proven.statics.begin(), proven.statics.end(),
                        [&](const program::StaticBlock& known) { return known.address == block.address; });
  });
}

}  // namespace

// False: `passes_->refusal`.
bool BackwardWatch::check_in_shadow(replay::ProvenPass& pass, refusal::Refusal& difference) {
  const replay::OnWorkDevice device(call_.work);
  const auto whole = pass.program.whole();
  if (!device.entered()) return refusal::refuse(passes_->refusal, refusal::no_context);
  program::Bindings kept = std::exchange(pass.bindings, {});
  std::vector<grape::replay::Shadow::Fresh> fresh;
  auto found = grape::replay::Shadow::Found::kDifferent;
  const bool placed = whole != nullptr && place(*whole, pass, fresh);
  const bool ran = placed && run_in_shadow(pass, watched_by(*whole), std::move(fresh), found, difference);
  pass.bindings = std::move(kept);
  if (!placed) return refusal::refuse(passes_->refusal, refusal::no_device_memory);
  if (is_good(found)) difference = {};
  return ran;
}

// False: `difference`; none: `passes_->refusal`. Nothing is said of a pass for which a replay would have made the call
// again, nor of those that come after: the call's own nodes compute them.
bool BackwardWatch::is_replayed_as(const replay::ObservedPass& observed, refusal::Refusal& difference) {
  const auto& proven = passes_->proven;
  const auto known = std::find_if(proven.begin(), proven.end(), [&](const auto& e) { return e->key == observed.key; });
  made_again_ = made_again_ || known == proven.end() || !replay::is_usable(**known);
  if (made_again_) return true;
  replay::ProvenPass& pass = **known;
  if (!std::equal(pass.contributions.begin(), pass.contributions.end(), observed.contributions.begin(),
                  observed.contributions.end(), same_for_autograd))
    return refusal::refuse(difference, refusal::gradient_elsewhere);
  if (!check_in_shadow(pass, difference)) return false;
  const auto whole = difference ? pass.program.whole() : nullptr;
  if (whole != nullptr && reads_other_memory(observed.program, *whole)) {
    difference = {};
    return refusal::refuse(passes_->refusal, refusal::memory_replaced);
  }
  if (difference) return false;
  log_line(LogLevel::kDebug, "%s: a backward pass was checked", call_.name.c_str());
  return true;
}

// `observed`: null: it is not known what eager's pass did.
void BackwardWatch::check(const replay::ObservedPass* observed) {
  refusal::Refusal difference;
  refusal::Refusal kept = std::exchange(passes_->refusal, {});
  made_again_ = made_again_ || observed == nullptr;
  const bool same = observed != nullptr && is_replayed_as(*observed, difference);
  const refusal::Refusal unchecked = std::exchange(passes_->refusal, std::move(kept));
  if (difference) {
    passes_->differs = refusal::make(refusal::other_pass_than_replay, difference.text);
    log_line(LogLevel::kError, "%s: GRAPE_VALIDATE: a replay differs from the call itself: %s", call_.name.c_str(),
             passes_->differs.text.c_str());
  } else if (!same) {
    const refusal::Refusal& why = unchecked ? unchecked : pass_.refusal;
    notice("GRAPE_VALIDATE: a backward pass of %s could not be checked: %s", call_.name.c_str(), why.text.c_str());
  }
}

}  // namespace grape::python::proof
