// What the driver says about a kernel's handle, be it a CUfunction or a CUkernel. Any thread; asks the driver each
// time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/driver/driver_api.h"

namespace grape::driver {

struct FunctionInfo {
  const char* name = nullptr;  // mangled, the driver's; null: it does not tell
  bool kernel = false;         // a CUkernel
  std::uint64_t owner = 0;     // its CUmodule or, of a CUkernel, its CUlibrary; 0: not known
};

FunctionInfo function_info(CUfunction handle) noexcept;

// Where a parameter lies. CUDA_ERROR_INVALID_VALUE: there is none of that index.
CUresult parameter_info(CUfunction handle, bool kernel, std::uint32_t index, std::size_t* offset,
                        std::size_t* bytes) noexcept;

}  // namespace grape::driver
