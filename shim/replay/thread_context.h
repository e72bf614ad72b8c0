// A thread that did no work on a device yet has no context; the CUDA runtime makes the device's primary one current for
// it with its first work. A replay may be that.
#pragma once

#include <cstdint>

namespace grape::replay {

// Is a context current, if need be the primary one of `device` from now on? One that is current stays. Any thread.
bool have_context(std::int32_t device) noexcept;

}  // namespace grape::replay
