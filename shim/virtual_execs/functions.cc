#include "shim/virtual_execs/functions.h"

#include <algorithm>

#include "shim/driver/function_info.h"

namespace grape::virtual_execs {
namespace {

constexpr std::uint32_t kMostParameters = 4096;
constexpr std::size_t kMostBytes = 64 << 10;  // twice what any device takes

void read_layout(KernelFunction& function, bool kernel) {
  const auto handle = reinterpret_cast<CUfunction>(function.info.handle);
  for (std::uint32_t i = 0; i <= kMostParameters; ++i) {
    std::size_t offset = 0, bytes = 0;
    const CUresult result = driver::parameter_info(handle, kernel, i, &offset, &bytes);
    function.info.has_layout = result == CUDA_ERROR_INVALID_VALUE;  // no such parameter: the end
    if (result != CUDA_SUCCESS || offset > kMostBytes || bytes > kMostBytes - offset) return;
    function.info.parameters.push_back({static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(bytes)});
    function.bytes = std::max(function.bytes, static_cast<std::uint32_t>(offset + bytes));
  }
}

}  // namespace

std::uint32_t Functions::find(std::uint64_t handle) {
  const auto known = by_handle_.find(handle);
  if (known != by_handle_.end()) return known->second;
  KernelFunction function;
  function.info.handle = handle;
  const driver::FunctionInfo info = driver::function_info(reinterpret_cast<CUfunction>(handle));
  if (info.name != nullptr) function.info.name = info.name;
  function.owner = info.owner;
  function.kernel = info.kernel;
  read_layout(function, info.kernel);
  functions_.push_back(std::move(function));
  const auto number = static_cast<std::uint32_t>(functions_.size() - 1);
  by_handle_.emplace(handle, number);
  return number;
}

void Functions::forget(std::uint32_t number) noexcept {
  KernelFunction& function = functions_[number];
  if (function.gone) return;
  function.gone = true;
  by_handle_.erase(function.info.handle);
}

void Functions::unload(std::uint64_t owner) noexcept {
  for (std::uint32_t number = 0; number < functions_.size(); ++number) {
    if (functions_[number].owner == owner) forget(number);
  }
}

}  // namespace grape::virtual_execs
