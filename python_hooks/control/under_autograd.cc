#include "python_hooks/control/under_autograd.h"

#include "python_hooks/control/controller.h"
#include "python_hooks/discovery/outside.h"
#include "python_hooks/replay/clock.h"
#include "python_hooks/torch/autograd_state.h"
#include "shim/lifecycle/config.h"

namespace grape::python::replay {
namespace {

constexpr std::uint64_t kTimedOf = 16;  // calls inside of others

double g_seconds = 0;  // with the GIL

double weight_of(const Region& region) noexcept {
  if (thread_launches().depth == 0) return 1;
  return region.calls % kTimedOf == 0 ? static_cast<double>(kTimedOf) : 0;
}

void note_reason(Region& region) noexcept {
  if (region.autograd_reason != Reasons::kNone) {
    ++region.autograd_again;
    return;
  }
  try {
    region.reasons.add(refusal::make(refusal::under_autograd));
    region.autograd_reason = region.reasons.last_index();
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace

double seconds_in_regions() noexcept { return g_seconds; }

CountedCall::CountedCall(Region& region, bool each) noexcept
    : region_(region), weight_(each ? 1 : weight_of(region)), began_(weight_ != 0 ? now() : 0) {
  ++region_.calls;
  if (each) region_.times.begin(began_);
  region_.times.kind = Times::Kind::kOther;
  ++thread_launches().depth;
}

CountedCall::~CountedCall() noexcept {
  --thread_launches().depth;
  if (weight_ == 0) return;
  const double seconds = now() - began_;
  region_.times.all += seconds * weight_;
  if (thread_launches().depth == 0) g_seconds += seconds;
}

bool runs_under_autograd(Region& region) noexcept {
  if (config().strict || !state::gradients_enabled()) return false;
  return region.autograd.rests() || !region.free_of_gradients;
}

Object* run_under_autograd(Region& region, const PlainCall& call) {
  const CountedCall counted(region, false);
  Object* result = nullptr;
  if (region.autograd.resting()) {
    result = run_as_it_is(call);
  } else {
    const Busy busy(region);
    result = run_as_it_is(call);
    region.free_of_gradients = result != nullptr && !state::leads_to_gradients(result);
    if (result != nullptr && !region.free_of_gradients) region.autograd.begin();
  }
  if (region.free_of_gradients) return result;
  ++region.fell_back;
  note_reason(region);
  return result;
}

}  // namespace grape::python::replay
