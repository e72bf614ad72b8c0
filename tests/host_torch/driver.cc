#include "tests/host_torch/driver.h"

#include <dlfcn.h>

#include <string>

namespace host_torch {
namespace {

constexpr int kVersion = 12090;  // whose functions have the arguments that the header says

struct Context {
  Driver functions;
  GetProcAddress get = nullptr;
  CUcontext context = nullptr;
  bool works = false;

  Context() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    get = library != nullptr ? reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress_v2")) : nullptr;
    works = get != nullptr && find_all() && functions.cuInit(0) == CUDA_SUCCESS &&
            functions.cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS;
  }

 private:
  // The header's macros name versions (cuMemAlloc_v2), cuGetProcAddress wants the name without.
  template <typename Function>
  bool find(Function& place, std::string name) const {
    void* address = nullptr;
    CUdriverProcAddressQueryResult status{};
    const CUresult result =
        get(name.substr(0, name.find("_v")).c_str(), &address, kVersion, CU_GET_PROC_ADDRESS_DEFAULT, &status);
    place = reinterpret_cast<Function>(address);
    return result == CUDA_SUCCESS && address != nullptr;
  }
  bool find_all() {
    bool found = true;
#define HOST_TORCH_TEXT(name) #name
#define HOST_TORCH_FIND(name) found = find(functions.name, HOST_TORCH_TEXT(name)) && found;
    HOST_TORCH_DRIVER(HOST_TORCH_FIND)
    return found;
  }
};

Context& context() noexcept {
  static auto* made = new Context;  // never destroyed
  return *made;
}

}  // namespace

const Driver* driver() noexcept {
  Context& made = context();
  if (!made.works) return nullptr;
  thread_local bool current = false;
  CUcontext other = nullptr;  // another device's, say
  if (!current) current = made.functions.cuCtxGetCurrent(&other) == CUDA_SUCCESS && other != nullptr;
  if (!current) current = made.functions.cuCtxSetCurrent(made.context) == CUDA_SUCCESS;
  return &made.functions;
}

GetProcAddress get_proc_address() noexcept { return context().get; }

}  // namespace host_torch
