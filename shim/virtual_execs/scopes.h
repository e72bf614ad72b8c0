// What our own driver calls need around them.
#pragma once

#include "shim/interpose/real_driver.h"
#include "shim/replay/own_kernels.h"

namespace grape::virtual_execs {

// Makes a context current for the scope.
class ContextScope {
 public:
  explicit ContextScope(CUcontext context) noexcept {
    CUcontext current = nullptr;
    auto* get = interpose::real::get_cuCtxGetCurrent();
    auto* push = interpose::real::get_cuCtxPushCurrent_v2();
    if (get != nullptr && get(&current) == CUDA_SUCCESS && current == context) return;
    result_ = push != nullptr ? push(context) : CUDA_ERROR_NOT_SUPPORTED;
    pushed_ = result_ == CUDA_SUCCESS;
  }
  ~ContextScope() {
    CUcontext popped = nullptr;
    if (pushed_ && interpose::real::get_cuCtxPopCurrent_v2() != nullptr) {
      interpose::real::get_cuCtxPopCurrent_v2()(&popped);
    }
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  CUresult result() const noexcept { return result_; }

 private:
  CUresult result_ = CUDA_SUCCESS;
  bool pushed_ = false;
};

using replay::RelaxedCapture;

}  // namespace grape::virtual_execs
