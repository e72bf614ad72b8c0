// `grape report`: what GRAPE_REPORT has written, for people.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>

namespace grape::tools {

struct ReportOptions {
  std::string file, output;
  std::size_t limit = 20;  // modules; 0: all
  bool json = false, all = false, pager = false;
};

CLI::App* add_report(CLI::App& app, ReportOptions& options);
// Throws Failure.
int run_report(const ReportOptions& options);

}  // namespace grape::tools
