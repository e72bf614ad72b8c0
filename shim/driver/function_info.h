// Asks the driver for the name, the owner and the parameters of a kernel. The handle is a CUfunction or a CUkernel. Any
// thread; nothing is cached.
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

// Where a parameter lies in the buffer of all of them. CUDA_ERROR_INVALID_VALUE: there is none of that index.
CUresult parameter_info(CUfunction handle, bool kernel, std::uint32_t index, std::size_t* offset,
                        std::size_t* bytes) noexcept;

constexpr std::uint32_t kMostParameters = 4096;
constexpr std::uint32_t kMostParameterBytes = 64 << 10;  // twice what any device takes

// Calls use(index, offset, bytes) for each parameter until it returns false. Returns false unless these were all.
template <class Use>
bool for_each_parameter(CUfunction handle, bool kernel, const Use& use) {
  for (std::uint32_t index = 0; index <= kMostParameters; ++index) {
    std::size_t offset = 0, bytes = 0;
    const CUresult result = parameter_info(handle, kernel, index, &offset, &bytes);
    if (result == CUDA_ERROR_INVALID_VALUE) return true;  // no such parameter: the end
    if (result != CUDA_SUCCESS || index == kMostParameters || offset > kMostParameterBytes ||
        bytes > kMostParameterBytes - offset ||
        !use(index, static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(bytes))) {
      return false;
    }
  }
  return false;
}

}  // namespace grape::driver
