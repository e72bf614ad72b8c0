#include "tools/run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "tools/child.h"
#include "tools/environment.h"
#include "tools/escape.h"
#include "tools/failure.h"
#include "tools/program_file.h"

namespace grape::tools {
namespace {

constexpr const char* kFooter =
    R"(The program takes this process's place: its pid, its signals and its exit status are its own. Standard output stays
the program's; Grape says what it recorded in one line on standard error at the end, in mode replay what was replayed in
a few.

Examples:
  grape run -- python train.py
  grape run -o run-%p.grape -- python train.py --epochs 1
  grape run --regions 'mymodel.net:Net.forward' -- python serve.py
  grape run --stacks off -q -- ./a.out
  grape run --mode replay --report run.json -- python serve.py
  grape run --mode replay --validate 100 -- python serve.py

In -o and --report, %h is the host, %p the process id, %r the rank, %% a percent sign.

Exit status: the program's own, or
  2    wrong usage, a bad GRAPE_ variable, or the library cannot be loaded into the program ("not loaded: why")
  126  the program cannot be executed
  127  the program was not found)";

void set(const char* name, const std::string& value, bool verbose) {
  setenv(name, value.c_str(), 1);
  if (verbose) fmt::print(stderr, "grape: {}={}\n", name, escape_text(value));
}

}  // namespace

CLI::App* add_run(CLI::App& app, RunOptions& options) {
  CLI::App* run = app.add_subcommand("run", "Run a program and record what it does");
  run->footer(kFooter);
  run->add_option("program", options.program, "The program and its arguments, after -- or as they are");
  run->add_option("-o,--output", options.output, "The trace (default: grape-%h-%p.grape)");
  run->add_flag("-f,--force", options.force, "Replace an existing trace, when the program ends");
  run->add_option("--mode", options.mode, "off, observe or replay")->check(CLI::IsMember({"off", "observe", "replay"}));
  run->add_option("--stacks", options.stacks, "Code positions: off, leaf, python or native")
      ->check(CLI::IsMember({"off", "leaf", "python", "native"}));
  run->add_option("--regions", options.regions, "Functions that are regions: package.module:Qualified.name, ...");
  run->add_option("--exclude", options.exclude, "Modules and functions that are none");
  run->add_option("--library", options.library, "libgrape.so, where it is not beside this tool");
  run->add_option("--report", options.report, "Mode replay: what became of each module, for grape report");
  run->add_flag("--strict", options.strict, "Mode replay: a call that is not replayed though it should be is an error");
  run->add_option("--validate", options.validate, "Mode replay: check every so many replays against the call itself");
  run->add_flag("-q,--quiet", options.quiet, "No lines at the end");
  run->add_flag("-v,--verbose", options.verbose, "Say what is set");
  return run;
}

std::vector<std::string> split_program(std::vector<std::string>& arguments,
                                       const std::vector<std::string>& with_value) {
  std::size_t at = 0;
  bool separator = false;
  for (; at < arguments.size(); ++at) {
    const std::string& word = arguments[at];
    separator = word == "--";
    if (separator || word.empty() || word[0] != '-' || word == "-") break;
    if (std::find(with_value.begin(), with_value.end(), word) != with_value.end()) ++at;
  }
  at = std::min(at, arguments.size());
  std::vector<std::string> program(arguments.begin() + static_cast<std::ptrdiff_t>(at) + (separator ? 1 : 0),
                                   arguments.end());
  arguments.resize(at);
  return program;
}

void check_program(const std::string& program) {
  int error = 0;
  const std::string path = find_program(program, error);
  if (path.empty()) {
    const bool found = error != ENOENT;
    throw Failure(fmt::format("{}: {}", escape_text(program), found ? std::strerror(error) : "command not found"),
                  found ? kNotExecutable : kNotFound);
  }
  const std::string why = why_not_preloadable(path);
  if (!why.empty()) throw Failure("not loaded: " + why);
}

void check_environment() {
  const auto complaints = environment_complaints(environ);
  if (complaints.empty()) return;
  std::string text;
  for (const std::string& complaint : complaints) text += (text.empty() ? "" : "\ngrape: ") + escape_text(complaint);
  throw Failure(text);
}

void check_loadable(const std::string& library) {
  const ChildResult result =
      run_child({own_path(), "--is-loaded", library}, {{"LD_PRELOAD", library}, {"GRAPE_DISABLE", "1"}}, true, 20);
  if (result.status == 0) return;
  const std::string why = result.errors.substr(0, result.errors.find('\n'));
  throw Failure(fmt::format("not loaded: {}: {}", escape_text(library),
                            why.empty() ? "the loader passes it over" : escape_text(why)));
}

// Settings of one mode, which would be silently without effect in the others.
void check_mode(const RunOptions& options) {
  const char* variable = std::getenv("GRAPE_MODE");
  if (options.mode == "replay" || (options.mode.empty() && variable != nullptr && std::string(variable) == "replay")) {
    return;
  }
  const char* option = options.strict              ? "--strict"
                       : !options.validate.empty() ? "--validate"
                       : !options.report.empty()   ? "--report"
                                                   : nullptr;
  if (option != nullptr) throw Failure(fmt::format("{} is for --mode replay", option));
}

int run_program(const RunOptions& options) {
  if (options.program.empty()) throw Failure("run wants a program: grape run [OPTIONS] -- PROGRAM [ARGUMENTS...]");
  check_environment();
  check_mode(options);
  const std::string library = find_library(options.library);
  check_program(options.program[0]);
  check_loadable(library);
  set("LD_PRELOAD", preload_value(library), options.verbose);
  const std::pair<const char*, const std::string&> values[] = {
      {"GRAPE_TRACE", options.output},    {"GRAPE_MODE", options.mode},     {"GRAPE_STACKS", options.stacks},
      {"GRAPE_REGIONS", options.regions}, {"GRAPE_REPORT", options.report}, {"GRAPE_VALIDATE", options.validate},
      {"GRAPE_EXCLUDE", options.exclude}};
  for (const auto& [name, value] : values) {
    if (!value.empty()) set(name, value, options.verbose);
  }
  if (options.strict) set("GRAPE_STRICT", "1", options.verbose);
  if (options.force) set("GRAPE_TRACE_REPLACE", "1", options.verbose);
  if (!options.quiet && std::getenv("GRAPE_LOG") == nullptr) set("GRAPE_LOG", "info", options.verbose);
  // What the options made of the variables must be as good as what was there.
  check_environment();
  std::vector<char*> list;
  for (const std::string& argument : options.program) list.push_back(const_cast<char*>(argument.c_str()));
  list.push_back(nullptr);
  execvp(list[0], list.data());
  throw Failure(fmt::format("{}: {}", escape_text(options.program[0]), std::strerror(errno)),
                errno == ENOENT ? kNotFound : kNotExecutable);
}

}  // namespace grape::tools
