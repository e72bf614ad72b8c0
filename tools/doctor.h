// `grape doctor`: does it work here, and if not, why?
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace grape::tools {

struct DoctorOptions {
  std::string library, python;
  bool json = false;
  std::vector<std::string> program;
};

CLI::App* add_doctor(CLI::App& app, DoctorOptions& options);
int run_doctor(const DoctorOptions& options);

// In a child under the library: what the driver says, as JSON on standard output.
int probe_driver();
// In a child under the library: is the library at `path` mapped? The exit status.
int is_loaded(const std::string& path);

}  // namespace grape::tools
