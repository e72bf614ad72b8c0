// Orders work on one stream that was recorded on several: the work follows the other streams, and they wait for it.
// Calls the driver's real functions. One thread at a time per object; the streams' context is current.
#pragma once

#include <cuda.h>

#include <vector>

namespace grape::graphs {

class StreamOrder {
 public:
  StreamOrder() = default;
  ~StreamOrder();
  StreamOrder(const StreamOrder&) = delete;
  StreamOrder& operator=(const StreamOrder&) = delete;

  // Before the work: an error says that nothing is to be launched.
  CUresult begin(CUstream stream, const std::vector<CUstream>& others) noexcept;
  // Behind it: it runs, and cannot be taken back.
  CUresult end(CUstream stream, const std::vector<CUstream>& others) noexcept;
  // The context is gone: forget the handle without a driver call.
  void abandon() noexcept { event_ = nullptr; }

 private:
  CUevent event_ = nullptr;  // made when first needed
};

}  // namespace grape::graphs
