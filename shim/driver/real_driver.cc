#include "shim/driver/real_driver.h"

#include "shim/lifecycle/lifecycle.h"

namespace grape::driver {

void forget_real_functions() noexcept {
#define GRAPE_X(symbol, type) real::slot_##symbol.store(nullptr, std::memory_order_relaxed);
  GRAPE_REAL_DRIVER(GRAPE_X)
#undef GRAPE_X
}

namespace detail {

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

}  // namespace detail
}  // namespace grape::driver
