// Leftovers on the stack, and stacks on which nothing may be cleared.
#include "shim/observation/dead_stack.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace grape::observation {
namespace {

constexpr unsigned char kLeft = 0x5a;
constexpr std::size_t kFrame = 4096;

// To the compiler the asm sets what the frame has: what lay there before. A sanitizer may put frames elsewhere.
__attribute__((noinline, no_sanitize("address"))) std::size_t leftovers() {
  unsigned char frame[kFrame];
  asm volatile("" : "=m"(frame));
  return static_cast<std::size_t>(std::count(frame, frame + kFrame, kLeft));
}

__attribute__((noinline, no_sanitize("address"))) void leave() {
  unsigned char frame[kFrame];
  std::memset(frame, kLeft, sizeof frame);
  asm volatile("" : : "r"(frame) : "memory");
}

TEST(DeadStack, LeftoversAreGone) {
  leave();
  ASSERT_GT(leftovers(), kFrame / 2) << "else this test shows nothing";
  leave();
  clear_dead_stack();
  EXPECT_LT(leftovers(), 256U) << "but for the frame of who cleared it";
}

// Clears at each KiB, down to 12 KiB above `end`.
__attribute__((noinline)) void go_down(std::uint64_t end) {
  unsigned char frame[1024];
  std::memset(frame, 1, sizeof frame);
  clear_dead_stack();
  if (reinterpret_cast<std::uint64_t>(__builtin_frame_address(0)) - end > 12 << 10) go_down(end);
  asm volatile("" : : "r"(frame) : "memory");
  EXPECT_EQ(std::count(frame, frame + sizeof frame, 1), static_cast<std::ptrdiff_t>(sizeof frame));
}

// What is cleared must not reach the end of the stack.
TEST(DeadStack, EndOfTheStack) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 1 << 20), 0);
  pthread_t thread;
  const auto run = [](void*) -> void* {
    go_down(own_stack().address);
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, nullptr), 0);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
}

void note_frame(void* of) {
  *static_cast<std::uintptr_t*>(of) = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
}

__attribute__((noinline)) std::uintptr_t frame_behind(std::size_t steps) {
  unsigned char frame[1024];
  std::uintptr_t at = 0;
  if (steps != 0) {
    at = frame_behind(steps - 1);
  } else {
    call_at_step(note_frame, &at);
  }
  asm volatile("" : : "r"(frame) : "memory");
  return at;
}

// This thread's stack may be near a step: of three heights two have the same one below.
TEST(DeadStack, CallsBeginAtSteps) {
  const std::uintptr_t a = frame_behind(1), b = frame_behind(9), c = frame_behind(80);
  EXPECT_TRUE(a == b || b == c);
  EXPECT_EQ(a % kStackStep, c % kStackStep);
  EXPECT_GT(a % kStackStep, kStackStep - 1024);
}

ucontext_t g_main, g_coroutine;

void in_coroutine() {
  clear_dead_stack();
  swapcontext(&g_coroutine, &g_main);
}

// Below its stack is somebody's memory.
TEST(DeadStack, StacksThatAreNotTheThreads) {
  constexpr std::size_t kBelow = 4 * kDeadStack, kStack = 32 << 10;
  std::vector<unsigned char> memory(kBelow + kStack, kLeft);
  ASSERT_EQ(getcontext(&g_coroutine), 0);
  g_coroutine.uc_stack.ss_sp = memory.data() + kBelow;
  g_coroutine.uc_stack.ss_size = kStack;
  g_coroutine.uc_link = &g_main;
  makecontext(&g_coroutine, in_coroutine, 0);
  ASSERT_EQ(swapcontext(&g_main, &g_coroutine), 0);
  EXPECT_EQ(std::count(memory.begin(), memory.begin() + kBelow + kStack / 4, kLeft),
            static_cast<std::ptrdiff_t>(kBelow + kStack / 4));
}

}  // namespace
}  // namespace grape::observation
