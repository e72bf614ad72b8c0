// Calls the driver to the very end, and leaves in the named way.
//   exits return|exit|_exit|_Exit|quick_exit|pthread_exit|busy
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "client.h"

namespace {

client::Chain* g_chain = nullptr;
std::atomic<bool> g_launched{false};

void compute(const char* where) {
  if (g_chain == nullptr) return;
  g_chain->run(10);
  std::printf("%s %llu\n", where, static_cast<unsigned long long>(g_chain->result()));
  std::fflush(stdout);
}

struct AtTheEnd {
  ~AtTheEnd() { compute("static destructor"); }
};
AtTheEnd g_at_the_end;

__attribute__((destructor)) void library_destructor() { compute("destructor function"); }

}  // namespace

int main(int argc, char** argv) {
  const std::string way = argc > 1 ? argv[1] : "return";
  CUcontext context = client::open_context();
  g_chain = new client::Chain;
  compute("main");
  std::atexit([] { compute("atexit"); });
  std::at_quick_exit([] { compute("at_quick_exit"); });
  if (way == "busy") {
    // Threads that still launch while the process ends around them.
    for (int i = 0; i < 4; ++i) {
      std::thread([context] {
        CUstream stream = nullptr;
        (void)cuCtxSetCurrent(context);
        (void)cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
        auto& own = *new client::Chain(stream);
        for (;;) {
          for (int step = 0; step < 50; ++step) (void)own.step(1);
          (void)cuStreamSynchronize(stream);
          g_launched.store(true);
        }
      }).detach();
    }
    while (!g_launched.load()) sched_yield();
    std::exit(6);
  }
  if (way == "exit") std::exit(7);
  if (way == "exit-thread") {
    std::thread([context] {
      CHECK(cuCtxSetCurrent(context));
      std::exit(8);
    }).join();
  }
  if (way == "_exit") _exit(9);
  if (way == "_Exit") std::_Exit(10);
  if (way == "quick_exit") std::quick_exit(11);
  return 12;
}
