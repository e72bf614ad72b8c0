#include "shim/driver/function_info.h"

#include "shim/driver/real_driver.h"

namespace grape::driver {

FunctionInfo function_info(CUfunction handle) noexcept {
  FunctionInfo result;
  auto* function_name = real::get_cuFuncGetName();
  if (function_name == nullptr) return result;
  auto* as_kernel = reinterpret_cast<CUkernel>(handle);
  if (function_name(&result.name, handle) == CUDA_SUCCESS) {
    CUmodule module = nullptr;
    auto* owner = real::get_cuFuncGetModule();
    if (owner != nullptr && owner(&module, handle) == CUDA_SUCCESS) {
      result.owner = reinterpret_cast<std::uint64_t>(module);
    }
    return result;
  }
  result.name = nullptr;
  auto* kernel_name = real::get_cuKernelGetName();
  if (kernel_name == nullptr || kernel_name(&result.name, as_kernel) != CUDA_SUCCESS) {
    result.name = nullptr;
    return result;
  }
  result.kernel = true;
  CUlibrary library = nullptr;
  auto* owner = real::get_cuKernelGetLibrary();
  if (owner != nullptr && owner(&library, as_kernel) == CUDA_SUCCESS) {
    result.owner = reinterpret_cast<std::uint64_t>(library);
  }
  return result;
}

CUresult parameter_info(CUfunction handle, bool kernel, std::uint32_t index, std::size_t* offset,
                        std::size_t* bytes) noexcept {
  if (kernel) {
    auto* get = real::get_cuKernelGetParamInfo();
    return get != nullptr ? get(reinterpret_cast<CUkernel>(handle), index, offset, bytes) : CUDA_ERROR_NOT_SUPPORTED;
  }
  auto* get = real::get_cuFuncGetParamInfo();
  return get != nullptr ? get(handle, index, offset, bytes) : CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace grape::driver
