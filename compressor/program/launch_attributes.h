// Which bytes of a CUlaunchAttribute carry its value. The rest of it is whatever the caller had on its stack. The
// numbers are the driver's ABI (CUlaunchAttributeID), so that the core needs no header of CUDA's.
#pragma once

#include <cstdint>

namespace grape::program {

// Zeroes the bytes of one attribute (kAttributeBytes at `attribute`) that mean nothing. Attributes that are not known
// here are left as they are.
void clean_attribute(std::uint8_t* attribute);

}  // namespace grape::program
