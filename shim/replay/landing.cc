#include "shim/replay/landing.h"

#include <cuda.h>
#include <pthread.h>
#include <sys/mman.h>

#include "shim/interpose/real_driver.h"

namespace grape::replay {
namespace {

constexpr std::size_t kPlaces = 64;  // got from the system at a time, and kept for good

// A place that nobody has.
struct Free {
  Free* next;
  bool waits;
};
static_assert(sizeof(Free) <= Landing::kBytes, "stands in the place itself");

pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER;
Free* g_free = nullptr;

void give(void* place, bool waits) noexcept {
  auto* one = static_cast<Free*>(place);
  pthread_mutex_lock(&g_mutex);
  *one = {g_free, waits};
  g_free = one;
  pthread_mutex_unlock(&g_mutex);
}

Free* take() noexcept {
  pthread_mutex_lock(&g_mutex);
  Free* one = g_free;
  if (one != nullptr) g_free = one->next;
  pthread_mutex_unlock(&g_mutex);
  return one;
}

void add_places() noexcept {
  constexpr std::size_t kAll = kPlaces * Landing::kBytes;
  void* memory = mmap(nullptr, kAll, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  auto* know = interpose::real::get_cuMemHostRegister_v2();
  const bool known = know != nullptr && know(memory, kAll, CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS;
  for (std::size_t i = 0; i < kPlaces; ++i) give(static_cast<char*>(memory) + i * Landing::kBytes, !known);
}

}  // namespace

Landing::Landing() noexcept {
  Free* one = take();
  if (one == nullptr) {
    add_places();
    one = take();
  }
  if (one == nullptr) return;
  place_ = one;
  waits_ = one->waits;
}

Landing::~Landing() {
  if (place_ != nullptr) give(place_, waits_);
}

}  // namespace grape::replay
