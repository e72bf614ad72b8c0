// Gives one call exclusive use of the device: no stream of the process has work, and other threads' new work waits. A
// proof needs this, since it restores memory. Python's lock does not stop operators that are under way.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/observation/call_scope.h"
#include "shim/record/thread_log.h"

namespace grape::observation {

// Has no stream work? All that the process made are asked, of all contexts, and of the default streams those of the
// current context and thread (nobody can ask for another thread's). Asks each once, never waits. False as well: a
// stream is being captured, which must not be asked; no memory. An error is no work: what follows meets it. Any thread.
bool streams_idle() noexcept;
// streams_idle() within so many seconds?
bool idle_within(double seconds) noexcept;
// Has this one? False as well while anything is captured.
bool has_work(std::uint64_t stream) noexcept;
// Before the driver destroys a stream, and once LiveBlocks has forgotten it: nobody asks it from then on.
void stream_goes() noexcept;

namespace detail {
// Of one thread, and written by it alone, with plain stores: behind a launch, whose last store is on its way to the
// device, anything atomic would wait for that. Never freed; one of a thread that has ended is the next new thread's.
struct alignas(64) ThreadWork {
  std::atomic<std::uint64_t> calls{0};  // two for each; odd: inside of one
  std::uint32_t depth = 0;
  bool refused = false;
  std::uint64_t calls_when_attached = 0;  // to a CallScope
  ThreadWork* next = nullptr;
};
inline ThreadWork* this_work() noexcept { return static_cast<ThreadWork*>(record::t_thread.work); }
extern std::atomic<bool> g_excluded;
ThreadWork* first_work() noexcept;  // null: no memory
inline ThreadWork* work_of_thread() noexcept { return this_work() != nullptr ? this_work() : first_work(); }
void wait_for_end_of_exclusion(ThreadWork& mine) noexcept;
}  // namespace detail

// Stands around any driver call that makes a stream read or write memory. Its begin waits while another thread has a
// DeviceExclusion, since memory is not as the program left it meanwhile. It does not wait for ever: the other thread
// may wait for a lock of this one. The exclusion has ended, then.
class Work {
 public:
  Work() noexcept : mine_(detail::work_of_thread()) {
    if (mine_ == nullptr || mine_->depth++ != 0) return;
    step();
    std::atomic_signal_fence(std::memory_order_seq_cst);  // the processor's is DeviceExclusion's affair
    if (__builtin_expect(detail::g_excluded.load(std::memory_order_relaxed), 0))
      detail::wait_for_end_of_exclusion(*mine_);
  }
  ~Work() {
    if (mine_ != nullptr && --mine_->depth == 0) step();
  }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  // Is this thread to do none (NoWork)? Then the call is an error.
  bool refused() const noexcept { return mine_ != nullptr && __builtin_expect(mine_->refused, 0); }
  // Is it inside of no other one of its thread?
  bool outermost() const noexcept { return mine_ == nullptr || mine_->depth == 1; }

 private:
  void step() noexcept {
    mine_->calls.store(mine_->calls.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

  detail::ThreadWork* mine_;
};

// As long as it lives its thread's calls of that kind are refused, and do nothing: to ask PyTorch what it would do only
// if it had to.
class NoWork {
 public:
  NoWork() noexcept : mine_(detail::work_of_thread()) {
    if (mine_ != nullptr) mine_->refused = true;
  }
  ~NoWork() {
    if (mine_ != nullptr) mine_->refused = false;
  }
  NoWork(const NoWork&) = delete;
  NoWork& operator=(const NoWork&) = delete;
  bool holds() const noexcept { return mine_ != nullptr; }  // else there is no memory

 private:
  detail::ThreadWork* mine_;
};

// Tells whether other threads worked since it was made than those that work for its thread's call (CallScope), or than
// its thread, if there is none.
class Onlooker final : CallScope::Follower {
 public:
  Onlooker() noexcept;
  ~Onlooker();
  // Asked by the thread that made it, while no other one is attached.
  bool others_worked() const noexcept;

 private:
  bool attached() noexcept override;
  void detached() noexcept override;

  CallScope* call_;          // null: none
  std::uint64_t calls_ = 0;  // others', as they were
  bool under_way_ = false;   // were some of them?
};

// As long as it lives the work of threads waits that do not work for its thread's call. One at a time: where another
// thread has one, this one does nothing.
class DeviceExclusion {
 public:
  DeviceExclusion() noexcept;
  ~DeviceExclusion();
  DeviceExclusion(const DeviceExclusion&) = delete;
  DeviceExclusion& operator=(const DeviceExclusion&) = delete;
  // Is nobody else at work? What was under way is done within so many seconds, or it is not.
  bool reached(double seconds) const noexcept;

 private:
  bool held_ = false;
};

}  // namespace grape::observation
