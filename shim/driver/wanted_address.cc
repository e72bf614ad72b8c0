#include "shim/driver/wanted_address.h"

#include <atomic>

namespace grape::driver {
namespace {

constexpr std::uint64_t kFirst = std::uint64_t{0x5a5d} << 32, kEnd = std::uint64_t{0x7a00} << 32;
constexpr std::uint64_t kStep = std::uint64_t{1} << 32;

}  // namespace

std::uint64_t wanted_address(std::uint64_t bytes, std::uint64_t alignment) noexcept {
  static std::atomic<std::uint64_t> next{kFirst};
  if (alignment > kStep || bytes > kEnd - kFirst) return 0;
  std::uint64_t first = next.load(std::memory_order_relaxed);
  const std::uint64_t whole = (bytes + kStep - 1) / kStep * kStep;
  for (;;) {
    const std::uint64_t wanted = first <= kEnd - whole ? first : kFirst;
    if (next.compare_exchange_weak(first, wanted + whole, std::memory_order_relaxed)) return wanted;
  }
}

}  // namespace grape::driver
