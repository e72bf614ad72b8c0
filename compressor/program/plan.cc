#include "compressor/program/plan.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>

#include "compressor/program/lives.h"

namespace grape::program {
namespace {

// Orders are tried until this many pairs of temps were looked at: a few milliseconds.
constexpr std::size_t kMostPairs = 2u << 20;
constexpr int kMostOrders = 12;
// What another order has to be able to save, in bytes, or of the arena. Small programs have many temps of a few KiB,
// and are planned often.
constexpr std::uint64_t kLeastSaved = 64 << 10, kLeastPart = 8;

// Blocks side by side: two overlap only if they may share.
class Space {
 public:
  // A block that lies there whatever else does; kNever: nothing may lie there.
  void add(std::uint64_t begin, std::uint64_t end, std::uint32_t block) {
    const auto next = std::upper_bound(placed_.begin(), placed_.end(), begin,
                                       [](std::uint64_t value, const Placed& each) { return value < each.begin; });
    placed_.insert(next, {begin, end, block});
  }

  // In the smallest gap that it fits into, between those that it may not share with. False: it would end beyond `most`.
  bool place(const Lives& lives, std::uint32_t temp, std::uint64_t bytes, std::uint64_t most, std::uint64_t& begin) {
    std::uint64_t end = 0, best = 0, best_gap = ~std::uint64_t{0};
    for (const Placed& other : placed_) {
      // Whether it may share is asked last: it is the dearest question.
      if (other.end <= end || (other.block != kNever && lives.may_share(temp, other.block))) continue;
      const std::uint64_t gap = other.begin > end ? other.begin - end : 0;
      if (gap >= bytes && gap < best_gap) {
        best = end;
        best_gap = gap;
      }
      end = other.end;
    }
    begin = best_gap != ~std::uint64_t{0} ? best : end;
    if (begin + bytes > most) return false;
    add(begin, begin + bytes, temp);
    return true;
  }

 private:
  struct Placed {
    std::uint64_t begin, end;
    std::uint32_t block;  // as Lives numbers them
  };
  std::vector<Placed> placed_;  // ascending by begin
};

// Places one temp after the other. `plan`: those that lie in lent memory have their place.
ArenaPlan place(const Program& program, const Lives& lives, const std::vector<std::uint32_t>& order, ArenaPlan plan) {
  Space arena;
  for (const std::uint32_t temp : order) {
    const std::uint64_t bytes = aligned(program.temps[temp].bytes);
    arena.place(lives, temp, bytes, ~std::uint64_t{0}, plan.offsets[temp]);
    plan.bytes = std::max(plan.bytes, plan.offsets[temp] + bytes);
  }
  return plan;
}

std::uint64_t bytes_of(const Program& program, const LentMemory::Block& lent) {
  return lent.role == Role::kInput ? program.input_bytes[lent.block] : program.outputs[lent.block].bytes;
}

// By which nodes each block is used, in the order of the nodes.
struct Uses {
  struct Span {
    std::uint32_t first = kNever, last = 0;  // kNever: by none
  };

  explicit Uses(const Program& program)
      : inputs(program.input_bytes.size()), temps(program.temps.size()), outputs(program.outputs.size()) {
    std::uint32_t node = 0;
    for (const Reference& reference : program.references) {
      while (reference.word >= program.nodes[node].words_at + program.nodes[node].word_count) ++node;
      std::vector<Span>* const spans = reference.role == Role::kInput    ? &inputs
                                       : reference.role == Role::kTemp   ? &temps
                                       : reference.role == Role::kOutput ? &outputs
                                                                         : nullptr;
      if (spans == nullptr) continue;
      Span& span = (*spans)[reference.block];
      if (span.first == kNever) span.first = node;
      span.last = node;
    }
  }

