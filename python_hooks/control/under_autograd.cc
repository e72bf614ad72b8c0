#include "python_hooks/control/under_autograd.h"

#include "python_hooks/bridge/loaded.h"
#include "python_hooks/control/controller.h"
#include "python_hooks/discovery/outside.h"
#include "python_hooks/replay/clock.h"
#include "python_hooks/torch/autograd_state.h"
#include "shim/lifecycle/config.h"

namespace grape::python::control {
namespace {

constexpr std::uint64_t kTimedOf = 16;  // calls inside of others

double g_seconds = 0;  // with the GIL

double weight_of(const replay::Region& region) noexcept {
  if (discovery::thread_launches().depth == 0) return 1;
  return region.calls % kTimedOf == 0 ? static_cast<double>(kTimedOf) : 0;
}

void note_reason(replay::Region& region) noexcept {
  if (region.autograd_reason != report::Reasons::kNone) {
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

CountedCall::CountedCall(replay::Region& region, bool each) noexcept
    : region_(region), weight_(each ? 1 : weight_of(region)), began_(weight_ != 0 ? replay::now() : 0) {
  ++region_.calls;
  if (each) region_.times.begin(began_);
  region_.times.kind = report::Times::Kind::kOther;
  ++discovery::thread_launches().depth;
}

CountedCall::~CountedCall() noexcept {
  --discovery::thread_launches().depth;
  if (weight_ == 0) return;
  const double seconds = replay::now() - began_;
  region_.times.all += seconds * weight_;
  if (discovery::thread_launches().depth == 0) g_seconds += seconds;
}

bool runs_under_autograd(replay::Region& region) noexcept {
  if (config().strict || !torch::gradients_enabled()) return false;
  if (region.autograd.rests()) return true;
  if (!config().autograd || bridge::loaded() == nullptr) return !region.free_of_gradients;
  return bridge::loaded()->looks_for_anomalies();  // then it is each node that matters
}

Object* run_under_autograd(replay::Region& region, const replay::PlainCall& call) {
  const CountedCall counted(region, false);
  Object* result = nullptr;
  if (region.autograd.resting()) {
    result = replay::run_as_it_is(call);
  } else {
    const replay::Busy busy(region);
    result = replay::run_as_it_is(call);
    region.free_of_gradients = result != nullptr && !torch::leads_to_gradients(result);
    if (result != nullptr && !region.free_of_gradients) region.autograd.begin();
  }
  if (region.free_of_gradients) return result;
  ++region.fell_back;
  note_reason(region);
  return result;
}

}  // namespace grape::python::control
