// Follows which module a kernel's code came from, so that other processes can recognise the kernel by the module's
// content. Mode replay follows small images, and all images where GRAPE_CACHE asks for it. Any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/driver/driver_api.h"

namespace grape::driver {

extern std::atomic<bool> g_follows_code;
// Follows images up to that size from now on. Called once, before any image is loaded.
void follow_code(std::uint64_t most_bytes) noexcept;

// The wrappers report calls that succeeded; code_unloaded() comes before the call. `options`: of the compiler.
void code_loaded(CUmodule* module, const void* image, unsigned count = 0, const CUjit_option* options = nullptr,
                 void** = nullptr) noexcept;
void code_loaded(CUlibrary* library, const void* image, const CUjit_option* options, void**, unsigned count,
                 CUlibraryOption*, void**, unsigned) noexcept;
void code_unloaded(CUmodule module) noexcept;
void code_unloaded(CUlibrary library) noexcept;
void code_obtained(CUmodule* module, CUlibrary library) noexcept;
void code_obtained(CUfunction* function, CUkernel kernel) noexcept;

}  // namespace grape::driver
