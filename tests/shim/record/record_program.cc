// A program that records: argv says what, the trace (GRAPE_TRACE) is read by recorder_test. Prints what it tried.
#include <setjmp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "shim/record/recorder.h"

namespace {

using grape::record::Entry;
using grape::record::Stamp;
using grape::trace::EventKind;

// One event whose payload tells its thread and its place in the thread's order. False: it was lost, or not recorded.
__attribute__((noinline)) bool record(std::uint32_t thread, std::uint32_t index, std::uint32_t words = 4) {
  Entry entry;
  if (entry.log() == nullptr) return false;
  std::uint64_t* word = entry.log()->begin(EventKind::kBlockFree, 0, 3, Stamp{grape::record::ticks(), 0});
  if (word == nullptr) return false;
  word[0] = grape::trace::pack(thread, index);
  word[1] = words;
  word[2] = 0;
  entry.log()->commit();
  return true;
}

void record_many(std::uint32_t thread, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) record(thread, i);
}

int threads(int count, int events) {
  std::vector<std::thread> all;
  for (int t = 0; t < count; ++t) all.emplace_back(record_many, t + 1, events);
  for (std::thread& thread : all) thread.join();
  return 0;
}

// Threads that hand a token round, and record its number while they have it: the trace's order is the token's.
int token(int count, int rounds) {
  std::mutex mutex;
  std::uint32_t number = 0;
  const auto work = [&](bool wait) {
    for (int i = 0; i < rounds; ++i) {
      {
        const std::lock_guard<std::mutex> lock(mutex);
        for (int several = 0; several < 1 + i % 3; ++several) record(1, number++);
      }
      if (wait && i % 8 == 0) usleep(1);
    }
  };
  std::vector<std::thread> all;
  for (int t = 0; t < count; ++t) all.emplace_back(work, t % 2 == 0);
  for (std::thread& thread : all) thread.join();
  return 0;
}

// Far more than the buffers hold, as fast as it goes: what is lost is counted.
int flood(long events) {
  constexpr std::uint32_t kWords = 1000;
  long recorded = 0;
  for (long i = 0; i < events; ++i) {
    Entry entry;
    std::uint64_t* word = entry.log()->begin(EventKind::kDefNativeFrame, 0, kWords, Stamp{});
    if (word == nullptr) continue;
    std::memset(word, 0, kWords * 8);
    word[0] = grape::trace::pack(static_cast<std::uint32_t>(++recorded), 0);
    word[2] = grape::trace::pack((kWords - 3) * 8, 0);
    entry.log()->commit();
  }
  std::printf("%ld\n", recorded);
  return 0;
}

jmp_buf g_back;

// A function of its own, as wrappers are: it is reached through a pointer.
__attribute__((noinline)) void inner_wrapper() {
  Entry entry;
  longjmp(g_back, 1);
}

__attribute__((noinline)) void jump_out() {
  if (setjmp(g_back) == 0) inner_wrapper();
}

int jump() {
  for (std::uint32_t i = 0; i < 10; ++i) {
    jump_out();
    record(1, i);
  }
  return 0;
}

int nested() {
  Entry outer;
  const bool inner_recorded = record(1, 0);
  return outer.log() != nullptr && !inner_recorded ? 0 : 1;
}

int fork_child() {
  record(1, 0);
  const pid_t child = fork();
  if (child == 0) {
    const bool recorded = record(1, 99);
#ifdef __SANITIZE_ADDRESS__
    // Its leak check asks for locks of its allocator, which a thread of the parent's may have held at the fork.
    _exit(recorded ? 1 : 0);
#else
    exit(recorded ? 1 : 0);
#endif
  }
  int status = 0;
  waitpid(child, &status, 0);
  record(1, 1);
  return WEXITSTATUS(status);
}

// Two ranges, of two threads; what is recorded outside of them would break the order. One event outlasts them.
int ranges() {
  record(1, 90);
  std::thread([] { record(2, 91); }).join();
  grape::record::begin_range();
  record(1, 0);
  std::thread([] { record(2, 0); }).join();
  grape::record::begin_range();  // is open already
  record(1, 1);
  grape::record::end_range();
  record(1, 92);
  grape::record::end_range();
  {
    const Entry entry;
    const bool quiet = entry.log() == nullptr;
    if (std::uint64_t* word = entry.lasting_log()->begin(EventKind::kBlockFree, 0, 3, Stamp{}); quiet) {
      word[0] = grape::trace::pack(1, 2);
      word[1] = word[2] = 0;
      entry.lasting_log()->commit();
    }
  }
  grape::record::begin_range();
  record(1, 3);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "nothing") return 7;
  if (what == "threads") return threads(std::atoi(argv[2]), std::atoi(argv[3]));
  if (what == "token") return token(std::atoi(argv[2]), std::atoi(argv[3]));
  if (what == "flood") return flood(std::atol(argv[2]));
  if (what == "jump") return jump();
  if (what == "nested") return nested();
  if (what == "fork") return fork_child();
  if (what == "ranges") return ranges();
  // As programs do that take away what they have read of their arguments.
  for (int i = 1; i < argc; ++i) argv[i] = nullptr;
  record_many(1, 1000);
  if (what == "exit") exit(5);
  if (what == "_exit") _exit(6);
  if (what == "abort") abort();
  if (what == "sleep") {
    usleep(1'500'000);
    record_many(1, 10);
    std::puts("ready");
    std::fflush(stdout);
    usleep(1'500'000);
    raise(SIGKILL);
  }
  return 0;
}
