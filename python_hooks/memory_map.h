// What the process's memory may be used for.
#pragma once

namespace grape::python {

// May the page at `address` be written? Reads /proc/self/maps: not for hot paths.
bool is_writable(const void* address) noexcept;

}  // namespace grape::python
