// Asks the driver for the edges of a graph. Any thread.
#pragma once

#include <cstddef>
#include <vector>

#include "shim/driver/real_driver.h"

namespace grape::driver {

struct GraphEdges {
  std::vector<CUgraphNode> from, to;
  std::vector<CUgraphEdgeData> data;  // zeros, where the driver is too old for it
};

// False: the driver does not tell, or there are more than `most`. Throws std::bad_alloc.
inline bool read_edges(CUgraph graph, std::size_t most, GraphEdges& edges) {
  std::size_t count = 0;
  // The newer one first: the older one fails where edges carry data (programmatic launches).
  const bool newer = real::call_cuGraphGetEdges_v2(graph, nullptr, nullptr, nullptr, &count) == CUDA_SUCCESS;
  if (!newer && real::call_cuGraphGetEdges(graph, nullptr, nullptr, &count) != CUDA_SUCCESS) return false;
  if (count > most) return false;
  edges.from.resize(count);
  edges.to.resize(count);
  edges.data.resize(count);
  if (count == 0) return true;
  return CUDA_SUCCESS ==
         (newer ? real::call_cuGraphGetEdges_v2(graph, edges.from.data(), edges.to.data(), edges.data.data(), &count)
                : real::call_cuGraphGetEdges(graph, edges.from.data(), edges.to.data(), &count));
}

}  // namespace grape::driver
