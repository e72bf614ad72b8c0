// `grape run`: starts a program with the library preloaded, in this process's place.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace grape::tools {

struct RunOptions {
  std::string output, range, mode, stacks, regions, exclude, library, report, validate, cache;
  bool force = false, quiet = false, verbose = false, strict = false;
  std::vector<std::string> program;
};

CLI::App* add_run(CLI::App& app, RunOptions& options);
// Returns only by throwing Failure.
int run_program(const RunOptions& options);

// Splits "run -o x -- python a.py", or without "--", before the program's name: CLI11 shall not see the program's own
// options. `arguments` keeps the first part. `with_value`: the subcommand's options that take one.
std::vector<std::string> split_program(std::vector<std::string>& arguments, const std::vector<std::string>& with_value);

// Throws Failure (status 126 or 127 where a shell would give it): the program cannot be started, or the library would
// not be loaded into it.
void check_program(const std::string& program);
// Throws Failure where the GRAPE_ variables are wrong.
void check_environment();
// Runs this executable under the library once: is it really loaded? Throws Failure.
void check_loadable(const std::string& library);

}  // namespace grape::tools
