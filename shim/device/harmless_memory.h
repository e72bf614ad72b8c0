// Device memory that nobody uses, for words that look like addresses and should be padding.
#pragma once

#include <cstdint>

namespace grape::device {

// 4 GiB of addresses whose first one has a lower half of zeros: whatever the lower half of a word is, together with
// this upper half it is an address here, as that of an array of up to 1 GiB. All of it is the same 32 MiB. 0: the
// driver or the device cannot do that. Made once for each device, and never freed. Any thread, with the device's
// context current.
std::uint64_t harmless_memory(int device) noexcept;

}  // namespace grape::device
