// Statistics of the program's own graphs, as plain data for the report. No CUDA here.
#pragma once

#include <cstdint>
#include <vector>

#include "compressor/refusal/refusal.h"

namespace grape::virtual_execs {

struct GraphsReport {
  bool any = false;  // graphs are virtual in this process, and there were some
  std::uint64_t made = 0, destroyed = 0;
  std::uint64_t pinned = 0;    // that keep an exec of their own, since the program changed them
  std::uint64_t launches = 0;  // of virtual ones
  std::uint64_t by_node = 0;   // of those, node by node
  // Execs that another graph was put on, those of them before its launch, execs that were built, that had to go.
  std::uint64_t taken_over = 0, ahead = 0, built = 0, evicted = 0;
  std::uint64_t execs = 0, device_bytes = 0;  // now; the bytes are an estimate
  std::uint64_t programs = 0, unique = 0, raw_bytes = 0, stored_bytes = 0, resident_bytes = 0;  // of the store, now
  struct Left {
    std::uint64_t count = 0;
    refusal::Refusal refusal;
  };
  std::vector<Left> left;  // to the driver: the most frequent first
};

// Any thread. May throw std::bad_alloc. Empty where graphs are not virtual.
GraphsReport graphs_report();
// Set where they are: whoever reports need not know of execs, nor of the driver.
void set_graphs_source(GraphsReport (*source)()) noexcept;

}  // namespace grape::virtual_execs
