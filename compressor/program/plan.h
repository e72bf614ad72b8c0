// Plans where a program's temporary blocks lie in its arena. Throws std::bad_alloc only.
#pragma once

#include <cstdint>
#include <vector>

#include "compressor/program/program.h"

namespace grape::program {

constexpr std::uint64_t kArenaAlignment = 512;  // bytes; what PyTorch's allocator gives as well
constexpr std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

struct ArenaPlan {
  std::vector<std::uint64_t> offsets;  // per temp, bytes from the arena's begin; multiples of kArenaAlignment
  std::uint64_t bytes = 0;
};

// Two temps share bytes only if one is dead before the other is born and every node that uses the later one comes after
// (by edges) every node that uses the earlier one. Best fit; never more than the sum of all, and the same for the same
// program. A temp that no word refers to takes no room and lies at 0. O(temps^2), and O(nodes * chains) where the nodes
// make that many chains: one for a single stream.
ArenaPlan plan_arena(const Program& program);

// Addresses for one run. Vectors are per block of the role, as long as the program's lists.
struct Bindings {
  std::uint64_t arena = 0;  // a multiple of kArenaAlignment
  std::vector<std::uint64_t> inputs, outputs;
  std::uint64_t host_data = 0;         // where Program::host_data lies; a multiple of 16
  std::uint64_t seed = 0, offset = 0;  // random state before the call
};

// What a reference's word holds: the base address (or random state) of its block.
inline std::uint64_t base_of(const Program& program, const ArenaPlan& plan, const Bindings& bindings,
                             const Reference& reference) {
  switch (reference.role) {
    case Role::kStatic:
      return program.statics[reference.block].address;
    case Role::kInput:
      return bindings.inputs[reference.block];
    case Role::kTemp:
      return bindings.arena + plan.offsets[reference.block];
    case Role::kOutput:
      return bindings.outputs[reference.block];
    case Role::kHostData:
      return bindings.host_data;
    case Role::kRandomSeed:
      return bindings.seed;
    case Role::kRandomOffset:
      return bindings.offset;
  }
  return 0;
}

// The program's words with addresses in them: into `out`, Program::words.size() long. Allocates nothing.
void bind(const Program& program, const ArenaPlan& plan, const Bindings& bindings, std::uint64_t* out);

}  // namespace grape::program
