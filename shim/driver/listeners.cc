#include "shim/driver/listeners.h"

#include <cstddef>

namespace grape::driver {
namespace {

// Filled by constructors of the library, whose order is not known: constant-initialised, never destroyed.
template <class Listener>
class List {
 public:
  void add(Listener listener) noexcept {
    if (count_ < kMost) listeners_[count_++] = listener;
  }
  const Listener* begin() const noexcept { return listeners_; }
  const Listener* end() const noexcept { return listeners_ + count_; }

 private:
  static constexpr std::size_t kMost = 8;
  Listener listeners_[kMost] = {};
  std::size_t count_ = 0;
};

List<ContextListener> g_context_listeners;
List<LeaveListener> g_leave_listeners;
List<MemoryKeeper> g_memory_keepers;

}  // namespace

void add_context_listener(ContextListener listener) noexcept { g_context_listeners.add(listener); }

void tell_context_gone(CUcontext context) noexcept {
  for (const ContextListener listener : g_context_listeners) listener(context);
}

void add_leave_listener(LeaveListener listener) noexcept { g_leave_listeners.add(listener); }

void tell_context_goes() noexcept {
  for (const LeaveListener listener : g_leave_listeners) listener();
}

void add_memory_keeper(MemoryKeeper keeper) noexcept { g_memory_keepers.add(keeper); }

bool give_memory_back() noexcept {
  bool any = false;
  for (const MemoryKeeper keeper : g_memory_keepers) any = keeper() || any;
  return any;
}

}  // namespace grape::driver
