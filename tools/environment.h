// The GRAPE_ variables, checked before a program is started: the library only warns, the launcher refuses.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shim/lifecycle/config.h"

namespace grape::tools {

// What the library makes of them. Never null.
std::unique_ptr<Config> read_environment(const char* const* environment);

// What is wrong with the GRAPE_ variables of `environment` (null-terminated, as environ); empty: nothing.
std::vector<std::string> environment_complaints(const char* const* environment);

}  // namespace grape::tools
