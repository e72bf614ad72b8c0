#include "python_hooks/interpreter/code_deaths.h"

#include "python_hooks/interpreter/cpython.h"
#include "python_hooks/interpreter/flat_map.h"
#include "shim/lifecycle/hot.h"

namespace grape::python {

GRAPE_HOT std::atomic<std::uint32_t> g_code_epoch{1};

namespace {

// One bit for each of 2^18 hashed addresses (32 KiB): a false alarm only costs the threads a look at the content.
constexpr std::uint32_t kBits = 18;
std::atomic<std::uint64_t> g_known[(1U << kBits) / 64];
Destructor g_destructor = nullptr;

std::uint32_t bit_of(std::uintptr_t address) {
  return static_cast<std::uint32_t>(mix(static_cast<std::uint64_t>(address) >> 4) >> 40) & ((1U << kBits) - 1);
}

void code_dies(Object* code) {
  const std::uint32_t bit = bit_of(reinterpret_cast<std::uintptr_t>(code));
  const std::uint64_t mask = std::uint64_t{1} << (bit % 64);
  std::atomic<std::uint64_t>& word = g_known[bit / 64];
  if ((word.load(std::memory_order_relaxed) & mask) != 0) {
    // In this order: a thread that sees the new epoch sets its bits after they were cleared here.
    word.fetch_and(~mask, std::memory_order_relaxed);
    g_code_epoch.fetch_add(1, std::memory_order_release);
  }
  g_destructor(code);
}

}  // namespace

void remember_code(std::uintptr_t address) noexcept {
  const std::uint32_t bit = bit_of(address);
  g_known[bit / 64].fetch_or(std::uint64_t{1} << (bit % 64), std::memory_order_relaxed);
}

void watch_code_deaths() noexcept {
  Destructor& slot = destructor_of(g_api.PyCode_Type);
  if (slot == code_dies || slot == nullptr) return;
  g_destructor = slot;
  slot = code_dies;
}

}  // namespace grape::python
