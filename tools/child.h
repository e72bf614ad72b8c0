// Programs that the tool starts: the environment that loads the library, and probes that run this executable again.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace grape::tools {

using Variables = std::vector<std::pair<std::string, std::string>>;

// LD_PRELOAD with `library` in front of what is there.
std::string preload_value(const std::string& library);

struct ChildResult {
  int status = -1;  // exit status; -1: it could not be started, or ended by a signal
  int signal = 0;   // that ended it
  bool timed_out = false;
  std::string output;  // standard output, if it was captured
  std::string errors;  // standard error, if it was captured
};

// Runs a program with more environment and waits for it. `capture`: standard output and error are returned (1 MiB at
// most each) and standard input is empty, and it is killed after `seconds`; otherwise it has the terminal, for as long
// as it takes.
ChildResult run_child(const std::vector<std::string>& arguments, const Variables& variables, bool capture,
                      int seconds = 60);

}  // namespace grape::tools
