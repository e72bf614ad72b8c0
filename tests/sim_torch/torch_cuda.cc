// CUDA's part of the stable C interface (libtorch_cuda.so).
#include "tests/sim_torch/c10.h"

extern "C" SIM_EXPORT int aoti_torch_get_current_cuda_stream(std::int32_t, void** stream) {
  *stream = reinterpret_cast<void*>(c10::thread_state().stream);
  return 0;
}
