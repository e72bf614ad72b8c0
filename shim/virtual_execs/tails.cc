#include "shim/virtual_execs/tails.h"

#include <algorithm>

#include "shim/driver/real_driver.h"

namespace grape::virtual_execs {
namespace real = driver::real;

Tail::~Tail() {
  auto* destroy = real::get_cuEventDestroy_v2();
  if (event != nullptr && destroy != nullptr) destroy(event);
}

std::shared_ptr<Tail> Tails::of(const Place& place, CUcontext context) {
  const auto found = std::find_if(all_.begin(), all_.end(),
                                  [&](const auto& tail) { return tail->place == place && tail->context == context; });
  if (found != all_.end()) return *found;
  auto* create = real::get_cuEventCreate();
  auto made = std::make_shared<Tail>();
  all_.reserve(all_.size() + 1);
  if (create == nullptr || create(&made->event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
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
  auto* start = real::get_cuEventRecord();
  auto* wait = real::get_cuStreamSynchronize();
  if (start != nullptr && start(tail.event, tail.place.stream) == CUDA_SUCCESS) return;
  if (wait != nullptr) wait(tail.place.stream);
}

void come_behind(Tail& tail, CUstream stream) noexcept {
  if (tail.event == nullptr) return;
  auto* query = real::get_cuEventQuery();
  auto* wait = real::get_cuStreamWaitEvent();
  if (query != nullptr && query(tail.event) == CUDA_SUCCESS) return;
  if (wait != nullptr && wait(stream, tail.event, 0) == CUDA_SUCCESS) return;
  if (auto* stop = real::get_cuEventSynchronize()) stop(tail.event);
}

}  // namespace grape::virtual_execs
