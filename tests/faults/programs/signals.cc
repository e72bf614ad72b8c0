// Signals while the program is inside the driver.
//   signals jump: a handler jumps out of a launch, many times, and the program goes on from shallower and deeper frames
//   signals timer: an interval timer fires all the time, without SA_RESTART
//   signals errno: errno before and after each of many calls
#include <pthread.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstring>
#include <thread>

#include "client.h"
#include "simcuda.h"

namespace {

sigjmp_buf g_back;
volatile sig_atomic_t g_armed = 0;
volatile sig_atomic_t g_ticks = 0;

void jump(int) {
  if (g_armed == 0) return;
  g_armed = 0;
  siglongjmp(g_back, 1);
}

void count(int) { g_ticks = g_ticks + 1; }

// Frames between the caller and the launch. Kept from being inlined or turned into a loop.
__attribute__((noinline)) CUresult launch_below(int depth, CUfunction kernel, CUstream stream) {
  volatile char frame[256];
  std::memset(const_cast<char*>(frame), depth, sizeof frame);
  const CUresult result = depth == 0 ? client::launch(kernel, stream) : launch_below(depth - 1, kernel, stream);
  return frame[0] == static_cast<char>(depth) ? result : CUDA_ERROR_UNKNOWN;
}

int jump_out() {
  client::open_context();
  CUmodule module =
      client::load(client::image({"jumped = _Z7nothingv", "shallow = _Z7nothingv", "deep = _Z7nothingv"}));
  CUfunction jumped = client::function(module, "jumped");
  CUfunction shallow = client::function(module, "shallow");
  CUfunction deep = client::function(module, "deep");
  struct sigaction action = {};
  action.sa_handler = jump;
  sigaction(SIGALRM, &action, nullptr);
  volatile int jumps = 0, launched = 0;
  for (volatile int round = 0; round < 5; round = round + 1) {
    if (sigsetjmp(g_back, 1) == 0) {
      simcuda_set_latency(20'000'000'000);
      g_armed = 1;
      const itimerval once = {{0, 0}, {0, 20'000}};
      setitimer(ITIMER_REAL, &once, nullptr);
      (void)client::launch(jumped, nullptr);
    } else {
      jumps = jumps + 1;
    }
    simcuda_set_latency(0);
    for (int i = 0; i < 10; ++i) {
      launched = launched + (launch_below(40, deep, nullptr) == CUDA_SUCCESS ? 1 : 0);
      launched = launched + (client::launch(shallow, nullptr) == CUDA_SUCCESS ? 1 : 0);
    }
  }
  CHECK(cuCtxSynchronize());
  std::printf("jumps %d launched %d\n", jumps, launched);
  return 0;
}

int timer() {
  CUcontext context = client::open_context();
  struct sigaction action = {};
  action.sa_handler = count;  // no SA_RESTART: system calls that a signal meets return EINTR
  sigaction(SIGALRM, &action, nullptr);
  const itimerval often = {{0, 500}, {0, 500}};
  setitimer(ITIMER_REAL, &often, nullptr);
  client::Chain chain;
  for (int round = 0; round < 40; ++round) {
    chain.run(200);
    std::thread([&] {
      CHECK(cuCtxSetCurrent(context));
      chain.run(20);
    }).join();
  }
  const std::uint64_t result = chain.result();
  while (g_ticks < 20) chain.result();
  const itimerval never = {};
  setitimer(ITIMER_REAL, &never, nullptr);
  std::printf("result %llu\n", static_cast<unsigned long long>(result));
  return 0;
}

int g_changed = 0;

template <class F>
void keeps_errno(const char* what, F call) {
  for (const int value : {0, EINTR, 12345}) {
    errno = value;
    const CUresult result = call();
    if (errno == value) continue;
    std::printf("%s (%d): errno %d became %d\n", what, static_cast<int>(result), value, errno);
    ++g_changed;
  }
}
#define KEEPS_ERRNO(call) keeps_errno(#call, [&] { return call; })

int keep_errno() {
  CUcontext context = client::open_context();
  CUmodule module = client::load(client::standard_image());
  CUfunction nothing = client::function(module, client::kNothing);
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUdeviceptr address = 0;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  std::uint64_t host = 0;
  // The first call on a thread starts the recorder or makes the thread known to it.
  std::thread([&] {
    cuCtxSetCurrent(context);
    KEEPS_ERRNO(client::launch(nothing, nullptr));
  }).join();
  KEEPS_ERRNO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  KEEPS_ERRNO(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  KEEPS_ERRNO(cuMemAlloc(&address, 64));
  KEEPS_ERRNO(cuMemcpyHtoD(address, &host, sizeof host));
  KEEPS_ERRNO(cuMemcpyDtoHAsync(&host, address, sizeof host, stream));
  KEEPS_ERRNO(cuMemsetD8Async(address, 0, 64, stream));
  for (int i = 0; i < 5000; ++i) KEEPS_ERRNO(client::launch(nothing, stream));
  KEEPS_ERRNO(client::launch(nothing, reinterpret_cast<CUstream>(std::uintptr_t{0x10})));
  KEEPS_ERRNO(cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
  KEEPS_ERRNO(cuEventRecord(event, stream));
  KEEPS_ERRNO(cuStreamWaitEvent(stream, event, 0));
  KEEPS_ERRNO(cuStreamSynchronize(stream));
  KEEPS_ERRNO(cuEventSynchronize(event));
  KEEPS_ERRNO(cuGraphCreate(&graph, 0));
  KEEPS_ERRNO(cuGraphInstantiate(&exec, graph, 0));
  KEEPS_ERRNO(cuGraphLaunch(exec, stream));
  void* found = nullptr;
  KEEPS_ERRNO(cuGetProcAddress("cuLaunchKernel", &found, 12000, 0, nullptr));
  KEEPS_ERRNO(cuMemFree(address));
  KEEPS_ERRNO(cuMemFree(1));
  KEEPS_ERRNO(cuCtxSynchronize());
  std::printf("changed %d\n", g_changed);
  return g_changed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  return mode == "jump" ? jump_out() : mode == "timer" ? timer() : keep_errno();
}
