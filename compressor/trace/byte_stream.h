// Appending and taking fixed-width integers, varints and words to and from bytes (docs/FORMAT.md, Notation).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace grape::trace {

using Bytes = std::vector<std::uint8_t>;

inline std::uint64_t zigzag(std::uint64_t value) { return (value << 1) ^ (std::uint64_t{0} - (value >> 63)); }
inline std::uint64_t unzigzag(std::uint64_t value) { return (value >> 1) ^ (std::uint64_t{0} - (value & 1)); }

// The difference of two halves of words, as a signed number of 64 bits.
inline std::uint64_t half_move(std::uint32_t from, std::uint32_t to) {
  return static_cast<std::uint64_t>(std::int64_t{static_cast<std::int32_t>(to - from)});
}

template <typename Integer>
void put_fixed(Bytes& out, Integer value) {
  const std::size_t at = out.size();
  out.resize(at + sizeof value);
  std::memcpy(out.data() + at, &value, sizeof value);
}

inline void put_varint(Bytes& out, std::uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<std::uint8_t>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<std::uint8_t>(value));
}

// Takes values from the front of a range. A value that is not there whole sets failed() and reads as 0; the range is
// never left.
class ByteCursor {
 public:
  ByteCursor() = default;
  ByteCursor(const std::uint8_t* data, std::size_t bytes) : at_(data), end_(data + bytes) {}

  std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }
  bool failed() const { return failed_; }
  void fail() {
    failed_ = true;
    at_ = end_;
  }

  std::uint8_t byte() {
    if (at_ == end_) {
      failed_ = true;
      return 0;
    }
    return *at_++;
  }

  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const std::uint8_t next = byte();
      value |= std::uint64_t{next & 0x7Fu} << shift;
      if (next < 0x80) {
        if (shift == 63 && next > 1) fail();
        return failed_ ? 0 : value;
      }
    }
    fail();
    return 0;
  }

  template <typename Integer>
  Integer fixed() {
    Integer value = 0;
    copy(&value, sizeof value);
    return value;
  }

  // The next `bytes` bytes; null if there are fewer.
  const std::uint8_t* take(std::size_t bytes) {
    if (bytes > left()) {
      fail();
      return nullptr;
    }
    const std::uint8_t* here = at_;
    at_ += bytes;
    return here;
  }

  void copy(void* to, std::size_t bytes) {
    const std::uint8_t* from = take(bytes);
    if (from != nullptr && bytes > 0) std::memcpy(to, from, bytes);
  }

 private:
  const std::uint8_t* at_ = nullptr;
  const std::uint8_t* end_ = nullptr;
  bool failed_ = false;
};

}  // namespace grape::trace
