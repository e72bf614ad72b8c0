// Identifies the build of this library.
#pragma once

#include <string>

namespace grape::lifecycle {

// The linker's build id in hexadecimal; "": the linker gave none. Throws std::bad_alloc.
std::string build_id();

}  // namespace grape::lifecycle
