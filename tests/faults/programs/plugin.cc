// A shared library that uses CUDA: its calls leave through its own relocations.
#include <dlfcn.h>

#include "client.h"

extern "C" __attribute__((visibility("default"))) std::uint64_t plugin_compute(int steps) {
  // As the CUDA runtime does: the driver, with its threads, stays when the plugin goes.
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) return 0;
  CUcontext context = nullptr;
  if (cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == nullptr) client::open_context();
  client::Chain chain;
  chain.run(steps);
  return chain.result();
}
