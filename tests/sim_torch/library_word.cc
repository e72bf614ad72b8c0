// A library that keeps a word of the host's memory and hands it to its kernels, as cuDNN does. Built under two names.
#include "tests/sim_torch/driver.h"

namespace simtorch {
namespace {

// Made at its first use, by a call of this library's own.
float* word(std::size_t bytes) {
  static float* made = nullptr;
  if (made == nullptr) {
    void* pinned = nullptr;
    check(driver().cuMemAllocHost(&pinned, bytes), "cuMemAllocHost");
    made = static_cast<float*>(pinned);
    *made = 0;
  }
  return made;
}

}  // namespace
}  // namespace simtorch

extern "C" SIM_EXPORT float* library_word(std::size_t bytes) { return simtorch::word(bytes); }

extern "C" SIM_EXPORT void library_copy_word(CUdeviceptr to, std::size_t bytes, CUstream stream) {
  using namespace simtorch;
  CUdeviceptr from = reinterpret_cast<CUdeviceptr>(word(bytes));
  int count = 1;
  void* parameters[] = {&to, &from, &count};
  const char* name = "_Z4copyPfPKfi";
  check(driver().cuLaunchKernel(kernel(name), 1, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr), name);
}
