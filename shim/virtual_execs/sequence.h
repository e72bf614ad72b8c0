// Plans how a graph's nodes are launched one by one: their order, their lanes, and the events between lanes. Lanes let
// nodes run side by side. The plan meets all edges, and besides orders the nodes of one lane. Makes no CUDA calls.
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

// A graph launched in this way follows its stream's earlier work, and the stream's later work follows the graph.
struct Sequence {
  std::vector<Step> steps;           // each comes behind those whose events it waits for
  std::vector<std::uint32_t> waits;  // events
  std::uint32_t lanes = 0;           // 0: the graph is not to be launched so
  std::uint32_t events = 0;
};

// Nodes that follow each other share a lane, without events. No lanes: events and waits would outnumber the nodes that
// do work. An empty node has a step only where that saves waits. Throws std::bad_alloc.
Sequence sequence_of(const Shape& shape);

}  // namespace grape::virtual_execs
