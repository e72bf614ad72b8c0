// The application's signals are for its own threads: no handler of its may run on one that it does not know.
#pragma once

#include <signal.h>

namespace grape {

// While it lives, the calling thread gets no signals, and a thread that it makes never will.
class BlockedSignals {
 public:
  BlockedSignals() noexcept {
    sigset_t all;
    sigfillset(&all);
    blocked_ = pthread_sigmask(SIG_SETMASK, &all, &before_) == 0;
  }
  ~BlockedSignals() {
    if (blocked_) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  bool blocked() const noexcept { return blocked_; }

 private:
  sigset_t before_{};
  bool blocked_ = false;
};

}  // namespace grape
