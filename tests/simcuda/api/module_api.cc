// Modules and functions.
#include <cstdio>
#include <cstring>
#include <sstream>

#include "capture.h"
#include "context.h"
#include "handles.h"
#include "image.h"
#include "memory.h"
#include "module.h"

namespace simcuda {

namespace {

void unload_module(CUmodule handle) {
  const std::shared_ptr<Module> module = destroy_handle<Module>(handle);
  if (module == nullptr) return;
  for (const auto& [name, function] : module->functions) destroy_handle<Function>(function);
  if (!module->of_library) release_image(module->image);
}

// Every module's handle, to unload those of a context that goes away.
struct LoadedModules {
  std::mutex mutex;
  std::map<CUmodule, CUcontext> all;
};
LoadedModules& loaded() {
  static LoadedModules& made = *new LoadedModules;
  return made;
}

CUresult load(CUmodule* handle, const char* text) {
  Context* context = nullptr;
  SIM_TRY(current_context(&context));
  if (handle == nullptr || text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Image image;
  SIM_TRY(parse_image(text, context->handle, &image));
  *handle = add_module(std::move(image), context->handle, false);
  return CUDA_SUCCESS;
}

std::shared_ptr<Function> function_of(CUfunction handle) { return share_handle<Function>(handle); }

}  // namespace

CUmodule add_module(Image image, CUcontext context, bool of_library) {
  auto module = std::make_shared<Module>();
  module->image = std::move(image);
  module->context = context;
  module->of_library = of_library;
  const CUmodule handle = create_handle<CUmodule>(module);
  std::lock_guard<std::mutex> lock(loaded().mutex);
  loaded().all[handle] = context;
  return handle;
}

void remove_module(CUmodule handle) {
  {
    std::lock_guard<std::mutex> lock(loaded().mutex);
    loaded().all.erase(handle);
  }
  unload_module(handle);
}

void unload_context_modules(CUcontext context) {
  std::vector<CUmodule> gone;
  {
    std::lock_guard<std::mutex> lock(loaded().mutex);
    for (const auto& [module, owner] : loaded().all) {
      if (owner == context) gone.push_back(module);
    }
  }
  for (const CUmodule module : gone) remove_module(module);
}

CUresult get_function(CUfunction* function, CUmodule handle, const std::string& name) {
  const std::shared_ptr<Module> module = share_handle<Module>(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::lock_guard<std::mutex> lock(module->mutex);
  const auto known = module->functions.find(name);
  if (known != module->functions.end()) {
    *function = known->second;
    return CUDA_SUCCESS;
  }
  for (const auto& [kernel_name, kernel] : module->image.kernels) {
    if (kernel_name != name) continue;
    auto made = std::make_shared<Function>();
    made->kernel = kernel;
    made->module = handle;
    *function = module->functions[name] = create_handle<CUfunction>(made);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

std::shared_ptr<const Kernel> kernel_of(CUfunction handle) {
  if (const Function* function = find_handle<Function>(handle)) return function->kernel;
  if (const LibraryKernel* kernel = find_handle<LibraryKernel>(handle)) return kernel->kernel;
  return nullptr;
}

CUresult parameter_info(const Kernel& kernel, size_t index, size_t* offset, size_t* size) {
  const std::vector<ParameterLayout>& parameters = kernel.builtin->parameters;
  if (offset == nullptr || index >= parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = parameters[index].offset;
  if (size != nullptr) *size = parameters[index].size;
  return CUDA_SUCCESS;
}

CUresult get_attribute(int* value, const Kernel& kernel, CUfunction_attribute attribute) {
  if (value == nullptr || attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
  *value = kernel.attributes[attribute].load();
  return CUDA_SUCCESS;
}

CUresult set_attribute(const Kernel& kernel, CUfunction_attribute attribute, int value) {
  if (attribute < CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || attribute >= CU_FUNC_ATTRIBUTE_MAX) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && (value < 0 || value > kMaxSharedBytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  kernel.attributes[attribute] = value;
  return CUDA_SUCCESS;
}

CUresult api::cuModuleLoad(CUmodule* module, const char* path) {
  Context* context = nullptr;
  SIM_TRY(current_context(&context));
  std::string text;
  SIM_TRY(read_image_file(path, &text));
  return load(module, text.c_str());
}
CUresult api::cuModuleLoadData(CUmodule* module, const void* image) {
  return load(module, static_cast<const char*>(image));
}
CUresult api::cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned count, CUjit_option* options,
                                 void** values) {
  if (count > 0 && (options == nullptr || values == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  return load(module, static_cast<const char*>(image));
}
CUresult api::cuModuleLoadFatBinary(CUmodule* module, const void* image) {
  return load(module, static_cast<const char*>(image));
}

CUresult api::cuModuleUnload(CUmodule handle) {
  Context* context = nullptr;
  SIM_TRY(current_context(&context));
  const std::shared_ptr<Module> module = share_handle<Module>(handle);
  if (module == nullptr || module->of_library) return CUDA_ERROR_INVALID_HANDLE;
  SIM_TRY(check_unsafe_call());
  remove_module(handle);
  return CUDA_SUCCESS;
}

CUresult api::cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  Context* context = nullptr;
  SIM_TRY(current_context(&context));
  if (function == nullptr || name == nullptr || *name == '\0') return CUDA_ERROR_INVALID_VALUE;
  return get_function(function, module, name);
}

CUresult api::cuModuleGetFunctionCount(unsigned* count, CUmodule handle) {
  const std::shared_ptr<Module> module = share_handle<Module>(handle);
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *count = static_cast<unsigned>(module->image.kernels.size());
  return CUDA_SUCCESS;
}

CUresult api::cuModuleEnumerateFunctions(CUfunction* functions, unsigned count, CUmodule handle) {
  const std::shared_ptr<Module> module = share_handle<Module>(handle);
  if (functions == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  for (unsigned i = 0; i < count && i < module->image.kernels.size(); ++i) {
    SIM_TRY(get_function(&functions[i], handle, module->image.kernels[i].first));
  }
  return CUDA_SUCCESS;
}

CUresult api::cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule handle, const char* name) {
  const std::shared_ptr<Module> module = share_handle<Module>(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return get_global(module->image, address, bytes, name);
}

CUresult api::cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  if (!initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

// As the real driver: a CUkernel is not accepted here, though launches take it.
CUresult api::cuFuncGetName(const char** name, CUfunction handle) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Function> function = function_of(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *name = function->kernel->name.c_str();
  return CUDA_SUCCESS;
}

CUresult api::cuFuncGetModule(CUmodule* module, CUfunction handle) {
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Function> function = function_of(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *module = function->module;
  return CUDA_SUCCESS;
}

CUresult api::cuFuncGetParamInfo(CUfunction handle, size_t index, size_t* offset, size_t* size) {
  const std::shared_ptr<Function> function = function_of(handle);
  return function == nullptr ? CUDA_ERROR_INVALID_HANDLE : parameter_info(*function->kernel, index, offset, size);
}

CUresult api::cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  const std::shared_ptr<const Kernel> kernel = kernel_of(handle);
  return kernel == nullptr ? CUDA_ERROR_INVALID_HANDLE : get_attribute(value, *kernel, attribute);
}

CUresult api::cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  const std::shared_ptr<const Kernel> kernel = kernel_of(handle);
  return kernel == nullptr ? CUDA_ERROR_INVALID_HANDLE : set_attribute(*kernel, attribute, value);
}

CUresult api::cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache) {
  return kernel_of(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}
CUresult api::cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig) {
  return kernel_of(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult api::cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction handle) {
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (function_of(handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *state = CU_FUNCTION_LOADING_STATE_LOADED;
  return CUDA_SUCCESS;
}
CUresult api::cuFuncLoad(CUfunction handle) {
  return function_of(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

}  // namespace simcuda
