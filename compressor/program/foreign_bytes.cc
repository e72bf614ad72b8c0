#include "compressor/program/foreign_bytes.h"

namespace grape::program {
namespace {

constexpr std::uint64_t kLowestAddress = std::uint64_t{1} << 33, kAddressEnd = std::uint64_t{1} << 47;
constexpr std::uint64_t kUpperHalf = ~std::uint64_t{0} << 32;
constexpr std::uint32_t kMostIndex = 1u << 24;
constexpr std::uint8_t kUpperBytes = 0xf0;

// Addresses of the device, and of nearly all memory of the host.
bool is_high_address(std::uint64_t value) { return value >= kLowestAddress && value < kAddressEnd; }

// Also the heap of a program that is not position-independent.
bool may_be_address(std::uint64_t value) { return value >= kMostIndex && value < kAddressEnd; }

bool may_be_index(std::uint32_t half) { return half < kMostIndex || half >= 0 - kMostIndex; }

std::uint64_t mask_of(std::uint8_t bytes) {
  std::uint64_t mask = 0;
  for (unsigned i = 0; i < 8; ++i) {
    if ((bytes >> i & 1) != 0) mask |= std::uint64_t{0xff} << (8 * i);
  }
  return mask;
}

// Each of these bytes half as large: a smaller number, however many bytes it has.
std::uint32_t lowered(std::uint32_t own, std::uint32_t mask) { return (own & ~mask) | (own >> 1 & 0x7f7f7f7f & mask); }

std::uint32_t careful_half(std::uint32_t own, std::uint32_t other, std::uint32_t mask) {
  if (!may_be_index(own) || !may_be_index(other)) return (own & ~mask) | (other & mask);
  return own < kMostIndex ? lowered(own, mask) : own;
}

std::uint64_t careful_halves(std::uint64_t own, std::uint64_t other, std::uint64_t mask) {
  const auto half = [&](unsigned shift) {
    return std::uint64_t{careful_half(static_cast<std::uint32_t>(own >> shift),
                                      static_cast<std::uint32_t>(other >> shift),
                                      static_cast<std::uint32_t>(mask >> shift))}
           << shift;
  };
  return half(32) | half(0);
}

}  // namespace

std::uint8_t different_bytes(std::uint64_t a, std::uint64_t b) {
  std::uint8_t bytes = 0;
  for (unsigned i = 0; i < 8; ++i) {
    if (((a ^ b) >> (8 * i) & 0xff) != 0) bytes = static_cast<std::uint8_t>(bytes | 1u << i);
  }
  return bytes;
}

Replacement careful_replacement(std::uint64_t own, std::uint64_t other, std::uint8_t bytes, HostPlace place,
                                std::uint64_t harmless) {
  const Replacement nothing = {own, 0};
  if (own < kMostIndex && other < kMostIndex) return nothing;
  const bool data = place == HostPlace::kData;
  const bool address = is_high_address(own) || data || place == HostPlace::kReserved;
  const bool in_both = (address && (may_be_address(other) || other == 0)) || (own == 0 && is_high_address(other));
  if (own == 0 && !in_both) return nothing;
  const std::uint64_t value = careful_halves(own, other, mask_of(bytes));
  const bool upper = (bytes & kUpperBytes) != 0;
  if (!in_both || (!upper && place == HostPlace::kNone)) return {value, different_bytes(own, value)};
  const bool has_room = harmless != 0 && static_cast<std::uint32_t>(harmless) == 0;
  if (!has_room || (!upper && !data)) return nothing;
  const std::uint64_t moved = (harmless & kUpperHalf) | static_cast<std::uint32_t>(value);
  return {moved, static_cast<std::uint8_t>((bytes & kUpperBytes) | different_bytes(static_cast<std::uint32_t>(own),
                                                                                   static_cast<std::uint32_t>(value)))};
}

}  // namespace grape::program
