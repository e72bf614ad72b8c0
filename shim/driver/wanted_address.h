// Where device addresses are to lie that are reserved without a wish. The driver gives the lowest free ones (580.159:
// from 0x302000000 on). Later allocations of the program lie beside them. There a pair of 32-bit numbers is an address.
// By {0x88888889, 5} cuBLAS's nvjet kernels divide by 15. A proof would move it with the block that lies there.
#pragma once

#include <cstdint>

namespace grape::driver {

// Multiples of 4 GiB with an upper half from 0x5a5d on. It is larger than shifts and most sizes, and smaller than the
// bits of a float. Each call gives others. When all were given it begins anew: most are free by then, and a driver
// takes them for a hint. 0, no wish: `alignment` is larger, or `bytes` are too many. Any thread.
std::uint64_t wanted_address(std::uint64_t bytes, std::uint64_t alignment) noexcept;

}  // namespace grape::driver
