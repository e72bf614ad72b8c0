// Knows which threads of the process put work on streams. A graph that is launched node by node is no longer one
// element of its stream. Only while a single thread launches at all, nothing of another thread's can come between its
// nodes. Any thread. Threads that ended are forgotten.
#pragma once

namespace grape::virtual_execs {

namespace detail {
extern thread_local bool t_submits;
void first_submission() noexcept;
}  // namespace detail

// Before any call that puts work on a stream. A thread's first one waits while another thread is Alone.
inline void note_submission() noexcept {
  if (__builtin_expect(!detail::t_submits, 0)) detail::first_submission();
}

// While it lives and is true, this thread alone has submitted work, and no other thread begins to.
class Alone {
 public:
  Alone() noexcept;
  ~Alone();
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;
  explicit operator bool() const noexcept { return alone_; }

 private:
  bool alone_ = false;
};

}  // namespace grape::virtual_execs
