// Modules, libraries, kernels and functions.
//
// A module's image is text: the line "SIMCUDA MODULE 1", then one kernel a line, by the name of a built-in kernel, or
// as "NAME = BUILTIN" to give it another name; "global NAME BYTES" makes a variable; '#' starts a comment. It ends
// with a NUL byte (in a file: with the file).
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "api.h"
#include "kernels.h"

namespace simcuda {

// One kernel of a loaded image. A CUkernel and all CUfunctions made of it share it.
struct Kernel {
  std::string name;
  const BuiltinKernel* builtin = nullptr;
  mutable std::atomic<int> attributes[CU_FUNC_ATTRIBUTE_MAX] = {};
};

struct Global {
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
};

struct Image {
  std::vector<std::pair<std::string, std::shared_ptr<Kernel>>> kernels;  // in the order of the text
  std::map<std::string, Global> globals;
};

// A CUfunction.
struct Function {
  std::shared_ptr<Kernel> kernel;
  CUmodule module = nullptr;
};

struct Module {
  Image image;
  CUcontext context = nullptr;
  bool of_library = false;
  std::mutex mutex;
  std::map<std::string, CUfunction> functions;
};

// A CUkernel.
struct LibraryKernel {
  std::shared_ptr<Kernel> kernel;
  CUlibrary library = nullptr;
};

struct Library {
  Image image;
  std::mutex mutex;
  std::map<std::string, CUkernel> kernels;
  std::map<CUcontext, CUmodule> modules;
};

// A parameter's place: CUDA_ERROR_INVALID_VALUE past the last parameter.
CUresult parameter_info(const Kernel& kernel, size_t index, size_t* offset, size_t* size);

// The kernel behind a CUfunction, or behind a CUkernel that was cast to one. Null for an invalid handle.
std::shared_ptr<const Kernel> kernel_of(CUfunction handle);

void unload_context_modules(CUcontext context);

}  // namespace simcuda
