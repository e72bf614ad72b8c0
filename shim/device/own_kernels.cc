#include "shim/device/own_kernels.h"

#include <algorithm>
#include <new>

#include "shim/driver/current_context.h"
#include "shim/driver/listeners.h"
#include "shim/driver/real_driver.h"

namespace grape::device {
namespace {

namespace real = driver::real;

// Never destroyed. The lock is held while a context's kernels are loaded, so that they are loaded once.
std::mutex g_mutex;
OwnKernels* g_first = nullptr;

void unload(OwnKernels& kernels) noexcept {
  if (kernels.sums != 0) real::call_cuMemFree_v2(kernels.sums);
  if (kernels.module != nullptr) real::call_cuModuleUnload(kernels.module);
}

bool load(OwnKernels& kernels, refusal::Refusal& error) {
  auto* load_module = real::get_cuModuleLoadData();
  auto* get_function = real::get_cuModuleGetFunction();
  auto* allocate = real::get_cuMemAlloc_v2();
  if (load_module == nullptr || get_function == nullptr || allocate == nullptr) {
    error = refusal::make(refusal::driver_without_functions);
    return false;
  }
  constexpr std::size_t kBytes = OwnKernels::kSums * sizeof(std::uint64_t) + OwnKernels::kChunks * sizeof(HashChunk);
  const RelaxedCapture relaxed;
  if (failed(load_module(&kernels.module, kOwnKernels), "cuModuleLoadData", error)) return false;
  return !failed(get_function(&kernels.copy, kernels.module, kCopyKernel), "cuModuleGetFunction", error) &&
         !failed(get_function(&kernels.fill, kernels.module, kFillKernel), "cuModuleGetFunction", error) &&
         !failed(get_function(&kernels.hash, kernels.module, kHashKernel), "cuModuleGetFunction", error) &&
         !failed(get_function(&kernels.spread, kernels.module, kSpreadKernel), "cuModuleGetFunction", error) &&
         !failed(allocate(&kernels.sums, kBytes), "cuMemAlloc", error);
}

OwnKernels* find_or_load(CUcontext context, refusal::Refusal& error) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  for (OwnKernels* kernels = g_first; kernels != nullptr; kernels = kernels->next) {
    if (kernels->context == context) return kernels;
  }
  auto* kernels = new OwnKernels;
  kernels->context = context;
  if (!load(*kernels, error)) {
    unload(*kernels);
    delete kernels;
    return nullptr;
  }
  kernels->next = g_first;
  g_first = kernels;
  return kernels;
}

}  // namespace

OwnKernels* own_kernels(refusal::Refusal& error) noexcept {
  try {
    CUcontext context = driver::current_context();
    if (context == nullptr) {
      error = refusal::make(refusal::no_current_context);
      return nullptr;
    }
    return find_or_load(context, error);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void forget_own_kernels(CUcontext context) noexcept {
  const std::lock_guard<std::mutex> lock(g_mutex);
  for (OwnKernels* kernels = g_first; kernels != nullptr; kernels = kernels->next) {
    if (kernels->context == context) kernels->context = nullptr;
  }
}

std::uint32_t own_kernel_blocks(std::uint64_t bytes, std::uint64_t bytes_per_thread) noexcept {
  constexpr std::uint64_t kMost = 1056;  // eight for each multiprocessor of the largest devices
  const std::uint64_t per_block = bytes_per_thread * kOwnKernelBlock;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>((bytes + per_block - 1) / per_block, 1, kMost));
}

std::string name_of_error(CUresult result) {
  const char* name = nullptr;
  if (real::call_cuGetErrorName(result, &name) == CUDA_SUCCESS && name != nullptr) return name;
  return "error " + std::to_string(static_cast<int>(result));
}

refusal::Refusal driver_error(const char* call, CUresult result) {
  return refusal::make(refusal::driver_error, call, name_of_error(result));
}

bool failed(CUresult result, const char* call, refusal::Refusal& error) {
  if (result == CUDA_SUCCESS) return false;
  error = driver_error(call, result);
  return true;
}

RelaxedCapture::RelaxedCapture() noexcept {
  changed_ = real::call_cuThreadExchangeStreamCaptureMode(&mode_) == CUDA_SUCCESS;
}

RelaxedCapture::~RelaxedCapture() {
  if (changed_) real::call_cuThreadExchangeStreamCaptureMode(&mode_);
}

namespace {
__attribute__((constructor)) void listen() { driver::add_context_listener(forget_own_kernels); }
}  // namespace

}  // namespace grape::device
