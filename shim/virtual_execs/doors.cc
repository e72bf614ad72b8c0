#include "shim/virtual_execs/doors.h"

#include <array>

#include "shim/driver/real_driver.h"
#include "shim/lifecycle/config.h"
#include "shim/lifecycle/hot.h"
#include "shim/lifecycle/lifecycle.h"

namespace grape::virtual_execs {

GRAPE_HOT std::atomic<bool> g_on{false};

namespace {

namespace real = driver::real;

__attribute__((constructor(102))) void choose() {
  if (!lifecycle::active() || !config().virtual_graphs) return;
  if (!VirtualExecs::start()) return;
  set_graphs_source(VirtualExecs::report);
  g_on.store(true, std::memory_order_relaxed);
}

std::array<std::atomic<CUcontext>, 64> g_primary;  // by device

}  // namespace

void unloads(CUmodule module) noexcept {
  VirtualExecs::instance().before_unload(reinterpret_cast<std::uint64_t>(module));
}

// Functions that were taken from a library belong to its module in the current context.
void unloads(CUlibrary library) noexcept {
  VirtualExecs::instance().before_unload(reinterpret_cast<std::uint64_t>(library));
  CUmodule module = nullptr;
  if (real::call_cuLibraryGetModule(&module, library) == CUDA_SUCCESS) unloads(module);
}

void primary_held(CUcontext context, CUdevice device) noexcept {
  if (device >= 0 && static_cast<std::size_t>(device) < g_primary.size()) g_primary[device].store(context);
}

void primary_gone(CUdevice device) noexcept {
  unsigned flags = 0;
  int active = 0;
  if (device < 0 || static_cast<std::size_t>(device) >= g_primary.size()) return;
  if (real::call_cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active != 0) return;
  const CUcontext context = g_primary[device].exchange(nullptr);
  if (context != nullptr) VirtualExecs::instance().context_gone(context);
}

}  // namespace grape::virtual_execs
