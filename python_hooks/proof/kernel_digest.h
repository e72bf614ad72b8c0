// Which code a kernel is, whatever its handle. With the GIL.
#pragma once

#include "compressor/cache/cache.h"
#include "compressor/program/program.h"

namespace grape::python::replay {

// False: it is not known where its code comes from, or without GRAPE_CACHE that is too large to have been read
// (shim/driver/kernel_content.h). Remembered by handle until code is unloaded. Throws std::bad_alloc.
bool kernel_digest(const program::FunctionInfo& function, cache::Digest& digest);

}  // namespace grape::python::replay
