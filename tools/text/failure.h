// Exit statuses, and the exception that ends a command with one of them.
#pragma once

#include <stdexcept>
#include <string>

namespace grape::tools {

enum ExitStatus : int {
  kOk = 0,
  kDifferent = 1,   // diff: the graphs differ; doctor: something essential does not work
  kTrouble = 2,     // usage, or a file that cannot be read
  kIncomplete = 3,  // the trace was printed up to where it ends
  kNotExecutable = 126,
  kNotFound = 127,
};

// main() prints "grape: <what>" on stderr and exits with `status`.
struct Failure : std::runtime_error {
  explicit Failure(const std::string& what, int exit_status = kTrouble)
      : std::runtime_error(what), status(exit_status) {}
  int status;
};

}  // namespace grape::tools
