// How much memory PyTorch's allocator has in use on a device, and how much it may have. With the GIL; clears errors.
#pragma once

#include <cstdint>

namespace grape::python::torch {

struct MemoryState {
  std::uint64_t allocated = 0, peak = 0;  // bytes; the peak since the program reset it, or since the process began
  std::uint64_t reserved = 0;             // bytes that the allocator has of the driver's
  double fraction = 1;                    // of the device's memory that `reserved` may become (2.8 and later; else 1)
};

// torch._C._cuda_memoryStats() and _cuda_getMemoryFraction(). False: not known.
bool memory_state(std::int32_t device, MemoryState& out) noexcept;

}  // namespace grape::python::torch
