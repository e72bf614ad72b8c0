// Uses the device, then dies in the named way.
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "client.h"

namespace {

volatile int* volatile g_nowhere = nullptr;

}  // namespace

int main(int argc, char** argv) {
  const std::string way = argc > 1 ? argv[1] : "";
  client::open_context();
  client::Chain chain;
  chain.run(100);
  std::printf("%llu\n", static_cast<unsigned long long>(chain.result()));
  std::fflush(stdout);
  if (way == "segv") *g_nowhere = 1;
  if (way == "segv-thread") std::thread([] { *g_nowhere = 1; }).join();
  if (way == "abort") std::abort();
  if (way == "throw") throw std::runtime_error("not caught");
  if (way == "noexcept") std::thread([] { throw 1; }).join();
  if (way == "fpe") raise(SIGFPE);
  if (way == "ill") __builtin_trap();
  if (way == "term") raise(SIGTERM);
  if (way == "usr1") raise(SIGUSR1);
  if (way == "int") raise(SIGINT);
  if (way == "exit") return 77;
  return 0;
}
