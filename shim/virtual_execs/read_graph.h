// Reads a graph from the driver: its shape, and everything else as a program. Calls the driver's real functions.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

#include "compressor/program/program.h"
#include "compressor/refusal/refusal.h"
#include "shim/virtual_execs/functions.h"
#include "shim/virtual_execs/shape.h"

namespace grape::virtual_execs {

struct GraphReading {
  Shape shape;
  // A node's words by its type in the shape:
  //   kernel  as program::RecordedNode has them    (NodeKind::kKernel)
  //   copy    the 25 words of CUDA_MEMCPY3D        (NodeKind::kCopy)
  //   memset  the six of NodeKind::kMemset
  //   empty   none                                 (NodeKind::kCopy)
  // Attributes and edges are the shape's. No word is a reference: the application's addresses stay.
  program::Program program;
  std::vector<std::uint32_t> functions;  // numbers, by the program's functions
  std::vector<CUgraphNode> nodes;        // handles, by the program's nodes
};

constexpr std::size_t kMostNodes = 1 << 16;
constexpr std::size_t kCopyWords = 25, kMemsetWords = 6;
static_assert(sizeof(CUDA_MEMCPY3D_v2) == kCopyWords * 8, "copies are kept as the driver gives them");

// Reads the graph, in the current context; the shape's flags are not touched. Throws std::bad_alloc.
refusal::Form<0> read_graph(CUgraph graph, Functions& functions, GraphReading& reading);

// A kernel node's attribute as the driver has it; false: it has none of that kind. All bytes are written.
bool read_attribute(CUgraphNode node, unsigned id, CUlaunchAttribute& attribute) noexcept;
// As bytes: the driver writes over zeros.
bool same_value(const CUlaunchAttributeValue& a, const CUlaunchAttributeValue& b) noexcept;
constexpr unsigned kAttributes = 24;  // more than are known: newer drivers' are kept as well

// The parameters of one kernel node of `function` into `words`, which grows. False: nobody knows where they lie.
bool pack_parameters(const KernelFunction& function, void* const* parameters, void* const* extra,
                     program::RecordedNode& node, std::vector<std::uint64_t>& words);

}  // namespace grape::virtual_execs
