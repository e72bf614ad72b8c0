// The limit of a kernel's dynamic shared memory (CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES). cuDNN sets it before
// each launch to what that one needs. So it may be lower by the time that a node of the same kernel is made, and the
// driver refuses the node (CUDA_ERROR_INVALID_VALUE, seen with 13.0).
#pragma once

#include <cuda.h>

namespace grape::graphs {

// While it lives, the kernel may have what the node asks for. Those of one kernel end in the reverse order.
class SharedMemoryLimit {
 public:
  explicit SharedMemoryLimit(const CUDA_KERNEL_NODE_PARAMS& node) noexcept;
  ~SharedMemoryLimit();
  SharedMemoryLimit(const SharedMemoryLimit&) = delete;
  SharedMemoryLimit& operator=(const SharedMemoryLimit&) = delete;
  // Was it lower?
  bool raised() const noexcept { return raised_; }

 private:
  bool get(int& bytes) const noexcept;
  bool set(int bytes) const noexcept;

  const CUkernel kernel_;  // null: it is the function
  const CUfunction function_;
  CUdevice device_ = 0;
  int before_ = 0;
  bool raised_ = false;
};

}  // namespace grape::graphs
