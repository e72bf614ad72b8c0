// Kernel names for people.
#pragma once

#include <string>

namespace grape::tools {

// The demangled name, or the name itself where it is not mangled, too long, or would demangle into more than 64 KiB
// (a name can be made so that its demangled form grows exponentially). Not thread-safe.
std::string demangle(const std::string& mangled);

// A demangled name without return type and parameter list, namespaces inside template arguments left out, and long
// template arguments cut: "at::native::vectorized_elementwise_kernel<4, FillFunctor<Half>, …>".
std::string short_name(const std::string& demangled);

}  // namespace grape::tools
