// The kernels of the application's graphs, with their parameters' places and their modules. One thread at a time;
// numbers are never reused.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "compressor/program/record.h"

namespace grape::virtual_execs {

struct KernelFunction {
  program::FunctionInfo info;
  std::uint64_t owner = 0;      // CUmodule or CUlibrary; 0: not known
  std::uint32_t bytes = 0;      // of the packed parameters
  bool kernel = false;          // a CUkernel: of no context
  bool gone = false;            // its code was unloaded
  bool can_be_rebuilt = false;  // a node with it was built, and read back as it was
};

class Functions {
 public:
  // The number of the function behind the handle, a CUfunction's or CUkernel's. Throws std::bad_alloc.
  std::uint32_t find(std::uint64_t handle);
  std::size_t size() const noexcept { return functions_.size(); }
  KernelFunction& operator[](std::uint32_t number) noexcept { return functions_[number]; }
  const KernelFunction& operator[](std::uint32_t number) const noexcept { return functions_[number]; }

  // The module or library is about to be unloaded: its handles may come again for others.
  void unload(std::uint64_t owner) noexcept;
  void forget(std::uint32_t number) noexcept;  // the same of one, with its context
  bool is_gone(std::uint64_t handle) const noexcept { return by_handle_.find(handle) == by_handle_.end(); }

 private:
  std::vector<KernelFunction> functions_;
  std::unordered_map<std::uint64_t, std::uint32_t> by_handle_;
};

}  // namespace grape::virtual_execs
