// Which code a kernel is, in terms that hold in other processes: the content of the module that it came from. Followed
// in replay mode: small images, and all where GRAPE_CACHE asks for it. Any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/driver/driver_api.h"

namespace grape::driver {

extern std::atomic<bool> g_follows_code;
// From here on, images up to that size; once, before any is loaded.
void follow_code(std::uint64_t most_bytes) noexcept;

// What wrappers tell: after a call that succeeded, and before code is unloaded. `options`: of the compiler.
void code_loaded(CUmodule* module, const void* image, unsigned count = 0, const CUjit_option* options = nullptr,
                 void** = nullptr) noexcept;
void code_loaded(CUlibrary* library, const void* image, const CUjit_option* options, void**, unsigned count,
                 CUlibraryOption*, void**, unsigned) noexcept;
void code_unloaded(CUmodule module) noexcept;
void code_unloaded(CUlibrary library) noexcept;
void code_obtained(CUmodule* module, CUlibrary library) noexcept;
void code_obtained(CUfunction* function, CUkernel kernel) noexcept;

}  // namespace grape::driver