  std::vector<Span> inputs, temps, outputs;
};

struct Piece {
  Space space;
  std::uint64_t end = 0;
  std::uint32_t last = kNever;  // the node with which it ends: temps of later ones lie elsewhere
};

std::vector<Piece> pieces_of(const Program& program, const Lives& lives, LentMemory lent) {
  std::vector<Piece> pieces;
  std::sort(lent.blocks.begin(), lent.blocks.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
  for (const LentMemory::Block& block : lent.blocks) {
    pieces.resize(std::max<std::size_t>(pieces.size(), piece_of(block.at) + 1));
    Piece& piece = pieces[piece_of(block.at)];
    const std::uint64_t begin = offset_in_piece(block.at);
    if (begin > piece.end) piece.space.add(piece.end, begin, kNever);
    piece.end = begin + aligned(bytes_of(program, block));
    const bool input = block.role == Role::kInput;
    piece.space.add(begin, piece.end, input ? lives.input(block.block) : lives.output(block.block));
  }
  return pieces;
}

// Takes out of `order` what fits into lent memory: into the piece that ends first.
void place_in_lent(const Program& program, const Lives& lives, const Uses& uses, std::vector<Piece>& pieces,
                   std::size_t blocks, std::vector<std::uint32_t>& order, ArenaPlan& plan) {
  if (pieces.empty() || order.size() * (blocks + order.size()) > kMostPairs) return;
  std::vector<std::uint32_t> by_end(pieces.size());
  std::iota(by_end.begin(), by_end.end(), 0u);
  std::stable_sort(by_end.begin(), by_end.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return pieces[a].last < pieces[b].last; });
  plan.lent.assign(program.temps.size(), 0);
  const auto placed = [&](std::uint32_t temp) {
    const std::uint64_t bytes = aligned(program.temps[temp].bytes);
    std::uint64_t begin = 0;
    for (const std::uint32_t i : by_end) {
      Piece& piece = pieces[i];
      if (piece.last < uses.temps[temp].last || !piece.space.place(lives, temp, bytes, piece.end, begin)) continue;
      plan.offsets[temp] = place_in(i, begin);
      plan.lent[temp] = 1;
      return true;
    }
    return false;
  };
  order.erase(std::remove_if(order.begin(), order.end(), placed), order.end());
}

// No plan needs less: what is alive at one time before some node.
std::uint64_t least_bytes(const Program& program, const std::vector<std::uint32_t>& temps) {
  std::vector<std::int64_t> changes(program.nodes.size() + 1, 0);  // before each node
  for (const std::uint32_t temp : temps) {
    const BornBlock& block = program.temps[temp];
    const auto bytes = static_cast<std::int64_t>(aligned(block.bytes));
    changes[std::min<std::size_t>(block.born, program.nodes.size())] += bytes;
    changes[std::min<std::size_t>(block.died, program.nodes.size())] -= bytes;
  }
  std::int64_t now = 0, most = 0;
  for (const std::int64_t change : changes) most = std::max(most, now += change);
  return static_cast<std::uint64_t>(most);
}

std::vector<std::uint32_t> used_temps(const Program& program, const Lives& lives) {
  std::vector<std::uint32_t> temps;
  for (std::uint32_t i = 0; i < program.temps.size(); ++i) {
    if (lives.used(i) && program.temps[i].bytes != 0) temps.push_back(i);
  }
  return temps;
}

// Large and long-lived ones first did best on real programs.
void sort_by_weight(const Program& program, std::vector<std::uint32_t>& temps) {
  const auto weight = [&](std::uint32_t temp) {
    const BornBlock& block = program.temps[temp];
    return static_cast<double>(block.bytes) * (block.died - block.born);
  };
  std::stable_sort(temps.begin(), temps.end(), [&](std::uint32_t a, std::uint32_t b) { return weight(a) > weight(b); });
}

// Of `temps`, by weight; the others have their place in lent memory.
ArenaPlan place_in_arena(const Program& program, const Lives& lives, std::vector<std::uint32_t> temps,
                         const ArenaPlan& in_lent) {
  std::vector<std::uint32_t> by_number = temps;
  std::sort(by_number.begin(), by_number.end());
  ArenaPlan best = place(program, lives, by_number, in_lent);
  const std::uint64_t least = least_bytes(program, temps);
  const std::uint64_t enough = least + std::min(kLeastSaved, least / kLeastPart);
  const std::size_t pairs = temps.size() * temps.size();
  for (int i = 1; i < kMostOrders && best.bytes > enough && i * pairs <= kMostPairs; ++i) {
    ArenaPlan plan = place(program, lives, temps, in_lent);
    // The temps that lie beyond what the best plan could need are placed first the next time.
    std::stable_partition(temps.begin(), temps.end(), [&](std::uint32_t temp) {
      return plan.offsets[temp] + aligned(program.temps[temp].bytes) > least;
    });
    if (plan.bytes < best.bytes) best = std::move(plan);
  }
  return best;
}

// Before which nodes pieces are of no more use.
std::vector<std::uint32_t> cuts_behind(const std::vector<Piece>& pieces, std::size_t nodes) {
  std::vector<std::uint32_t> cuts;
  for (const Piece& piece : pieces) {
    if (piece.last + 1 < nodes) cuts.push_back(piece.last + 1);
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  return cuts;
}

std::uint32_t part_of(const std::vector<std::uint32_t>& cuts, std::uint32_t node) {
  return static_cast<std::uint32_t>(std::upper_bound(cuts.begin(), cuts.end(), node) - cuts.begin());
}

// Takes out of `temps`, by weight, what needs rooms for the rest to fit into an arena of `most` bytes: temps of the
// same parts share one, and those that need most have it.
void place_in_rooms(const Program& program, const Lives& lives, const Uses& uses, std::uint64_t most,
                    std::vector<std::uint32_t>& temps, ArenaPlan& plan, Parts& parts) {
  struct Group {
    Parts::Room room;
    std::vector<std::uint32_t> temps;
    ArenaPlan plan;
  };
  std::map<std::pair<std::uint32_t, std::uint32_t>, Group> by_parts;
  for (const std::uint32_t temp : temps) {
    const Uses::Span& used = uses.temps[temp];
    const std::uint32_t first = part_of(plan.cuts, used.first), last = part_of(plan.cuts, used.last);
    Group& group = by_parts[{first, last}];
    group.room = {first, last, 0};
    group.temps.push_back(temp);
  }
  std::vector<Group> groups;
  for (auto& [key, group] : by_parts) {
    group.plan = place(program, lives, group.temps, plan);
    group.room.bytes = group.plan.bytes;
    groups.push_back(std::move(group));
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [](const Group& a, const Group& b) { return a.room.bytes > b.room.bytes; });
  plan.lent.resize(program.temps.size(), 0);
  for (const Group& group : groups) {
    if (least_bytes(program, temps) <= most) return;
    const auto room = static_cast<std::uint32_t>(kMostPieces + parts.rooms.size());
    for (const std::uint32_t temp : group.temps) {
      plan.offsets[temp] = place_in(room, group.plan.offsets[temp]);
      plan.lent[temp] = 1;
    }
    parts.rooms.push_back(group.room);
    const auto gone = [&](std::uint32_t temp) { return plan.in_lent(temp); };
    temps.erase(std::remove_if(temps.begin(), temps.end(), gone), temps.end());
  }
}

}  // namespace

ArenaPlan plan_arena(const Program& program, const LentMemory& lent) {
  const Lives lives(program);
  std::vector<std::uint32_t> temps = used_temps(program, lives);
  sort_by_weight(program, temps);
  std::vector<Piece> pieces = pieces_of(program, lives, lent);
  ArenaPlan in_lent;
  in_lent.offsets.assign(program.temps.size(), 0);
  place_in_lent(program, lives, Uses(program), pieces, lent.blocks.size(), temps, in_lent);
  return place_in_arena(program, lives, std::move(temps), in_lent);
}

ArenaPlan plan_parts(const Program& program, const LentMemory& lent, std::uint64_t most, Parts& parts) {
  const Lives lives(program);
  const Uses uses(program);
  std::vector<Piece> pieces = pieces_of(program, lives, lent);
  for (Piece& piece : pieces) piece.last = 0;
  for (const LentMemory::Block& block : lent.blocks) {
    Piece& piece = pieces[piece_of(block.at)];
    piece.last = std::max(piece.last, uses.inputs[block.block].last);
  }
  ArenaPlan plan;
  plan.cuts = cuts_behind(pieces, program.nodes.size());
  for (const Uses::Span& output : uses.outputs)
    parts.outputs.push_back(output.first == kNever ? 0 : part_of(plan.cuts, output.first));
  for (const Piece& piece : pieces) parts.pieces.push_back(part_of(plan.cuts, piece.last));
  std::vector<std::uint32_t> temps = used_temps(program, lives);
  sort_by_weight(program, temps);
  plan.offsets.assign(program.temps.size(), 0);
  place_in_lent(program, lives, uses, pieces, lent.blocks.size(), temps, plan);
  if (!plan.cuts.empty()) place_in_rooms(program, lives, uses, most, temps, plan, parts);
  return place_in_arena(program, lives, std::move(temps), plan);
}

void bind(const Program& program, const ArenaPlan& plan, const Bindings& bindings, std::uint64_t* out) {
  if (!program.words.empty()) std::memcpy(out, program.words.data(), program.words.size() * sizeof *out);
  for (const Reference& reference : program.references) {
    out[reference.word] += base_of(program, plan, bindings, reference);
  }
}

}  // namespace grape::program
