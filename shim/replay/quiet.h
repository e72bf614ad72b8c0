// Whoever puts memory back as it was must be alone with it: no stream of the process has work, and what other threads
// would put on one waits. A proof is such a one; Python's lock does not hold back operators that are under way.
#pragma once

#include <atomic>

namespace grape::replay {

// Has no stream work? All that the process made are asked, of all contexts, and of the default streams those of the
// current context and thread (nobody can ask for another thread's). Asks each once, never waits. False as well: a
// stream is being captured, which must not be asked; no memory. An error is no work: what follows meets it. Any thread.
bool streams_idle() noexcept;
// streams_idle() within so many seconds?
bool idle_within(double seconds) noexcept;
// Before the driver destroys a stream, and once LiveBlocks has forgotten it: nobody asks it from then on.
void stream_goes() noexcept;

namespace detail {
extern std::atomic<bool> g_quiet;
void wait_for_end_of_quiet() noexcept;
}  // namespace detail

// Before any call that has a stream write to memory. Waits while another thread has Quiet, but not for ever: that one
// may wait for what this thread has locked. It has no Quiet any more, then.
inline void before_work() noexcept {
  if (__builtin_expect(detail::g_quiet.load(std::memory_order_relaxed), 0)) detail::wait_for_end_of_quiet();
}

// As long as it lives other threads' work waits. One at a time: where another thread has one, this one does nothing.
class Quiet {
 public:
  Quiet() noexcept;
  ~Quiet();
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
  // Is it quiet? What was under way is done within so many seconds, or it is not.
  bool reached(double seconds) const noexcept;

 private:
  bool held_ = false;
};

}  // namespace grape::replay
