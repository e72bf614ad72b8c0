#include "shim/driver/function_info.h"

#include "shim/driver/real_driver.h"

namespace grape::driver {

FunctionInfo function_info(CUfunction handle) noexcept {
  FunctionInfo result;
  if (real::get_cuFuncGetName() == nullptr) return result;
  auto* as_kernel = reinterpret_cast<CUkernel>(handle);
  if (real::call_cuFuncGetName(&result.name, handle) == CUDA_SUCCESS) {
    CUmodule module = nullptr;
    if (real::call_cuFuncGetModule(&module, handle) == CUDA_SUCCESS) {
      result.owner = reinterpret_cast<std::uint64_t>(module);
    }
    return result;
  }
  result.name = nullptr;
  if (real::call_cuKernelGetName(&result.name, as_kernel) != CUDA_SUCCESS) {
    result.name = nullptr;
    return result;
  }
  result.kernel = true;
  CUlibrary library = nullptr;
  if (real::call_cuKernelGetLibrary(&library, as_kernel) == CUDA_SUCCESS) {
    result.owner = reinterpret_cast<std::uint64_t>(library);
  }
  return result;
}

CUresult parameter_info(CUfunction handle, bool kernel, std::uint32_t index, std::size_t* offset,
                        std::size_t* bytes) noexcept {
  return kernel ? real::call_cuKernelGetParamInfo(reinterpret_cast<CUkernel>(handle), index, offset, bytes)
                : real::call_cuFuncGetParamInfo(handle, index, offset, bytes);
}

}  // namespace grape::driver
