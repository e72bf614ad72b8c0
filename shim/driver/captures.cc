#include "shim/driver/captures.h"

#include <errno.h>

#include "shim/driver/real_driver.h"
#include "shim/lifecycle/hot.h"

namespace grape::driver {

GRAPE_HOT std::atomic<int> g_captures{0};

bool is_capturing(CUstream stream, bool per_thread) noexcept {
  if (stream == nullptr && per_thread) stream = CU_STREAM_PER_THREAD;
  // The legacy default stream cannot be captured, and asking about it while another stream is, is an error.
  if (stream == nullptr || stream == CU_STREAM_LEGACY) return false;
  const int saved_errno = errno;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = real::call_cuStreamIsCapturing(stream, &status);
  errno = saved_errno;
  return result == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

}  // namespace grape::driver
