// The command line of `grape`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <new>
#include <string>
#include <vector>

#include "compressor/trace/chunk.h"
#include "tools/commands.h"
#include "tools/text/escape.h"
#include "tools/text/failure.h"

namespace grape::tools {
namespace {

constexpr const char* kFooter = R"(Examples:
  grape run --report run.json -- python serve.py    replay what a program repeats
  grape report run.json                             what was replayed, what not, and why
  grape run -o run.grape -- python train.py         record a program
  grape dump run.grape                              see what it did
  grape doctor                                      does it work here?

Exit status: 0 done, 1 a difference or something does not work, 2 wrong usage or an unreadable file,
3 an incomplete trace; run: the program's own. See grape COMMAND --help.)";

// What the parser says, in the form of all other complaints.
std::string complaint(const CLI::App& app, const CLI::ParseError& error) {
  std::string text = error.what();
  // Its sentences begin with a capital; names of options do not.
  if (text.size() > 1 && text[0] >= 'A' && text[0] <= 'Z' && (text[1] < 'A' || text[1] > 'Z')) text[0] += 'a' - 'A';
  const auto commands = app.get_subcommands();
  return fmt::format("{}; see grape {}--help", escape_text(text),
                     commands.empty() ? "" : commands.front()->get_name() + " ");
}

void check_command(const CLI::App& app, const std::string& word) {
  if (word.empty() || word[0] == '-') return;
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  if (std::find(names.begin(), names.end(), word) != names.end()) return;
  const std::string near = nearest(word, names);
  throw Failure(fmt::format("no command {}; see grape --help{}", escape_text(word),
                            near.empty() ? "" : fmt::format(", did you mean {}?", near)));
}

// By all of their names.
std::vector<std::string> options_with_value(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_items_expected_max() == 0) continue;  // a flag
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

int parse_and_run(std::vector<std::string> arguments) {
  CLI::App app(
      "Grape replays what an unmodified PyTorch program repeats; or records its CUDA calls and shows them as graphs.",
      "grape");
  app.footer(kFooter);
  app.require_subcommand(1);
  app.set_version_flag("--version", fmt::format("grape {} (trace format {}.{})", GRAPE_VERSION, trace::kFormatMajor,
                                                trace::kFormatMinor));
  DumpOptions dump_options;
  RunOptions run_options;
  DoctorOptions doctor_options;
  ReportOptions report_options;
  CLI::App* dump = add_dump(app, dump_options);
  CLI::App* run = add_run(app, run_options);
  CLI::App* doctor = add_doctor(app, doctor_options);
  CLI::App* report = add_report(app, report_options);
  if (!arguments.empty()) check_command(app, arguments[0]);
  if (!arguments.empty() && (arguments[0] == "run" || arguments[0] == "doctor")) {
    const std::string command = arguments[0];
    arguments.erase(arguments.begin());
    auto& program = command == "run" ? run_options.program : doctor_options.program;
    program = split_program(arguments, options_with_value(command == "run" ? *run : *doctor));
    arguments.insert(arguments.begin(), command);
  }
  try {
    // CLI11 takes them in reverse order.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    // --help and --version come as errors too.
    if (error.get_exit_code() == 0) return app.exit(error);
    throw Failure(complaint(app, error));
  }
  if (dump->parsed()) return run_dump(dump_options);
  if (run->parsed()) return run_program(run_options);
  if (report->parsed()) return run_report(report_options);
  return doctor->parsed() ? run_doctor(doctor_options) : kTrouble;
}

int run_command_line(int count, char** values) {
  std::vector<std::string> arguments(values + (count > 0 ? 1 : 0), values + count);
  // Started by this tool itself, under the library.
  if (arguments.size() == 1 && arguments[0] == "--probe-driver") return probe_driver();
  if (arguments.size() == 2 && arguments[0] == "--is-loaded") return is_loaded(arguments[1]);
  return parse_and_run(std::move(arguments));
}

}  // namespace
}  // namespace grape::tools

int main(int count, char** values) {
  // What goes wrong is said with stdio, which throws nothing.
  try {
    return grape::tools::run_command_line(count, values);
  } catch (const grape::tools::Failure& failure) {
    std::fprintf(stderr, "grape: %s\n", failure.what());
    return failure.status;
  } catch (const std::bad_alloc&) {
    std::fputs("grape: out of memory\n", stderr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "grape: %s\n", error.what());
  }
  return grape::tools::kTrouble;
}
