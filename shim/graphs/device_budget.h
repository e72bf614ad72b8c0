// GRAPE_MEMORY_BUDGET, shared by the graphs of Grape's replays and, where they are virtual, the program's graphs.
// Estimates the bytes that the driver keeps on the device for each side. Any thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shim/lifecycle/config.h"

namespace grape::graphs {

struct DeviceBytes {
  std::atomic<std::uint64_t> replays{0}, program{0};
};
inline DeviceBytes g_device_bytes;

// Of one exec, measured on an H200 (docs/BENCHMARKS.md) with hundreds of GPT-2's, of 250 nodes, and thousands of four
// nodes in use.
inline std::uint64_t estimated_device_bytes(std::size_t nodes) noexcept {
  constexpr std::uint64_t kPerExec = 64 << 10, kPerNode = 3584;
  return kPerExec + nodes * kPerNode;
}

// What one side may take: what the other one leaves, but no less than half of it all.
inline std::uint64_t budget_beside(const std::atomic<std::uint64_t>& others) noexcept {
  const std::uint64_t budget = config().memory_budget;
  return std::max(budget / 2, budget - std::min(budget, others.load(std::memory_order_relaxed)));
}

}  // namespace grape::graphs
