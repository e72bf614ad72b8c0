// CUDA's headers with all versions of all types. Plain <cuda.h> renames functions by macros: include this file first.
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#include <cudaProfilerTypedefs.h>
#include <cudaTypedefs.h>

#if CUDA_VERSION < 13000
#error "Grape's list of driver functions is that of CUDA 13.0: newer headers do, older ones lack some types."
#endif
