#include "tests/sim_torch/driver.h"

#include <dlfcn.h>

#include <map>
#include <mutex>
#include <string>

namespace simtorch {
namespace {

constexpr int kVersion = 12000;
constexpr char kImage[] =
    "SIMCUDA MODULE 1\n"
    "_Z9pointwise15PointwiseParams\n"
    "_Z6matmulPfPKfS1_iii\n"
    "_Z10reduce_sumPfPKfi\n"
    "_Z6affinePfPKf12AffineParamsi\n"
    "_Z6gatherPf10GatherDesc\n"
    "_Z7uniformPfiN2at15PhiloxCudaStateE\n"
    "_Z6jitterPfi\n"
    "_Z4copyPfPKfi\n"
    "_Z5delayj\n";

Driver load() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error("no CUDA driver");
  auto* get = reinterpret_cast<decltype(&cuGetProcAddress)>(dlsym(library, "cuGetProcAddress_v2"));
  if (get == nullptr) throw std::runtime_error("a CUDA driver without cuGetProcAddress_v2");
  Driver driver;
  // The header's macros name versions (cuMemAlloc_v2), cuGetProcAddress wants the name without.
  const auto find = [get](auto& place, std::string name) {
    name = name.substr(0, name.find("_v"));
    void* address = nullptr;
    CUdriverProcAddressQueryResult status{};
    if (get(name.c_str(), &address, kVersion, CU_GET_PROC_ADDRESS_DEFAULT, &status) != CUDA_SUCCESS ||
        address == nullptr) {
      throw std::runtime_error("the CUDA driver lacks " + name);
    }
    place = reinterpret_cast<std::remove_reference_t<decltype(place)>>(address);
  };
#define SIM_TORCH_TEXT(name) #name
#define SIM_TORCH_FIND(name) find(driver.name, SIM_TORCH_TEXT(name));
  SIM_TORCH_DRIVER(SIM_TORCH_FIND)
  return driver;
}

struct Context {
  Driver driver = load();
  CUcontext context = nullptr;
  CUlibrary library = nullptr;
  Context() {
    check(driver.cuInit(0), "cuInit");
    check(driver.cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    check(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent");
    check(driver.cuLibraryLoadData(&library, kImage, nullptr, nullptr, 0, nullptr, nullptr, 0), "cuLibraryLoadData");
  }
};

Context& context() {
  static auto* made = new Context;  // never destroyed
  return *made;
}

}  // namespace

const Driver& driver() {
  Context& made = context();
  thread_local bool current = false;
  if (!current) {
    check(made.driver.cuCtxSetCurrent(made.context), "cuCtxSetCurrent");
    current = true;
  }
  return made.driver;
}

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const std::string text = std::string(what) + " failed with error " + std::to_string(static_cast<int>(result));
  if (result == CUDA_ERROR_OUT_OF_MEMORY) throw c10::OutOfMemory(text);
  throw std::runtime_error(text);
}

CUfunction kernel(const char* name) {
  static std::mutex mutex;
  static std::map<std::string, CUkernel> known;
  const std::lock_guard<std::mutex> lock(mutex);
  CUkernel& found = known[name];
  if (found == nullptr) check(driver().cuLibraryGetKernel(&found, context().library, name), name);
  return reinterpret_cast<CUfunction>(found);
}

}  // namespace simtorch
