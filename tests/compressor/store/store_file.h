// What tests do to the store's files, by docs/STORE.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "compressor/trace/byte_stream.h"
#include "compressor/trace/chunk.h"

namespace grape::store {

// Makes the checksum of each record right, as far as the lengths lead.
inline void repair_checksums(std::vector<std::uint8_t>& file) {
  for (std::size_t at = 16; file.size() >= at + 16;) {
    std::uint32_t stored = 0;
    std::memcpy(&stored, file.data() + at + 12, sizeof stored);
    if (stored > file.size() - at - 16) return;
    const std::uint64_t sum = trace::checksum(file.data() + at + 8, 8 + std::size_t{stored});
    std::memcpy(file.data() + at, &sum, sizeof sum);
    at += 16 + std::size_t{stored};
  }
}

}  // namespace grape::store
