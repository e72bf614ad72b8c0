#include "shim/virtual_execs/submissions.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <mutex>

namespace grape::virtual_execs {
namespace {

// A launch by node that fills its stream's queue waits for the device, which may wait for what another thread has yet
// to submit: that one goes on after a while, and comes in between.
constexpr std::chrono::milliseconds kLongest{500};

// Never destroyed: threads may launch until the very end.
std::timed_mutex& mutex() {
  static auto& one = *new std::timed_mutex;
  return one;
}
std::atomic<int> g_threads{0};  // that submitted work, and live; changed with mutex() held, or after too long a wait
pthread_key_t g_ends;

void ended(void*) {
  const std::lock_guard<std::timed_mutex> lock(mutex());
  g_threads.fetch_sub(1);
}

}  // namespace

namespace detail {

thread_local bool t_submits = false;

void first_submission() noexcept {
  t_submits = true;
  const bool locked = mutex().try_lock_for(kLongest);
  g_threads.fetch_add(1);
  // One whose end nobody would see counts for good.
  static const bool made = pthread_key_create(&g_ends, ended) == 0;
  if (made) pthread_setspecific(g_ends, &g_threads);
  if (locked) mutex().unlock();
}

}  // namespace detail

Alone::Alone() noexcept {
  if (!detail::t_submits) return;
  mutex().lock();
  alone_ = g_threads.load() == 1;
  if (!alone_) mutex().unlock();
}

Alone::~Alone() {
  if (alone_) mutex().unlock();
}

}  // namespace grape::virtual_execs
