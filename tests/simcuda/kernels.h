// The kernels that the simulated device can run.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "api.h"

namespace simcuda {

struct KernelArguments {
  const unsigned char* parameters;  // laid out as described
  const unsigned* grid;
  const unsigned* block;
};

struct ParameterLayout {
  std::size_t offset;
  std::size_t size;
};

struct BuiltinKernel {
  const char* name;  // mangled, as a compiler would
  std::vector<ParameterLayout> parameters;
  CUresult (*run)(const KernelArguments& arguments);  // CUDA_ERROR_ILLEGAL_ADDRESS if it leaves its memory
  std::size_t parameter_bytes() const {
    return parameters.empty() ? 0 : parameters.back().offset + parameters.back().size;
  }
};

const BuiltinKernel* find_builtin(const std::string& name);
const std::vector<BuiltinKernel>& builtin_kernels();

}  // namespace simcuda
