#include "shim/driver/unhandled.h"

#include <pthread.h>

#include <atomic>
#include <cstring>

extern "C" {
extern const char grape_thunks[] __attribute__((visibility("hidden")));
__attribute__((visibility("hidden"))) std::uint64_t grape_thunk_counts[GRAPE_UNHANDLED_SLOTS];
__attribute__((visibility("hidden"))) void* grape_thunk_targets[GRAPE_UNHANDLED_SLOTS];
__attribute__((visibility("hidden"))) char* grape_handle_range;
__attribute__((visibility("hidden"))) void* (*grape_real_handle)(void* handle);
}

namespace grape::driver {

namespace {

constexpr std::size_t kNameBytes = 72;

pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER;  // held for a look through the table, never across a call
std::atomic<std::uint32_t> g_used{0};
char g_names[GRAPE_UNHANDLED_SLOTS][kNameBytes];

void* thunk(std::uint32_t slot) noexcept {
  return const_cast<char*>(grape_thunks + std::size_t{slot} * GRAPE_UNHANDLED_THUNK_BYTES);
}

}  // namespace

void* counted(const char* name, void* real) noexcept {
  pthread_mutex_lock(&g_mutex);
  const std::uint32_t used = g_used.load(std::memory_order_relaxed);
  void* result = real;
  std::uint32_t slot = 0;
  while (slot < used && grape_thunk_targets[slot] != real) ++slot;
  if (slot < used) {
    result = thunk(slot);
  } else if (used < GRAPE_UNHANDLED_SLOTS) {
    std::strncpy(g_names[slot], name, kNameBytes - 1);
    grape_thunk_targets[slot] = real;
    g_used.store(used + 1, std::memory_order_release);
    result = thunk(slot);
  }
  pthread_mutex_unlock(&g_mutex);
  return result;
}

void exchange_handles(char* range, void* (*real_handle)(void*)) noexcept {
  grape_real_handle = real_handle;
  __atomic_store_n(&grape_handle_range, range, __ATOMIC_RELEASE);
}

std::uint32_t unhandled_calls(const char** names, std::uint64_t* counts, std::uint32_t room) noexcept {
  const std::uint32_t used = g_used.load(std::memory_order_acquire);
  std::uint32_t filled = 0;
  for (std::uint32_t slot = 0; slot < used && filled < room; ++slot) {
    const std::uint64_t count = __atomic_load_n(&grape_thunk_counts[slot], __ATOMIC_RELAXED);
    if (count == 0) continue;
    // One name can stand for several functions: its versions, or what different doors gave.
    std::uint32_t same = 0;
    while (same < filled && std::strcmp(names[same], g_names[slot]) != 0) ++same;
    counts[same] = (same < filled ? counts[same] : 0) + count;
    names[same] = g_names[slot];
    if (same == filled) ++filled;
  }
  return filled;
}

void count_unhandled(UnhandledCounts& counts) noexcept {
  counts.used = g_used.load(std::memory_order_acquire);
  for (std::uint32_t slot = 0; slot < counts.used; ++slot) {
    counts.of[slot] = __atomic_load_n(&grape_thunk_counts[slot], __ATOMIC_RELAXED);
  }
}

const char* unhandled_since(const UnhandledCounts& before) noexcept {
  const std::uint32_t used = g_used.load(std::memory_order_acquire);
  for (std::uint32_t slot = 0; slot < used; ++slot) {
    const std::uint64_t count = __atomic_load_n(&grape_thunk_counts[slot], __ATOMIC_RELAXED);
    if (count != (slot < before.used ? before.of[slot] : 0)) return g_names[slot];
  }
  return nullptr;
}

}  // namespace grape::driver
