// The GRAPE_ variables, checked before a program is started: the library only warns, the launcher refuses.
#pragma once

#include <string>
#include <vector>

namespace grape::tools {

// What is wrong with the GRAPE_ variables of `environment` (null-terminated, as environ); empty: nothing.
std::vector<std::string> environment_complaints(const char* const* environment);

}  // namespace grape::tools
