// Where device addresses are to lie that are reserved without a wish. The driver gives the lowest free ones (580.159:
// from 0x302000000 on), and later allocations of the program lie beside them. There a pair of 32-bit numbers in a
// kernel's parameters is an address: {0x88888889, 5}, with which cuBLAS's nvjet kernels divide by 15. A proof would
// move it with the block that lies there.
#pragma once

#include <cstdint>

namespace grape::driver {

// Addresses with an upper half from 0x5a5d on: larger than shifts and most sizes, smaller than the bits of a float.
// Each call gives others, multiples of 4 GiB; 0, no wish: there are no more, or `alignment` is larger. Any thread.
std::uint64_t wanted_address(std::uint64_t bytes, std::uint64_t alignment) noexcept;

}  // namespace grape::driver
