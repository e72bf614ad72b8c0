#include "python_hooks/scopes/line_table.h"

namespace grape::python::scopes {
namespace {

// 3.10: pairs of a range's length and its signed line step; -128: the range has no line.
int line_in_ranges(const std::uint8_t* table, std::size_t bytes, int first_line, std::int64_t offset) {
  int line = first_line;
  std::int64_t end = 0;
  for (std::size_t i = 0; i + 1 < bytes; i += 2) {
    end += table[i];
    const auto step = static_cast<std::int8_t>(table[i + 1]);
    if (step != -128) line += step;
    if (offset < end) return step == -128 ? -1 : line;
  }
  return -1;
}

// A number in 6-bit groups, the lowest first; bit 6 says that another one follows.
std::uint32_t read_number(const std::uint8_t* table, std::size_t bytes, std::size_t& at) {
  std::uint32_t value = 0;
  for (unsigned shift = 0; at < bytes && shift < 32; shift += 6) {
    const std::uint8_t byte = table[at++];
    value |= static_cast<std::uint32_t>(byte & 63) << shift;
    if ((byte & 64) == 0) break;
  }
  return value;
}

int read_signed_number(const std::uint8_t* table, std::size_t bytes, std::size_t& at) {
  const std::uint32_t value = read_number(table, bytes, at);
  const int magnitude = static_cast<int>(value >> 1);
  return (value & 1) != 0 ? -magnitude : magnitude;
}

// From 3.11: entries that begin with a byte whose top bit is set: kind (4 bits), length in code units less one (3).
int line_in_locations(const std::uint8_t* table, std::size_t bytes, int first_line, std::int64_t offset) {
  constexpr int kOneLine = 10, kNoColumns = 13, kLong = 14, kNone = 15;
  int line = first_line;
  std::int64_t end = 0;
  std::size_t at = 0;
  while (at < bytes) {
    const std::uint8_t head = table[at++];
    const int kind = (head >> 3) & 15;
    end += ((head & 7) + 1) * 2;
    if (kind == kNoColumns || kind == kLong) line += read_signed_number(table, bytes, at);
    if (kind >= kOneLine && kind < kNoColumns) line += kind - kOneLine;
    if (offset < end) return kind == kNone ? -1 : line;
    while (at < bytes && (table[at] & 128) == 0) ++at;
  }
  return -1;
}

}  // namespace

int line_of(LineFormat format, const std::uint8_t* table, std::size_t bytes, int first_line,
            std::int64_t offset) noexcept {
  if (offset < 0) return first_line;
  return format == LineFormat::kRanges ? line_in_ranges(table, bytes, first_line, offset)
                                       : line_in_locations(table, bytes, first_line, offset);
}

}  // namespace grape::python::scopes
