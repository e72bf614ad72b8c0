// The commands of `grape`. add_ makes a subcommand, whose options end in `options`; run_ returns the exit status, or
// throws Failure.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>
#include <vector>

#include "tools/views/views.h"

namespace grape::tools {

// `grape run`: starts a program with the library preloaded, in this process's place.
struct RunOptions {
  std::string output, range, mode, stacks, regions, exclude, library, report, validate, cache;
  bool force = false, quiet = false, verbose = false, strict = false;
  std::vector<std::string> program;
};
CLI::App* add_run(CLI::App& app, RunOptions& options);
int run_program(const RunOptions& options);  // returns only by throwing

// `grape dump`: reads a trace, or a cache, and shows a view of it.
CLI::App* add_dump(CLI::App& app, DumpOptions& options);
int run_dump(DumpOptions& options);

// `grape report`: what GRAPE_REPORT has written, for people.
struct ReportOptions {
  std::string file, output;
  std::size_t limit = 20;  // modules; 0: all
  bool json = false, all = false, pager = false;
};
CLI::App* add_report(CLI::App& app, ReportOptions& options);
int run_report(const ReportOptions& options);

// `grape doctor`: does it work here, and if not, why?
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

// Splits "run -o x -- python a.py", or without "--", before the program's name: CLI11 shall not see the program's own
// options. `arguments` keeps the first part. `with_value`: the subcommand's options that take one.
std::vector<std::string> split_program(std::vector<std::string>& arguments, const std::vector<std::string>& with_value);

// Throws Failure (status 126 or 127 where a shell would give it): the program cannot be started, or the library would
// not be loaded into it.
void check_program(const std::string& program);
// What is wrong with the GRAPE_ variables of `environment` (null-terminated, as environ); empty: nothing. The library
// only warns of it.
std::vector<std::string> environment_complaints(const char* const* environment);
// Throws Failure where they are wrong.
void check_environment();
// Runs this executable under the library once: is it really loaded? Throws Failure.
void check_loadable(const std::string& library);

}  // namespace grape::tools
