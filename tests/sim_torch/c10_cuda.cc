// CUDA's part of the simulated PyTorch's core (libc10_cuda.so).
#include "tests/sim_torch/c10.h"

namespace c10 {
namespace cuda {

SIM_EXPORT int GetDevice(std::int8_t* device);
int GetDevice(std::int8_t* device) {
  *device = 0;
  return 0;
}

}  // namespace cuda
}  // namespace c10
