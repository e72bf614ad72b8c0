// Orders work on one stream that was recorded on several: the work follows the other streams, and they wait for it.
// Calls the driver's real functions. One thread at a time per object; the streams' context is current.
#pragma once

#include <vector>

#include "shim/driver/real_driver.h"

namespace grape::graphs {

class StreamOrder {
 public:
  StreamOrder() = default;
  ~StreamOrder() {
    if (event_ != nullptr) driver::real::call_cuEventDestroy_v2(event_);
  }
  StreamOrder(const StreamOrder&) = delete;
  StreamOrder& operator=(const StreamOrder&) = delete;

  // Before the work: an error says that nothing is to be launched.
  CUresult begin(CUstream stream, const std::vector<CUstream>& others) noexcept {
    if (others.empty()) return CUDA_SUCCESS;
    CUresult result =
        event_ != nullptr ? CUDA_SUCCESS : driver::real::call_cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS) event_ = nullptr;
    for (std::size_t i = 0; i < others.size() && result == CUDA_SUCCESS; ++i) {
      result = driver::real::call_cuEventRecord(event_, others[i]);
      if (result == CUDA_SUCCESS) result = driver::real::call_cuStreamWaitEvent(stream, event_, 0);
    }
    return result;
  }

  // Behind it: it runs, and cannot be taken back.
  CUresult end(CUstream stream, const std::vector<CUstream>& others) noexcept {
    if (others.empty()) return CUDA_SUCCESS;
    bool ordered = driver::real::call_cuEventRecord(event_, stream) == CUDA_SUCCESS;
    for (const CUstream other : others) {
      ordered = ordered && driver::real::call_cuStreamWaitEvent(other, event_, 0) == CUDA_SUCCESS;
    }
    // The others find it done.
    if (ordered || driver::real::get_cuStreamSynchronize() == nullptr) return CUDA_SUCCESS;
    return driver::real::get_cuStreamSynchronize()(stream);
  }

  // The context is gone: forget the handle without a driver call.
  void abandon() noexcept { event_ = nullptr; }

 private:
  CUevent event_ = nullptr;  // made when first needed
};

}  // namespace grape::graphs
