#include "shim/graphs/stream_order.h"

#include "shim/driver/real_driver.h"

namespace grape::graphs {

namespace real = driver::real;

StreamOrder::~StreamOrder() {
  if (event_ != nullptr) real::call_cuEventDestroy_v2(event_);
}

CUresult StreamOrder::begin(CUstream stream, const std::vector<CUstream>& others) noexcept {
  if (others.empty()) return CUDA_SUCCESS;
  CUresult result = event_ != nullptr ? CUDA_SUCCESS : real::call_cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING);
  if (result != CUDA_SUCCESS) event_ = nullptr;
  for (std::size_t i = 0; i < others.size() && result == CUDA_SUCCESS; ++i) {
    result = real::call_cuEventRecord(event_, others[i]);
    if (result == CUDA_SUCCESS) result = real::call_cuStreamWaitEvent(stream, event_, 0);
  }
  return result;
}

CUresult StreamOrder::end(CUstream stream, const std::vector<CUstream>& others) noexcept {
  if (others.empty()) return CUDA_SUCCESS;
  bool ordered = real::call_cuEventRecord(event_, stream) == CUDA_SUCCESS;
  for (const CUstream other : others) {
    ordered = ordered && real::call_cuStreamWaitEvent(other, event_, 0) == CUDA_SUCCESS;
  }
  // The others find it done.
  if (ordered || real::get_cuStreamSynchronize() == nullptr) return CUDA_SUCCESS;
  return real::get_cuStreamSynchronize()(stream);
}

}  // namespace grape::graphs
