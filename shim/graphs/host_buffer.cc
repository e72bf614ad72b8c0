#include "shim/graphs/host_buffer.h"

#include <cuda.h>
#include <pthread.h>
#include <sys/mman.h>

#include <atomic>

#include "shim/driver/current_context.h"
#include "shim/driver/listeners.h"
#include "shim/driver/real_driver.h"

namespace grape::graphs {
namespace {

constexpr std::size_t kPlaces = 64;  // got from the system at a time, and kept for good

// A place that nobody has.
struct Free {
  Free* next;
  bool waits;
  CUcontext mapped_in;        // null: nowhere
  std::uint32_t gone_before;  // how many contexts had gone when it was mapped: another one may have that handle by now
};
static_assert(sizeof(Free) <= HostBuffer::kBytes, "stands in the place itself");

pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER;
Free* g_free = nullptr;
std::atomic<std::uint32_t> g_gone{0};
std::atomic<CUcontext> g_unmapped{nullptr};  // the context for which nothing could be mapped last: not asked again

void give(void* place, bool waits, CUcontext mapped_in, std::uint32_t gone_before) noexcept {
  auto* one = static_cast<Free*>(place);
  pthread_mutex_lock(&g_mutex);
  *one = {g_free, waits, mapped_in, gone_before};
  g_free = one;
  pthread_mutex_unlock(&g_mutex);
}

// `mapped_in`: null: any.
Free* take_free(CUcontext mapped_in) noexcept {
  const std::uint32_t gone = g_gone.load();
  pthread_mutex_lock(&g_mutex);
  Free** at = &g_free;
  while (*at != nullptr && mapped_in != nullptr && ((*at)->mapped_in != mapped_in || (*at)->gone_before != gone)) {
    at = &(*at)->next;
  }
  Free* one = *at;
  if (one != nullptr) *at = one->next;
  pthread_mutex_unlock(&g_mutex);
  return one;
}

void add_places() noexcept {
  constexpr std::size_t kAll = kPlaces * HostBuffer::kBytes;
  void* memory = mmap(nullptr, kAll, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  const std::uint32_t gone = g_gone.load();
  CUcontext context = driver::current_context();
  const bool known = driver::real::call_cuMemHostRegister_v2(memory, kAll, CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS;
  // With one address space for all, what is known is mapped, on most devices at its own address.
  CUdeviceptr address = 0;
  const bool mapped = known && driver::real::call_cuMemHostGetDevicePointer_v2(&address, memory, 0) == CUDA_SUCCESS &&
                      address == reinterpret_cast<CUdeviceptr>(memory);
  for (std::size_t i = 0; i < kPlaces; ++i) {
    give(static_cast<char*>(memory) + i * HostBuffer::kBytes, !known, mapped ? context : nullptr, gone);
  }
}

Free* take_or_add(CUcontext mapped_in) noexcept {
  Free* one = take_free(mapped_in);
  if (one != nullptr || (mapped_in != nullptr && g_unmapped.load() == mapped_in)) return one;
  add_places();
  one = take_free(mapped_in);
  if (one == nullptr) g_unmapped.store(mapped_in);
  return one;
}

}  // namespace

HostBuffer::HostBuffer() noexcept { take(take_or_add(nullptr)); }
HostBuffer::HostBuffer(CUcontext context) noexcept { take(context != nullptr ? take_or_add(context) : nullptr); }

void HostBuffer::take(void* place) noexcept {
  if (place == nullptr) return;
  const auto* one = static_cast<const Free*>(place);
  place_ = place;
  waits_ = one->waits;
  mapped_in_ = one->mapped_in;
  gone_before_ = one->gone_before;
}

HostBuffer::~HostBuffer() {
  if (place_ != nullptr) give(place_, waits_, mapped_in_, gone_before_);
}

void note_context_gone() noexcept {
  g_gone.fetch_add(1);
  g_unmapped.store(nullptr);
}

namespace {
__attribute__((constructor)) void listen() {
  driver::add_context_listener([](CUcontext) noexcept { note_context_gone(); });
}
}  // namespace

}  // namespace grape::graphs
