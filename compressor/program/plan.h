// Plans where a program's temporary blocks lie in its arena. Throws std::bad_alloc only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "compressor/program/numbers.h"
#include "compressor/program/program.h"

namespace grape::program {

constexpr std::uint64_t kArenaAlignment = 512;  // bytes; what PyTorch's allocator gives as well
constexpr std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

// Lent memory comes in pieces, each an allocation of its own. The upper bits of a place in it are the piece's number.
constexpr int kPieceShift = 40;
constexpr std::uint32_t kMostPieces = 6;
constexpr std::uint64_t place_in(std::uint32_t piece, std::uint64_t offset) {
  return std::uint64_t{piece} << kPieceShift | offset;
}
constexpr std::uint32_t piece_of(std::uint64_t place) { return static_cast<std::uint32_t>(place >> kPieceShift); }
constexpr std::uint64_t offset_in_piece(std::uint64_t place) { return place & ((std::uint64_t{1} << kPieceShift) - 1); }

// `bytes` lie at a place: its piece, of `pieces` by their bytes, reaches at least that far.
inline void reach(std::vector<std::uint64_t>& pieces, std::uint64_t place, std::uint64_t bytes) {
  if (pieces.size() <= piece_of(place)) pieces.resize(piece_of(place) + 1, 0);
  std::uint64_t& piece = pieces[piece_of(place)];
  piece = std::max(piece, offset_in_piece(place) + aligned(bytes));
}

struct ArenaPlan {
  std::vector<std::uint64_t> offsets;  // per temp, bytes from the arena's begin; multiples of kArenaAlignment
  std::vector<std::uint8_t> lent;      // per temp: 1: its offset is a place in lent memory. Empty: none lies there
  std::uint64_t bytes = 0;             // of the arena
  // Nodes with which another launch begins, so that memory comes and goes in between; ascending. Empty: one launch.
  std::vector<std::uint32_t> cuts;

  bool in_lent(std::uint32_t temp) const { return !lent.empty() && lent[temp] != 0; }
};

// Memory of some inputs and outputs that lie side by side. Temps have an input's bytes once the last node that uses it
// has run; they are not restored. Temps have an output's bytes until the first node that uses it runs.
struct LentMemory {
  struct Block {
    Role role = Role::kInput;  // or kOutput
    std::uint32_t block = 0;
    std::uint64_t at = 0;  // its place; the offset is a multiple of kArenaAlignment
  };
  std::vector<Block> blocks;  // none overlaps another one
};

// Two temps share bytes only if one is dead before the other is born and every node that uses the later one comes after
// (by edges) every node that uses the earlier one; a temp shares bytes with a lent block on the same condition. What
// fits nowhere in lent memory lies in the arena. Best fit, in other orders as long as 64 KiB or an eighth could be
// saved. Never more than the sum of all, and the same for the same arguments. A temp that no word refers to
// takes no room and lies at 0. O(temps^2), and O(nodes * chains) where the nodes make that many chains: one for a
// single stream.
ArenaPlan plan_arena(const Program& program, const LentMemory& lent = {});

// What a run that is cut (ArenaPlan::cuts) needs when, by the numbers of its parts.
struct Parts {
  // Memory of the run's own for temps, in the parts from `first` to `last`. Places in it are those of lent memory:
  // rooms are numbered behind kMostPieces.
  struct Room {
    std::uint32_t first = 0, last = 0;
    std::uint64_t bytes = 0;
  };
  std::vector<std::uint32_t> outputs;  // per Program::outputs: the part that uses it first
  std::vector<std::uint32_t> pieces;   // per piece of lent memory: the last part that uses it
  std::vector<Room> rooms;
};

// As plan_arena(), for a run that is cut where a piece of `lent`, of inputs, is of no more use: no temp keeps it
// longer. Where the arena would have more than about `most` bytes, large temps lie in rooms.
ArenaPlan plan_parts(const Program& program, const LentMemory& lent, std::uint64_t most, Parts& parts);

// Addresses for one run. Vectors are per block of the role, as long as the program's lists.
struct Bindings {
  std::uint64_t arena = 0;          // a multiple of kArenaAlignment
  std::vector<std::uint64_t> lent;  // where each piece begins, and each room; the same
  std::vector<std::uint64_t> inputs, outputs;
  std::uint64_t host_data = 0;         // where Program::host_data lies; a multiple of 16
  std::uint64_t seed = 0, offset = 0;  // random state before the call
  Numbers numbers;                     // of the call
};

inline std::uint64_t address_in(const std::vector<std::uint64_t>& pieces, std::uint64_t place) {
  return pieces[piece_of(place)] + offset_in_piece(place);
}

// What a reference's word holds beside Program::words: the base address of its block, random state, or numbers.
inline std::uint64_t base_of(const Program& program, const ArenaPlan& plan, const Bindings& bindings,
                             const Reference& reference) {
  switch (reference.role) {
    case Role::kStatic:
      return program.statics[reference.block].address;
    case Role::kInput:
      return bindings.inputs[reference.block];
    case Role::kTemp:
      return plan.in_lent(reference.block) ? address_in(bindings.lent, plan.offsets[reference.block])
                                           : bindings.arena + plan.offsets[reference.block];
    case Role::kOutput:
      return bindings.outputs[reference.block];
    case Role::kHostData:
      return bindings.host_data;
    case Role::kRandomSeed:
      return bindings.seed;
    case Role::kRandomOffset:
      return bindings.offset;
    case Role::kNumber:
      return number_bits(reference.block, bindings.numbers);
  }
  return 0;
}

// The program's words with addresses in them: into `out`, Program::words.size() long. Allocates nothing.
void bind(const Program& program, const ArenaPlan& plan, const Bindings& bindings, std::uint64_t* out);

}  // namespace grape::program
