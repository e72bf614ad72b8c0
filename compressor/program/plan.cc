#include "compressor/program/plan.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "compressor/program/lives.h"

namespace grape::program {
namespace {

// Orders are tried until this many pairs of temps were looked at: a few milliseconds.
constexpr std::size_t kMostPairs = 2u << 20;
constexpr int kMostOrders = 12;

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

// Takes out of `order` what fits into lent memory.
void place_in_lent(const Program& program, const Lives& lives, LentMemory lent, std::vector<std::uint32_t>& order,
                   ArenaPlan& plan) {
  if (lent.blocks.empty() || order.size() * (lent.blocks.size() + order.size()) > kMostPairs) return;
  std::sort(lent.blocks.begin(), lent.blocks.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
  Space space;
  std::uint64_t end = 0;
  for (const LentMemory::Block& block : lent.blocks) {
    if (block.at > end) space.add(end, block.at, kNever);
    end = block.at + aligned(bytes_of(program, block));
    space.add(block.at, end, block.role == Role::kInput ? lives.input(block.block) : lives.output(block.block));
  }
  plan.lent.assign(program.temps.size(), 0);
  const auto placed = [&](std::uint32_t temp) {
    const bool fits = space.place(lives, temp, aligned(program.temps[temp].bytes), end, plan.offsets[temp]);
    plan.lent[temp] = fits ? 1 : 0;
    return fits;
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

}  // namespace

ArenaPlan plan_arena(const Program& program, const LentMemory& lent) {
  const Lives lives(program);
  std::vector<std::uint32_t> order;
  for (std::uint32_t i = 0; i < program.temps.size(); ++i) {
    if (lives.used(i) && program.temps[i].bytes != 0) order.push_back(i);
  }
  // Large and long-lived ones first did best on real programs.
  const auto weight = [&](std::uint32_t temp) {
    const BornBlock& block = program.temps[temp];
    return static_cast<double>(block.bytes) * (block.died - block.born);
  };
  std::vector<std::uint32_t> by_weight = order;
  std::stable_sort(by_weight.begin(), by_weight.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return weight(a) > weight(b); });
  ArenaPlan in_lent;
  in_lent.offsets.assign(program.temps.size(), 0);
  place_in_lent(program, lives, lent, by_weight, in_lent);
  const auto placed = [&](std::uint32_t temp) { return in_lent.in_lent(temp); };
  order.erase(std::remove_if(order.begin(), order.end(), placed), order.end());
  ArenaPlan best = place(program, lives, order, in_lent);
  const std::uint64_t least = least_bytes(program, order);
  order = std::move(by_weight);
  const std::size_t pairs = order.size() * order.size();
  for (int i = 1; i < kMostOrders && best.bytes > least && i * pairs <= kMostPairs; ++i) {
    ArenaPlan plan = place(program, lives, order, in_lent);
    // The temps that lie beyond what the best plan could need are placed first the next time.
    std::stable_partition(order.begin(), order.end(), [&](std::uint32_t temp) {
      return plan.offsets[temp] + aligned(program.temps[temp].bytes) > least;
    });
    if (plan.bytes < best.bytes) best = std::move(plan);
  }
  return best;
}

Parts find_parts(const Program& program, const LentMemory& lent, const ArenaPlan& plan) {
  Parts parts;
  std::vector<std::uint32_t> lent_input(program.input_bytes.size(), kNever), last, first(program.outputs.size(), 0);
  for (const LentMemory::Block& block : lent.blocks) {
    lent_input[block.block] = piece_of(block.at);
    last.resize(std::max<std::size_t>(last.size(), piece_of(block.at) + 1), 0);  // behind the last node that uses it
  }
  std::vector<bool> met(program.outputs.size(), false);
  std::uint32_t node = 0;
  for (const Reference& reference : program.references) {
    while (reference.word >= program.nodes[node].words_at + program.nodes[node].word_count) ++node;
    std::uint32_t piece = kNever;
    if (reference.role == Role::kInput) piece = lent_input[reference.block];
    if (reference.role == Role::kTemp && plan.in_lent(reference.block)) piece = piece_of(plan.offsets[reference.block]);
    if (piece != kNever) last[piece] = node + 1;
    if (reference.role != Role::kOutput || met[reference.block]) continue;
    met[reference.block] = true;
    first[reference.block] = node;
  }
  for (const std::uint32_t end : last) {
    if (end != 0 && end < program.nodes.size()) parts.cuts.push_back(end);
  }
  std::sort(parts.cuts.begin(), parts.cuts.end());
  parts.cuts.erase(std::unique(parts.cuts.begin(), parts.cuts.end()), parts.cuts.end());
  const auto part_of = [&](std::uint32_t of) {
    const auto next = std::upper_bound(parts.cuts.begin(), parts.cuts.end(), of);
    return static_cast<std::uint32_t>(next - parts.cuts.begin());
  };
  for (const std::uint32_t of : first) parts.outputs.push_back(part_of(of));
  for (const std::uint32_t end : last) parts.pieces.push_back(end == 0 ? 0 : part_of(end - 1));
  return parts;
}

void bind(const Program& program, const ArenaPlan& plan, const Bindings& bindings, std::uint64_t* out) {
  if (!program.words.empty()) std::memcpy(out, program.words.data(), program.words.size() * sizeof *out);
  for (const Reference& reference : program.references) {
    out[reference.word] += base_of(program, plan, bindings, reference);
  }
}

}  // namespace grape::program
