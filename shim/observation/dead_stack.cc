#include "shim/observation/dead_stack.h"

#include <alloca.h>
#include <errno.h>
#include <pthread.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace grape::observation {
namespace {

constexpr std::size_t kKept = std::size_t{64} << 10;     // at the end of the stack, for those who need it
constexpr std::size_t kForCalls = std::size_t{4} << 20;  // the same, where a whole call is to come

// Of the thread's own stack. `end`: 0 before it was asked.
struct Stack {
  std::uintptr_t begin, end;
};
__thread Stack t_stack __attribute__((tls_model("initial-exec")));

__attribute__((cold, noinline)) void find_stack() noexcept {
  const int saved_errno = errno;
  t_stack = {UINTPTR_MAX, UINTPTR_MAX};  // not known: no frame is inside
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
    void* begin = nullptr;
    std::size_t bytes = 0;
    if (pthread_attr_getstack(&attributes, &begin, &bytes) == 0) {
      t_stack.begin = reinterpret_cast<std::uintptr_t>(begin);
      t_stack.end = t_stack.begin + bytes;
    }
    pthread_attr_destroy(&attributes);
  }
  errno = saved_errno;
}

// Its own frame lies where those of functions lay that have returned. A sanitizer may put frames elsewhere.
__attribute__((noinline, no_sanitize("address"))) void clear() noexcept {
  unsigned char dead[kDeadStack];
  std::memset(dead, 0, sizeof dead);
  asm volatile("" : : "r"(dead) : "memory");  // somebody looks at it
}

// Below this frame; 0: it is none of the thread's own stack.
std::size_t stack_left(std::uintptr_t frame) noexcept {
  if (t_stack.end == 0) find_stack();
  return frame < t_stack.end && frame >= t_stack.begin ? frame - t_stack.begin : 0;
}

}  // namespace

void clear_dead_stack() noexcept {
  if (stack_left(reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0))) > kDeadStack + kKept) clear();
}

program::Extent own_stack() noexcept {
  constexpr std::uint64_t kMost = std::uint64_t{16} << 20;  // a stack without a limit ends at whatever lies below it
  if (t_stack.end == 0) find_stack();
  const std::uint64_t bytes = std::min<std::uint64_t>(t_stack.end - t_stack.begin, kMost);
  return {t_stack.end - bytes, bytes};
}

__attribute__((noinline)) void call_at_step(void (*work)(void* of), void* of) {
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  const std::size_t above = here % kStackStep;
  if (stack_left(here) > above + kForCalls) {
    void* const room = alloca(above);
    asm volatile("" : : "r"(room) : "memory");  // somebody has it
  }
  work(of);
  asm volatile("" : : : "memory");  // not the last thing done: this frame stays
}

}  // namespace grape::observation
