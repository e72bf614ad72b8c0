#include "shim/graphs/upload_ahead.h"

#include <mutex>
#include <new>
#include <vector>

#include "shim/device/own_kernels.h"
#include "shim/driver/current_context.h"
#include "shim/driver/listeners.h"
#include "shim/driver/real_driver.h"

namespace grape::graphs {
namespace {

namespace real = driver::real;

struct UploadStream {
  CUcontext context = nullptr;
  CUstream stream = nullptr;
};
std::mutex g_mutex;

// Never destroyed.
std::vector<UploadStream>& streams() {
  static auto& all = *new std::vector<UploadStream>;
  return all;
}

// That of the current context; null: the driver gives none.
CUstream upload_stream() {
  CUcontext context = nullptr;
  if (driver::current_context(context) != CUDA_SUCCESS) return nullptr;
  const std::lock_guard<std::mutex> lock(g_mutex);
  for (const UploadStream& one : streams()) {
    if (one.context == context) return one.stream;
  }
  streams().reserve(streams().size() + 1);
  CUstream stream = nullptr;
  // A stream that the default one does not wait for. Asked for once: null stays null.
  if (real::call_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) stream = nullptr;
  streams().push_back({context, stream});
  return stream;
}

}  // namespace

UploadAhead::~UploadAhead() {
  if (event_ != nullptr) real::call_cuEventDestroy_v2(event_);
}

void UploadAhead::begin(CUgraphExec exec) noexcept {
  if (real::get_cuStreamWaitEvent() == nullptr) return;
  try {
    const device::RelaxedCapture relaxed;
    CUstream stream = upload_stream();
    if (stream == nullptr) return;
    if (event_ == nullptr && real::call_cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
      event_ = nullptr;
    if (event_ == nullptr || real::call_cuGraphUpload(exec, stream) != CUDA_SUCCESS) return;
    pending_ = real::call_cuEventRecord(event_, stream) == CUDA_SUCCESS;
    // Without the event the launch could not be told to come after it.
    if (!pending_) real::call_cuStreamSynchronize(stream);
  } catch (const std::bad_alloc&) {
    // Then the launch does it.
  }
}

void UploadAhead::order(CUstream stream) noexcept {
  if (!pending_) return;
  pending_ = false;
  const device::RelaxedCapture relaxed;  // asking is what another thread's capture may forbid
  if (real::call_cuEventQuery(event_) == CUDA_SUCCESS) return;
  if (real::call_cuStreamWaitEvent(stream, event_, 0) == CUDA_SUCCESS) return;
  // Whatever the error is, the launch meets it as well.
  real::call_cuEventSynchronize(event_);
}

void forget_upload_stream(CUcontext context) noexcept {
  const std::lock_guard<std::mutex> lock(g_mutex);
  for (UploadStream& one : streams()) {
    if (one.context == context) one = {};
  }
}

namespace {
__attribute__((constructor)) void listen() { driver::add_context_listener(forget_upload_stream); }
}  // namespace

}  // namespace grape::graphs
