// Kernels and the machine in terms that hold in other processes. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "compressor/cache/cache.h"

namespace grape::driver {

// Of a kernel (CUfunction or CUkernel) by its name and its module's content. False: not known (it was loaded from a
// file, linked, compiled with options that change it; it is larger than what is followed; or no code is).
bool kernel_content(std::uint64_t handle, cache::Digest& digest) noexcept;

// Modules and libraries that were loaded so far, from memory, while code is followed.
std::uint64_t code_loads() noexcept;

// Driver and devices, in lines of "key=value". Throws std::bad_alloc.
std::string machine();

}  // namespace grape::driver
