// Work that differs from itself: do its runs lie as far from eager's as from each other? One thread; the context of the
// work is current.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

#include "compressor/refusal/refusal.h"
#include "shim/device/copy_memory.h"
#include "shim/device/device_hash.h"
#include "shim/device/device_spread.h"

namespace grape::replay {

// Of a few runs from the same memory. Each output holds floating-point numbers of one kind.
class RunSpread {
 public:
  using Range = device::DeviceHash::Range;
  static constexpr std::size_t kRuns = 5;  // as many at least, the first one included

  explicit RunSpread(const std::vector<device::Element>& elements) noexcept : elements_(elements) {}
  ~RunSpread();
  RunSpread(const RunSpread&) = delete;
  RunSpread& operator=(const RunSpread&) = delete;

  // After the first run: keeps what it left in `outputs`. False: it cannot be known; `error` says why.
  bool begin(CUstream stream, const std::vector<Range>& outputs, refusal::Refusal& error);
  // After each further run, in the same memory.
  bool add(CUstream stream, const std::vector<Range>& outputs, refusal::Refusal& error);
  // Is what is in `outputs`, of eager's or of one more run, no further from the first run than a few times what the
  // others are? Per output; and all that varies is little of the whole.
  bool holds(CUstream stream, const std::vector<Range>& outputs, bool& within, refusal::Refusal& error);

 private:
  // How far `outputs` are from the first run's.
  bool measure(CUstream stream, const std::vector<Range>& outputs, std::vector<device::Distance>& distances,
               refusal::Refusal& error) const;

  const std::vector<device::Element>& elements_;  // per output
  std::vector<std::uint64_t> first_;              // addresses of the first run's outputs
  std::vector<device::Distance> farthest_;        // of other runs from the first, each number for itself
  device::CopyMemory::Block copies_;
};

}  // namespace grape::replay
