#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>

#include "shim/lifecycle/config.h"
#include "tools/child.h"
#include "tools/commands.h"
#include "tools/program_file.h"
#include "tools/text/escape.h"
#include "tools/text/failure.h"

namespace grape::tools {
namespace {

constexpr const char* kFooter =
    R"(The program takes this process's place: its pid, its signals and its exit status are its own. Standard output stays
the program's; at the end Grape says on standard error, in a few lines, what was replayed, or in one what it recorded.

Modes: replay runs calls of PyTorch modules that were proven to do the same work each time as one graph launch each, and
leaves no trace; observe leaves a trace of everything, and replays nothing. With -o the mode is observe, else replay.

Examples:
  grape run -- python serve.py
  grape run --report run.json -- python serve.py
  grape run --validate 100 -- python serve.py
  grape run -o run-%p.grape -- python train.py --epochs 1
  grape run -o steps.grape --range profiler -- python train.py    # which calls torch.cuda.profiler.start() and stop()
  grape run --regions 'mymodel.net:decode' -- python serve.py
  grape run --mode observe --stacks off -q -- ./a.out

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
  CLI::App* run = app.add_subcommand("run", "Run a program, replay what it repeats or record what it does");
  run->footer(kFooter);
  run->add_option("program", options.program, "The program and its arguments, after -- or as they are");
  run->add_option("-o,--output", options.output,
                  "Record, and write the trace there (in mode observe without it: grape-%h-%p.grape)");
  run->add_option("--range", options.range,
                  "What to record: the whole process, or from cuProfilerStart to cuProfilerStop: process, profiler")
      ->check(CLI::IsMember({"process", "profiler"}));
  run->add_flag("-f,--force", options.force, "Replace an existing trace, when the program ends");
  run->add_option("--mode", options.mode, "off, observe or replay (default: replay; with -o observe)")
      ->check(CLI::IsMember({"off", "observe", "replay"}));
  run->add_option("--stacks", options.stacks, "Code positions: off, leaf, python or native")
      ->check(CLI::IsMember({"off", "leaf", "python", "native"}));
  run->add_option("--regions", options.regions,
                  "Functions that are regions: package.module:Qualified.name, ...; auto (the default), modules (none)");
  run->add_option("--exclude", options.exclude, "Modules and functions that are none");
  run->add_option("--library", options.library, "libgrape.so, where it is not beside this tool");
  run->add_option("--report", options.report, "Mode replay: what became of each module, for grape report");
  run->add_flag("--strict", options.strict, "Mode replay: a call that is not replayed though it should be is an error");
  run->add_option("--validate", options.validate, "Mode replay: check every so many replays against the call itself");
  run->add_option("--cache", options.cache, "Mode replay: a folder for what was proven, from which later runs start");
  run->add_flag("-q,--quiet", options.quiet, "No lines at the end");
  run->add_flag("-v,--verbose", options.verbose, "Say what is set");
  return run;
}

namespace {

// Is the option's value the next argument? Of short ones in a row (-qo FILE) the first that takes a value decides: what
// stands behind it in the same word is that value.
bool takes_next(const std::string& word, const std::vector<std::string>& with_value) {
  const auto listed = [&with_value](const std::string& option) {
    return std::find(with_value.begin(), with_value.end(), option) != with_value.end();
  };
  if (word.compare(0, 2, "--") == 0) return listed(word);
  for (std::size_t i = 1; i < word.size(); ++i) {
    if (listed({'-', word[i]})) return i + 1 == word.size();
  }
  return false;
}

std::vector<std::string>* g_complaints = nullptr;  // the library's parser takes a plain function

// The library says what it does instead; the launcher does nothing instead.
std::string without_fallback(const std::string& line) {
  for (const char* tail : {"; using ", "; ignored"}) {
    const std::size_t at = line.rfind(tail);
    if (at != std::string::npos) return line.substr(0, at);
  }
  return line;
}

// "GRAPE_MODE=obsrve is not one of off, observe" → the word that was probably meant.
std::string suggestion(const std::string& line) {
  const std::size_t equals = line.find('='), is = line.find(" is not one of ");
  if (equals == std::string::npos || is == std::string::npos || equals > is) return "";
  std::vector<std::string> words;
  std::istringstream list(line.substr(is + std::strlen(" is not one of ")));
  for (std::string word; std::getline(list >> std::ws, word, ',');) words.push_back(word);
  const std::string near = nearest(std::string_view(line).substr(equals + 1, is - equals - 1), words);
  return near.empty() ? "" : "; did you mean " + near + "?";
}

}  // namespace

std::vector<std::string> split_program(std::vector<std::string>& arguments,
                                       const std::vector<std::string>& with_value) {
  std::size_t at = 0;
  bool separator = false;
  for (; at < arguments.size(); ++at) {
    const std::string& word = arguments[at];
    separator = word == "--";
    if (separator || word.empty() || word[0] != '-' || word == "-") break;
    if (takes_next(word, with_value)) ++at;
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

std::vector<std::string> environment_complaints(const char* const* environment) {
  std::vector<std::string> complaints;
  const auto config = std::make_unique<Config>();
  g_complaints = &complaints;
  parse_environment(environment, *config, [](const char* line) { g_complaints->emplace_back(line); });
  g_complaints = nullptr;
  for (std::string& line : complaints) {
    line = without_fallback(line);
    line += suggestion(line);
  }
  return complaints;
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

// Options of one mode, which would be silently without effect in the others. After the variables are set.
void check_mode(const RunOptions& options) {
  const auto config = std::make_unique<Config>();
  parse_environment(environ, *config, [](const char*) {});
  const char* option = options.strict              ? "--strict"
                       : !options.validate.empty() ? "--validate"
                       : !options.report.empty()   ? "--report"
                       : !options.cache.empty()    ? "--cache"
                                                   : nullptr;
  if (option != nullptr && config->mode != Mode::kReplay) {
    throw Failure(fmt::format("{} is for --mode replay{}", option,
                              options.mode.empty() ? ", and a trace (-o, GRAPE_TRACE) makes it observe" : ""));
  }
  const char* of_trace = options.force ? "--force" : !options.range.empty() ? "--range" : nullptr;
  if (of_trace != nullptr && config->mode == Mode::kReplay && !writes_trace(*config)) {
    throw Failure(fmt::format("{} is for a trace: add -o FILE, or --mode observe", of_trace));
  }
}

// A trace that will not be there is better told of now than when the program has run. What placeholders stand for is
// the library's to know.
void check_output(const std::string& path) {
  struct stat status;
  const std::string shown = escape_text(path);
  if (!path.empty() && (path.back() == '/' || (stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)))) {
    throw Failure(fmt::format("-o {}: this is a folder", shown));
  }
  const std::string folder = path.substr(0, path.rfind('/') + 1);  // npos + 1 is 0
  if (folder.empty() || folder.find('%') != std::string::npos) return;
  if (stat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    throw Failure(fmt::format("-o {}: there is no folder {}", shown, escape_text(folder)));
  }
}

int run_program(const RunOptions& options) {
  if (options.program.empty()) throw Failure("run wants a program: grape run [OPTIONS] -- PROGRAM [ARGUMENTS...]");
  check_environment();
  check_output(options.output);
  const std::string library = find_library(options.library);
  check_program(options.program[0]);
  check_loadable(library);
  set("LD_PRELOAD", preload_value(library), options.verbose);
  const std::pair<const char*, const std::string&> values[] = {
      {"GRAPE_TRACE", options.output},      {"GRAPE_TRACE_RANGE", options.range}, {"GRAPE_MODE", options.mode},
      {"GRAPE_STACKS", options.stacks},     {"GRAPE_REGIONS", options.regions},   {"GRAPE_REPORT", options.report},
      {"GRAPE_VALIDATE", options.validate}, {"GRAPE_EXCLUDE", options.exclude},   {"GRAPE_CACHE", options.cache}};
  for (const auto& [name, value] : values) {
    if (!value.empty()) set(name, value, options.verbose);
  }
  // The helpers that the program starts have its variables, and not its pid: they need not say why they left no trace.
  set("GRAPE_RUN_PID", std::to_string(getpid()), options.verbose);
  if (options.strict) set("GRAPE_STRICT", "1", options.verbose);
  if (options.force) set("GRAPE_TRACE_REPLACE", "1", options.verbose);
  if (!options.quiet && std::getenv("GRAPE_LOG") == nullptr) set("GRAPE_LOG", "info", options.verbose);
  // What the options made of the variables must be as good as what was there.
  check_environment();
  check_mode(options);
  std::vector<char*> list;
  for (const std::string& argument : options.program) list.push_back(const_cast<char*>(argument.c_str()));
  list.push_back(nullptr);
  execvp(list[0], list.data());
  throw Failure(fmt::format("{}: {}", escape_text(options.program[0]), std::strerror(errno)),
                errno == ENOENT ? kNotFound : kNotExecutable);
}

}  // namespace grape::tools
