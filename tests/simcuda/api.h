// The driver's functions as the simulated driver implements them, declared from the list with NVIDIA's own types.
//
// Each is defined as `CUresult simcuda::api::SYMBOL(...)`: a definition that does not match the PFN type of its name
// and version in cudaTypedefs.h does not compile. exports.cc wraps each in the entry that counts calls and injects
// faults.
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cudaProfiler.h>
#include <cudaProfilerTypedefs.h>
#include <cudaTypedefs.h>

#include <type_traits>

namespace simcuda {

namespace api {
#define DRIVER(symbol, name, version) std::remove_pointer_t<PFN_##name##_v##version> symbol;
#define DRIVER_PT(symbol, name, version, pt_version, suffix)                                 \
  DRIVER(symbol, name, version)                                                              \
  static_assert(std::is_same_v<PFN_##name##_v##version, PFN_##name##_v##pt_version##suffix>, \
                "both default streams share one implementation");
#include "driver_list.inc"
#undef DRIVER
#undef DRIVER_PT
}  // namespace api

// True while a `_ptds` or `_ptsz` symbol runs on this thread: the default stream is the thread's own.
extern thread_local bool per_thread_default_stream;

}  // namespace simcuda

// Leaves the function with the error, if there is one.
#define SIM_TRY(expression)                                            \
  do {                                                                 \
    if (CUresult simcuda_result = (expression)) return simcuda_result; \
  } while (0)
