// Libraries and kernels: images that belong to no context.
#include "capture.h"
#include "context.h"
#include "handles.h"
#include "image.h"

namespace simcuda {

namespace {

CUresult load(CUlibrary* handle, const char* text) {
  if (!initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  if (handle == nullptr || text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto library = std::make_shared<Library>();
  SIM_TRY(parse_image(text, nullptr, &library->image));
  *handle = create_handle<CUlibrary>(library);
  return CUDA_SUCCESS;
}

CUresult get_kernel(CUkernel* result, CUlibrary handle, const std::string& name) {
  const std::shared_ptr<Library> library = share_handle<Library>(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::lock_guard<std::mutex> lock(library->mutex);
  const auto known = library->kernels.find(name);
  if (known != library->kernels.end()) {
    *result = known->second;
    return CUDA_SUCCESS;
  }
  for (const auto& [kernel_name, kernel] : library->image.kernels) {
    if (kernel_name != name) continue;
    auto made = std::make_shared<LibraryKernel>();
    made->kernel = kernel;
    made->library = handle;
    *result = library->kernels[name] = create_handle<CUkernel>(made);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

}  // namespace

CUresult api::cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option*, void**, unsigned, CUlibraryOption*,
                                void**, unsigned) {
  return load(library, static_cast<const char*>(code));
}

CUresult api::cuLibraryLoadFromFile(CUlibrary* library, const char* path, CUjit_option*, void**, unsigned,
                                    CUlibraryOption*, void**, unsigned) {
  std::string text;
  SIM_TRY(read_image_file(path, &text));
  return load(library, text.c_str());
}

CUresult api::cuLibraryUnload(CUlibrary handle) {
  const std::shared_ptr<Library> library = destroy_handle<Library>(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  for (const auto& entry : library->kernels) destroy_handle<LibraryKernel>(entry.second);
  for (const auto& entry : library->modules) remove_module(entry.second);
  release_image(library->image);
  return CUDA_SUCCESS;
}

CUresult api::cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  if (kernel == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return get_kernel(kernel, library, name);
}

CUresult api::cuLibraryGetKernelCount(unsigned* count, CUlibrary handle) {
  const std::shared_ptr<Library> library = share_handle<Library>(handle);
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *count = static_cast<unsigned>(library->image.kernels.size());
  return CUDA_SUCCESS;
}

CUresult api::cuLibraryEnumerateKernels(CUkernel* kernels, unsigned count, CUlibrary handle) {
  const std::shared_ptr<Library> library = share_handle<Library>(handle);
  if (kernels == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  for (unsigned i = 0; i < count && i < library->image.kernels.size(); ++i) {
    SIM_TRY(get_kernel(&kernels[i], handle, library->image.kernels[i].first));
  }
  return CUDA_SUCCESS;
}

CUresult api::cuLibraryGetModule(CUmodule* module, CUlibrary handle) {
  Context* context = nullptr;
  SIM_TRY(current_context(&context));
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Library> library = share_handle<Library>(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::lock_guard<std::mutex> lock(library->mutex);
  CUmodule& made = library->modules[context->handle];
  if (made == nullptr || share_handle<Module>(made) == nullptr)
    made = add_module(library->image, context->handle, true);
  *module = made;
  return CUDA_SUCCESS;
}

CUresult api::cuKernelGetFunction(CUfunction* function, CUkernel handle) {
  const std::shared_ptr<LibraryKernel> kernel = share_handle<LibraryKernel>(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUmodule module = nullptr;
  SIM_TRY(api::cuLibraryGetModule(&module, kernel->library));
  return get_function(function, module, kernel->kernel->name);
}

CUresult api::cuKernelGetLibrary(CUlibrary* library, CUkernel handle) {
  const std::shared_ptr<LibraryKernel> kernel = share_handle<LibraryKernel>(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *library = kernel->library;
  return CUDA_SUCCESS;
}

CUresult api::cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary handle, const char* name) {
  const std::shared_ptr<Library> library = share_handle<Library>(handle);
  return library == nullptr ? CUDA_ERROR_INVALID_HANDLE : get_global(library->image, address, bytes, name);
}

CUresult api::cuLibraryGetManaged(CUdeviceptr*, size_t*, CUlibrary handle, const char*) {
  return share_handle<Library>(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_NOT_FOUND;
}

CUresult api::cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel handle, CUdevice device) {
  SIM_TRY(check_device(device));
  const std::shared_ptr<LibraryKernel> kernel = share_handle<LibraryKernel>(handle);
  return kernel == nullptr ? CUDA_ERROR_INVALID_HANDLE : get_attribute(value, *kernel->kernel, attribute);
}

CUresult api::cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel handle, CUdevice device) {
  SIM_TRY(check_device(device));
  const std::shared_ptr<LibraryKernel> kernel = share_handle<LibraryKernel>(handle);
  return kernel == nullptr ? CUDA_ERROR_INVALID_HANDLE : set_attribute(*kernel->kernel, attribute, value);
}

CUresult api::cuKernelSetCacheConfig(CUkernel handle, CUfunc_cache, CUdevice device) {
  SIM_TRY(check_device(device));
  return share_handle<LibraryKernel>(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult api::cuKernelGetName(const char** name, CUkernel handle) {
  const std::shared_ptr<LibraryKernel> kernel = share_handle<LibraryKernel>(handle);
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *name = kernel->kernel->name.c_str();
  return CUDA_SUCCESS;
}

CUresult api::cuKernelGetParamInfo(CUkernel handle, size_t index, size_t* offset, size_t* size) {
  const std::shared_ptr<LibraryKernel> kernel = share_handle<LibraryKernel>(handle);
  return kernel == nullptr ? CUDA_ERROR_INVALID_HANDLE : parameter_info(*kernel->kernel, index, offset, size);
}

}  // namespace simcuda
