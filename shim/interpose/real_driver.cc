#include "shim/interpose/real_driver.h"

#include "shim/lifecycle/lifecycle.h"

namespace grape::interpose::detail {

namespace {
// Stands for "the driver has none", so that it is not looked for at every launch.
char g_none;
}  // namespace

void* look_up(std::atomic<void*>& slot, const char* symbol) noexcept {
  void* function = slot.load(std::memory_order_relaxed);
  if (__builtin_expect(function == nullptr, 0)) {
    function = lifecycle::next_symbol(symbol, "libcuda.so.1");
    if (function == nullptr) function = &g_none;
    slot.store(function, std::memory_order_relaxed);
  }
  return function == &g_none ? nullptr : function;
}

}  // namespace grape::interpose::detail
