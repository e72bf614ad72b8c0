// Describes kernels and the machine in terms that hold in other processes. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "compressor/cache/cache.h"

namespace grape::driver {

// The digest of a kernel (CUfunction or CUkernel), from its name and its module's content. False: not known. The module
// was loaded from a file, linked, or compiled with options that change it; or it is too large, or no code is followed.
bool kernel_content(std::uint64_t handle, cache::Digest& digest) noexcept;

// Modules and libraries that were loaded so far, from memory, while code is followed.
std::uint64_t code_loads() noexcept;

// Driver and devices, in lines of "key=value". Throws std::bad_alloc.
std::string machine();

}  // namespace grape::driver
