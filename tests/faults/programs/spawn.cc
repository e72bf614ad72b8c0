// Starts other programs in every way, while the driver is in use.
//   spawn WAY PROGRAM [ARGUMENT]: WAY is one of fork, vfork, posix_spawn, system, popen, vfork-fails, exec
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "client.h"

extern char** environ;

namespace {

int wait_for(pid_t pid) {
  int status = -1;
  return waitpid(pid, &status, 0) == pid ? status : -1;
}

int start(const char* way, char** arguments) {
  const auto is = [way](const char* name) { return std::strcmp(way, name) == 0; };
  if (is("fork")) {
    const pid_t pid = fork();
    if (pid == 0) {
      execv(arguments[0], arguments);
      _exit(127);
    }
    return wait_for(pid);
  }
  if (is("vfork")) {
    const pid_t pid = vfork();
    if (pid == 0) {
      execv(arguments[0], arguments);
      _exit(127);
    }
    return wait_for(pid);
  }
  // The child shares our memory and leaves through _exit: the parent goes on recording.
  if (is("vfork-fails")) {
    const pid_t pid = vfork();
    if (pid == 0) _exit(0);
    return wait_for(pid);
  }
  if (is("posix_spawn")) {
    pid_t pid = 0;
    if (posix_spawn(&pid, arguments[0], nullptr, nullptr, arguments, environ) != 0) return -1;
    return wait_for(pid);
  }
  if (is("system")) return std::system(arguments[0]);
  if (is("popen")) {
    FILE* pipe = popen(arguments[0], "r");
    char line[4096];
    while (std::fgets(line, sizeof line, pipe) != nullptr) std::fputs(line, stdout);
    return pclose(pipe);
  }
  return -1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  CUcontext context = client::open_context();
  client::Chain chain;
  // In a thread of its own, whose events are written when it ends: an exec leaves no time for the rest.
  std::thread([&] {
    CHECK(cuCtxSetCurrent(context));
    chain.run(20);
  }).join();
  const std::uint64_t before = chain.result();
  if (std::strcmp(argv[1], "exec") == 0) {
    std::printf("before %llu\n", static_cast<unsigned long long>(before));
    std::fflush(stdout);
    usleep(400'000);
    execv(argv[2], argv + 2);
    return 127;
  }
  std::fflush(stdout);
  usleep(100'000);  // whoever watches this process has its files open by now
  const int status = start(argv[1], argv + 2);
  chain.run(20);
  std::printf("status %d result %llu\n", status, static_cast<unsigned long long>(chain.result()));
  return status == 0 ? 0 : 1;
}
