// The CUDA context that is current on a thread. A thread has none before its first work on a device; the CUDA runtime
// then makes the device's primary context current. A replay may be that first work. PyTorch's operators make the
// context of their tensors' device current for a moment if it is not; so do their replays.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace grape::device {

// Is a context current, if need be the primary one of `device` from now on? One that is current stays. Any thread.
bool have_context(std::int32_t device) noexcept;

// The primary context of a device; null: it has none that is alive, or the driver does not say. Any thread.
CUcontext primary_context(std::int32_t device) noexcept;

// Makes a context current on this thread until it goes. Null, or the one that is current: nothing is done.
class ContextScope {
 public:
  explicit ContextScope(CUcontext context) noexcept : context_(context) {
    if (context != nullptr) enter();
  }
  ~ContextScope() { leave(); }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

  bool entered() const noexcept { return result_ == CUDA_SUCCESS; }  // is it current, where one was asked for?
  CUresult result() const noexcept { return result_; }
  // The thread is as it was before, until again(), which may fail: entered() tells.
  void leave() noexcept;
  void again() noexcept {
    if (context_ != nullptr) enter();
  }

 private:
  void enter() noexcept;

  CUcontext context_, before_ = nullptr;
  CUresult result_ = CUDA_SUCCESS;
  bool pushed_ = false;
};

}  // namespace grape::device
