#include "shim/virtual_execs/functions.h"

#include <algorithm>

#include "shim/driver/function_info.h"

namespace grape::virtual_execs {

std::uint32_t Functions::find(std::uint64_t handle) {
  const auto known = by_handle_.find(handle);
  if (known != by_handle_.end()) return known->second;
  KernelFunction function;
  function.info.handle = handle;
  const driver::FunctionInfo info = driver::function_info(reinterpret_cast<CUfunction>(handle));
  if (info.name != nullptr) function.info.name = info.name;
  function.owner = info.owner;
  function.kernel = info.kernel;
  const auto keep = [&](std::uint32_t, std::uint32_t offset, std::uint32_t bytes) {
    function.info.parameters.push_back({offset, bytes});
    function.bytes = std::max(function.bytes, offset + bytes);
    return true;
  };
  function.info.has_layout = driver::for_each_parameter(reinterpret_cast<CUfunction>(handle), info.kernel, keep);
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
