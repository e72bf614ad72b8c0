// Hashes of device memory, which compare the results of two runs without bringing them to the host. A hash is a 64-bit
// sum over mixed (position, word) pairs. Equal memory has equal hashes. Different memory has equal hashes once in 2^64,
// and never if only one word of 8 bytes differs.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

#include "compressor/refusal/refusal.h"

namespace grape::device {

class DeviceHash {
 public:
  struct Range {
    std::uint64_t address = 0, bytes = 0;  // any alignment, any length
  };
  // Loads the kernel into the current context (PTX from this library; the driver compiles it once). Null, and one line
  // in `error`, on failure. Belongs to the context; never freed. Any thread.
  static DeviceHash* of_current_context(refusal::Refusal& error) noexcept;

  // Enqueues hashes of all ranges on `stream`, waits, and gives one number per range: one launch for up to
  // OwnKernels::kSums ranges. The context is current, and `stream` not under capture. On an error `out` is empty.
  CUresult hash(CUstream stream, const std::vector<Range>& ranges, std::vector<std::uint64_t>& out) noexcept;
  // Copies as well, in the same pass: range i to copies[i], which overlaps with no range. 16-byte alignment of both is
  // fast. On an error the copies are of no use.
  CUresult hash_and_copy(CUstream stream, const std::vector<Range>& ranges, const std::vector<std::uint64_t>& copies,
                         std::vector<std::uint64_t>& out) noexcept;
};

}  // namespace grape::device
