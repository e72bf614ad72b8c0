#include "shim/virtual_execs/lanes.h"

#include <algorithm>

#include "shim/driver/real_driver.h"

namespace grape::virtual_execs {
namespace {

namespace real = driver::real;

// Ours have the ordinary priority: what the application wants done before other work does not belong there.
bool has_ordinary_priority(CUstream stream) noexcept {
  if (stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) return true;
  int priority = 0;
  return real::call_cuStreamGetPriority(stream, &priority) == CUDA_SUCCESS && priority == 0;
}

}  // namespace

bool Lanes::suffice(const Sequence& sequence) {
  streams_.reserve(kMostLanes - 1);
  events_.reserve(sequence.events);
  // Not ordered by the default stream: it is events that order them, and nothing else.
  for (CUstream made = nullptr; streams_.size() + 1 < sequence.lanes; streams_.push_back(made)) {
    if (real::call_cuStreamCreate(&made, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) return false;
  }
  for (CUevent made = nullptr; events_.size() < sequence.events; events_.push_back(made)) {
    if (real::call_cuEventCreate(&made, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return false;
  }
  return true;
}

bool Lanes::take(const std::shared_ptr<Tail>& tail) noexcept {
  if (last_ != nullptr && !(last_->place == tail->place)) {
    if (real::call_cuEventQuery(last_->event) != CUDA_SUCCESS) return false;
  }
  last_ = tail;
  return true;
}

CUresult Lanes::wait(CUstream stream, std::uint32_t event) const noexcept {
  return real::call_cuStreamWaitEvent(stream, events_[event], 0);
}

CUresult Lanes::record(std::uint32_t event, CUstream stream) const noexcept {
  return real::call_cuEventRecord(events_[event], stream);
}

void Lanes::join(CUstream application) const noexcept {
  for (const CUstream own : streams_) {
    // A wait is for what was recorded last when it was asked for: one event does for all.
    if (record(0, own) == CUDA_SUCCESS && wait(application, 0) == CUDA_SUCCESS) continue;
    real::call_cuStreamSynchronize(own);
  }
}

std::shared_ptr<Lanes> AllLanes::of(const std::shared_ptr<Tail>& tail, const Sequence& sequence) {
  if (!has_ordinary_priority(tail->place.stream)) return nullptr;
  auto found =
      std::find_if(all_.begin(), all_.end(), [&](const auto& lanes) { return lanes->context() == tail->context; });
  if (found == all_.end()) found = all_.insert(found, std::make_shared<Lanes>(tail->context));
  return (*found)->suffice(sequence) && (*found)->take(tail) ? *found : nullptr;
}

void AllLanes::context_gone(CUcontext context) noexcept {
  all_.erase(std::remove_if(all_.begin(), all_.end(), [&](const auto& lanes) { return lanes->context() == context; }),
             all_.end());
}

}  // namespace grape::virtual_execs
