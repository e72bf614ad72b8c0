// How a graph's nodes are launched one by one: in which order and, where some may run side by side, on which lanes and
// with which events between these. What the edges demand is met; besides, what follows on a lane follows in turn. Makes
// no CUDA calls.
#pragma once

#include <cstdint>
#include <vector>

namespace grape::virtual_execs {

struct Shape;

// Lane 0 is the stream that the graph is launched into, the others are streams of our own.
constexpr std::uint32_t kMostLanes = 16;
constexpr std::uint32_t kMostEvents = 256;

struct Step {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::uint32_t node = kNone;  // none: it only waits, or is waited for
  std::uint32_t lane = 0;
  std::uint32_t waits_at = 0, wait_count = 0;  // in Sequence::waits: what its lane waits for first
  std::uint32_t event = kNone;                 // recorded behind it
};

// Launched as it says, all of a graph lies behind what its stream had before, and before what the stream gets later.
struct Sequence {
  std::vector<Step> steps;           // each comes behind those whose events it waits for
  std::vector<std::uint32_t> waits;  // events
  std::uint32_t lanes = 0;           // 0: the graph is not to be launched so
  std::uint32_t events = 0;
};

// Nodes that follow each other get one lane, and no events. None, where events and waits would be more than nodes that
// do work. Empty nodes have a step only where it saves waits. Throws std::bad_alloc.
Sequence sequence_of(const Shape& shape);

}  // namespace grape::virtual_execs
