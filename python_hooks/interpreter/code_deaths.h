// Tells when code objects die, since their addresses are used again. One filter for the process, without locks. When a
// code object dies that any thread may know, an epoch is bumped, and every thread forgets its addresses.
#pragma once

#include <atomic>
#include <cstdint>

namespace grape::python {

// Compared by each thread with the value it last saw, before it trusts its caches.
extern std::atomic<std::uint32_t> g_code_epoch;

// From now on the death of the code object at this address bumps the epoch. Call with an epoch read before, and forget
// the address when the epoch has moved. Any thread, no GIL.
void remember_code(std::uintptr_t address) noexcept;

// With the GIL: watches the destructor of code objects. Once.
void watch_code_deaths() noexcept;

}  // namespace grape::python
