// Demangles and shortens kernel names.
#pragma once

#include <string>
#include <unordered_map>

namespace grape::tools {

// The demangled name, or the name itself where it is not mangled, too long, or would demangle into more than 64 KiB
// (a name can be made so that its demangled form grows exponentially). Not thread-safe.
std::string demangle(const std::string& mangled);

// A demangled name without return type and parameter list, namespaces inside template arguments left out, and long
// template arguments cut: "at::native::vectorized_elementwise_kernel<4, FillFunctor<Half>, …>".
std::string short_name(const std::string& demangled);

// The same, each name made once.
class KernelNames {
 public:
  void show_full(bool full) { full_ = full; }
  bool full() const { return full_; }
  const std::string& demangled(const std::string& mangled) { return known(mangled).demangled; }
  // As text shows it: shortened unless full names are asked for.
  const std::string& shown(const std::string& mangled);

 private:
  struct Names {
    std::string demangled, shortened;
  };
  Names& known(const std::string& mangled);
  bool full_ = false;
  std::unordered_map<std::string, Names> names_;
};

}  // namespace grape::tools
