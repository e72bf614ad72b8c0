#include "tools/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>

namespace grape::tools {
namespace {

constexpr std::size_t kMostOutput = 1u << 20;

[[noreturn]] void start(const std::vector<std::string>& arguments, const Variables& variables, int output, int errors) {
  if (output >= 0) {
    const int input = open("/dev/null", O_RDONLY);
    if (input >= 0) dup2(input, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(errors, STDERR_FILENO);
  }
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> list;
  list.reserve(arguments.size() + 1);
  for (const std::string& argument : arguments) list.push_back(const_cast<char*>(argument.c_str()));
  list.push_back(nullptr);
  execvp(list[0], list.data());
  _exit(127);
}

// Reads both pipes until they are closed or time is up; false: time was up.
bool collect(int output, int errors, int seconds, ChildResult& result) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  pollfd files[] = {{output, POLLIN, 0}, {errors, POLLIN, 0}};
  std::string* texts[] = {&result.output, &result.errors};
  while (files[0].fd >= 0 || files[1].fd >= 0) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
    if (left <= 0) return false;
    if (poll(files, 2, static_cast<int>(left)) < 0) continue;
    for (int i = 0; i < 2; ++i) {
      if (files[i].fd < 0 || (files[i].revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
      char piece[4096];
      const ssize_t got = read(files[i].fd, piece, sizeof piece);
      if (got <= 0) {
        files[i].fd = -1;
      } else if (texts[i]->size() < kMostOutput) {
        texts[i]->append(piece, static_cast<std::size_t>(got));
      }
    }
  }
  return true;
}

}  // namespace

std::string preload_value(const std::string& library) {
  const char* present = std::getenv("LD_PRELOAD");
  return present == nullptr || *present == '\0' ? library : library + ":" + present;
}

ChildResult run_child(const std::vector<std::string>& arguments, const Variables& variables, bool capture,
                      int seconds) {
  ChildResult result;
  int output[2] = {-1, -1}, errors[2] = {-1, -1};
  if (capture && (pipe2(output, O_CLOEXEC) != 0 || pipe2(errors, O_CLOEXEC) != 0)) return result;
  const pid_t child = fork();
  if (child == 0) start(arguments, variables, output[1], errors[1]);
  if (capture) {
    close(output[1]);
    close(errors[1]);
    if (child > 0 && !collect(output[0], errors[0], seconds, result)) {
      result.timed_out = true;
      kill(child, SIGKILL);
    }
    close(output[0]);
    close(errors[0]);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return result;
  if (WIFEXITED(status)) result.status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

}  // namespace grape::tools
