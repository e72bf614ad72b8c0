// The size of an image of device code. The driver is given only the address where the image begins.
#pragma once

#include <cstdint>

namespace grape::driver {

// Bytes of a fat binary, its wrapper (then `image` moves to what it wraps), a cubin, or text without its end. 0: it is
// of no kind that is known. Reads what the driver reads.
std::uint64_t code_bytes(const void*& image) noexcept;

}  // namespace grape::driver
