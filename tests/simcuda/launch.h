// Making a launch out of a call's arguments; for streams and for kernel nodes.
#pragma once

#include "work.h"

namespace simcuda {

struct LaunchShape {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
};

// Checks the shape and the attributes and copies the parameters, from `parameters` (one pointer each) or the packed
// buffer in `extra`. CUDA_ERROR_INVALID_HANDLE, _INVALID_VALUE.
CUresult make_kernel_work(CUfunction function, const LaunchShape& shape, void** parameters, void** extra,
                          const CUlaunchAttribute* attributes, unsigned attribute_count, KernelWork* work);

}  // namespace simcuda
