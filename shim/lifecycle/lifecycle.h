// The state of the library: loaded, then active, then finished; a forked child is inert. A child is active again if the
// parent never began to use the driver: CUDA works there, as it does not in other children.
#pragma once

#include <atomic>

namespace grape::lifecycle {

enum class State : int {
  kInert,  // disabled by the environment, a child of a fork, or given up after a fault
  kActive,
  kFinished,  // exit has begun: wrappers pass through
};

extern std::atomic<State> g_state;
inline bool active() noexcept { return g_state.load(std::memory_order_relaxed) == State::kActive; }

// The process begins to use the driver: from now on there are threads, and handles, that a child of a fork has not. Any
// thread.
extern std::atomic<bool> g_begun;
inline void begin() noexcept {
  if (!g_begun.load(std::memory_order_relaxed)) g_begun.store(true, std::memory_order_relaxed);
}

// When the process was loaded, or made by a fork from one that had not begun (monotonic_seconds()).
double start_time() noexcept;

// A fault of Grape's own: disables it for good, prints `reason` once. Any thread.
void give_up(const char* reason) noexcept;

// The next definition of `symbol` after this library in the lookup order, else the one in `library` if that is loaded
// (never loads it), else null. Not recursive into our own dlsym. Any thread.
void* next_symbol(const char* symbol, const char* library) noexcept;

// Says, once, what was wrong with the GRAPE_ variables. Called when the process asks for the driver: the shells and
// helpers of a job have the same variables, and no use for them. Any thread.
void tell_of_settings() noexcept;

// The arguments that the process was started with, with blanks between them; at most 8 KiB. A copy: programs change
// theirs, and take those away that they have read.
const char* command_line() noexcept;

// The same as set_finish(), for what is not about the trace; called before that. At most four.
void add_finish(void (*finish)()) noexcept;

// Called once when the process ends in order (exit, return from main, _exit), not in children that are inert. Set
// before the first thread is recorded.
void set_finish(void (*finish)()) noexcept;

}  // namespace grape::lifecycle
