// Forks after the driver was used. The parent computes before, during and after the children's lives.
//   fork WAY: how the children end
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <memory>
#include <thread>

#include "client.h"

namespace {

// What a data loader's worker does: allocate, start threads, fork again; and a driver call, which must fail.
void work_without_cuda() {
  std::vector<std::unique_ptr<std::string>> kept;
  kept.reserve(2000);
  for (int i = 0; i < 2000; ++i) kept.push_back(std::make_unique<std::string>(static_cast<std::size_t>(i), 'x'));
  std::thread([&kept] { kept.clear(); }).join();
}

[[noreturn]] void end_child(const char* way) {
  const auto is = [way](const char* name) { return std::strcmp(way, name) == 0; };
  work_without_cuda();
  if (is("cuda")) {
    CUdeviceptr address = 0;
    const CUresult result = cuMemAlloc(&address, 64);
    for (int i = 0; i < 1000; ++i) (void)cuCtxSynchronize();
    std::_Exit(result == CUDA_ERROR_NOT_INITIALIZED ? 0 : 9);
  }
  if (is("grandchild")) {
    const pid_t pid = fork();
    if (pid == 0) std::exit(5);
    int status = 0;
    waitpid(pid, &status, 0);
    std::exit(WIFEXITED(status) && WEXITSTATUS(status) == 5 ? 0 : 9);
  }
  if (is("exit") || is("early")) std::exit(0);
  if (is("_exit")) _exit(0);
  if (is("quick_exit")) std::quick_exit(0);
  if (is("abort")) std::abort();
  if (is("kill")) raise(SIGKILL);
  if (is("exec")) execl("/bin/true", "true", static_cast<char*>(nullptr));
  if (is("syscall")) syscall(SYS_exit_group, 0);
  _exit(8);
}

bool ended_well(pid_t pid) {
  int status = 0;
  return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// A thread that was joined is listed until the kernel is done with it, hence the wait.
bool has_one_thread() {
  struct stat threads {};
  for (int waited_ms = 0; waited_ms < 5000; ++waited_ms, usleep(1000)) {
    // A folder has a link from each folder in it, from itself and from the one around it.
    if (stat("/proc/self/task", &threads) == 0 && threads.st_nlink == 3) return true;
  }
  return false;
}

// A child from before the driver was used: one that has no use for it, or one that is a program like any other.
bool early_child(bool uses_it) {
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid != 0) return ended_well(pid);
  if (uses_it) {
    client::open_context();
    client::Chain chain;
    chain.run(20);
    std::exit(chain.result() != 0 ? 0 : 9);
  }
  work_without_cuda();
  std::exit(has_one_thread() ? 0 : 9);
}

}  // namespace

int main(int argc, char** argv) {
  const char* way = argc > 1 ? argv[1] : "exit";
  const long children = client::number(argc, argv, 2, 8);
  if (std::strcmp(way, "early") == 0 && !early_child(false)) return 7;
  if (std::strcmp(way, "worker") == 0) return early_child(true) && early_child(true) ? 0 : 7;
  client::open_context();
  client::Chain chain;
  chain.run(50);
  // Threads of the application's own that are in the middle of launches when the process forks.
  std::atomic<bool> stop{false};
  std::atomic<long> launched{0};
  CUcontext context = nullptr;
  CHECK(cuCtxGetCurrent(&context));
  auto& busy = *new std::thread([&] {  // on the heap: a child that returns from main does not end it
    CHECK(cuCtxSetCurrent(context));
    client::Chain own;
    while (!stop.load()) {
      CHECK(own.step(1));
      launched.fetch_add(1);
    }
    (void)own.result();
  });
  while (launched.load() == 0) sched_yield();
  int wrong = 0;
  for (long i = 0; i < children; ++i) {
    std::fflush(nullptr);
    const bool raw = std::strcmp(way, "raw") == 0;  // past the C library and its handlers
    const auto pid = static_cast<pid_t>(raw ? syscall(SYS_fork) : fork());
    if (pid == 0) {
      if (raw) _exit(0);
      if (std::strcmp(way, "return") == 0) return 0;
      end_child(way);
    }
    int status = 0;
    if (waitpid(pid, &status, 0) != pid) return 7;
    const bool killed = std::strcmp(way, "kill") == 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    const bool aborted = std::strcmp(way, "abort") == 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
    if (!killed && !aborted && !(WIFEXITED(status) && WEXITSTATUS(status) == 0)) ++wrong;
    chain.run(10);
  }
  stop.store(true);
  busy.join();
  const auto launches = 50 + 10 * children + launched.load();
  std::fprintf(stderr, "launches %ld\n", launches);
  std::printf("wrong %d result %llu\n", wrong, static_cast<unsigned long long>(chain.result()));
  return wrong == 0 ? 0 : 1;
}
