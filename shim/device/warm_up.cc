#include "shim/device/warm_up.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

#include "shim/device/harmless_memory.h"
#include "shim/device/own_kernels.h"
#include "shim/device/thread_context.h"
#include "shim/driver/current_context.h"
#include "shim/driver/listeners.h"
#include "shim/driver/real_driver.h"
#include "shim/lifecycle/blocked_signals.h"
#include "shim/lifecycle/lifecycle.h"

namespace grape::device {
namespace {

namespace real = driver::real;

std::atomic<bool> g_begun{false};
std::mutex g_mutex;      // of what follows
pthread_t g_thread = 0;  // not joined yet, if g_process is this process
pid_t g_process = 0;     // a child of a fork has no such thread
CUcontext g_context = nullptr;
CUdevice g_device = 0;

void* make_all(void*) noexcept {
  ContextScope scope(g_context);
  refusal::Refusal ignored;
  if (scope.entered() && own_kernels(ignored) != nullptr) harmless_memory(g_device);
  return nullptr;
}

bool start() noexcept {
  const BlockedSignals blocked;
  if (pthread_create(&g_thread, nullptr, make_all, nullptr) != 0) return false;
  pthread_setname_np(g_thread, "grape-warm-up");
  return true;
}

}  // namespace

void warm_up() noexcept {
  if (g_begun.load(std::memory_order_relaxed)) return;
  CUcontext context = driver::current_context();
  CUdevice device = 0;
  if (context == nullptr || real::call_cuCtxGetDevice(&device) != CUDA_SUCCESS || g_begun.exchange(true)) return;
  if (primary_context(device) != context) return;
  const std::lock_guard<std::mutex> lock(g_mutex);
  g_context = context;
  g_device = device;
  if (start()) g_process = getpid();
}

void end_warm_up() noexcept {
  if (!g_begun.load()) return;
  const std::lock_guard<std::mutex> lock(g_mutex);
  if (g_process != getpid()) return;
  g_process = 0;
  pthread_join(g_thread, nullptr);
}

namespace {
__attribute__((constructor)) void listen() {
  driver::add_leave_listener(end_warm_up);
  lifecycle::add_finish(end_warm_up);
}
}  // namespace

}  // namespace grape::device
