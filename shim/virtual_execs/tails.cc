#include "shim/virtual_execs/tails.h"

#include <algorithm>

#include "shim/driver/real_driver.h"

namespace grape::virtual_execs {
namespace real = driver::real;

Tail::~Tail() {
  if (event != nullptr) real::call_cuEventDestroy_v2(event);
}

std::shared_ptr<Tail> Tails::of(const Place& place, CUcontext context) {
  const auto found = std::find_if(all_.begin(), all_.end(),
                                  [&](const auto& tail) { return tail->place == place && tail->context == context; });
  if (found != all_.end()) return *found;
  auto made = std::make_shared<Tail>();
  all_.reserve(all_.size() + 1);
  if (real::call_cuEventCreate(&made->event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
    made->event = nullptr;
    return nullptr;
  }
  made->place = place;
  made->context = context;
  all_.push_back(made);
  return made;
}

void Tails::stream_goes(CUstream stream) noexcept {
  for (const auto& tail : all_) {
    if (tail->place.stream == stream) tail->place = {};
  }
  // Those that a graph has yet to follow stay: their events go with their context.
  all_.erase(std::remove_if(all_.begin(), all_.end(),
                            [](const auto& tail) { return tail->place.stream == nullptr && tail.use_count() == 1; }),
             all_.end());
}

void Tails::context_gone(CUcontext context) noexcept {
  for (const auto& tail : all_) {
    if (tail->context == context) tail->event = nullptr;  // with the context
  }
  all_.erase(std::remove_if(all_.begin(), all_.end(), [](const auto& tail) { return tail->event == nullptr; }),
             all_.end());
}

void mark_end(Tail& tail) noexcept {
  if (real::call_cuEventRecord(tail.event, tail.place.stream) != CUDA_SUCCESS) {
    real::call_cuStreamSynchronize(tail.place.stream);
  }
}

void come_behind(Tail& tail, CUstream stream) noexcept {
  if (tail.event == nullptr) return;
  if (real::call_cuEventQuery(tail.event) == CUDA_SUCCESS) return;
  if (real::call_cuStreamWaitEvent(stream, tail.event, 0) == CUDA_SUCCESS) return;
  real::call_cuEventSynchronize(tail.event);
}

}  // namespace grape::virtual_execs
