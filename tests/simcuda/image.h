// Images of modules and what modules and libraries do alike.
#pragma once

#include <string>

#include "module.h"

namespace simcuda {

constexpr int kMaxSharedBytes = 232448;  // of one block

// CUDA_ERROR_INVALID_IMAGE for what is no image of the simulated driver, or names a kernel that there is not.
CUresult parse_image(const char* text, CUcontext context, Image* image);
CUresult read_image_file(const char* path, std::string* text);  // CUDA_ERROR_FILE_NOT_FOUND
void release_image(const Image& image);
CUresult get_global(const Image& image, CUdeviceptr* address, size_t* bytes, const char* name);

CUmodule add_module(Image image, CUcontext context, bool of_library);
void remove_module(CUmodule handle);
CUresult get_function(CUfunction* function, CUmodule module, const std::string& name);

CUresult get_attribute(int* value, const Kernel& kernel, CUfunction_attribute attribute);
CUresult set_attribute(const Kernel& kernel, CUfunction_attribute attribute, int value);

}  // namespace simcuda
