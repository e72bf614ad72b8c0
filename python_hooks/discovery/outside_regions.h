// Makes regions of the functions that launch most outside of modules without gradients, while the program runs, where
// GRAPE_REGIONS is not set or has `auto`. Each is proven before it is replayed, like those that the user names. A
// function that cannot be proven is no region any more, and the functions that it calls are looked at instead.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "python_hooks/interpreter/cpython.h"

namespace grape::python::discovery {

// Makes a function a region, under the name by which it was found. With the GIL. False: it cannot be one, its calls
// would not be seen, or it is one already.
using MakeRegion = bool (*)(Object* function, const char* name) noexcept;
// Until then no function becomes a region. With the GIL.
void find_regions_with(MakeRegion make) noexcept;

extern std::atomic<bool> g_look_due;

// After the stack of a launch without gradients was sampled; any thread, with or without the GIL.
void note_sample() noexcept;

// With the GIL, between calls.
void look_for_regions() noexcept;
inline void look_for_regions_if_due() noexcept {
  if (__builtin_expect(g_look_due.load(std::memory_order_relaxed), 0)) look_for_regions();
}

// Those that were found, as GRAPE_REGIONS would name them. With the GIL.
const std::string& found_regions() noexcept;

}  // namespace grape::python::discovery
