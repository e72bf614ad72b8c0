#include "compressor/program/plan.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace grape::program {
namespace {

constexpr std::uint64_t kMostNumbers = 1u << 24;  // of each kind: 64 MiB, three times
// Orders are tried until this many pairs of temps were looked at: a few milliseconds.
constexpr std::size_t kMostPairs = 2u << 20;
constexpr int kMostOrders = 12;

// The nodes as chains in which each follows the one before by an edge: one chain for a single stream. A node comes
// after a prefix of each chain, so one number per node and chain says which nodes it comes after.
class NodeOrder {
 public:
  // Keeps no reference to `program`.
  explicit NodeOrder(const Program& program) : places_(program.nodes.size()) {
    make_chains(program);
    known_ = std::uint64_t{chains_} * program.nodes.size() <= kMostNumbers;
    if (known_) make_clocks(program);
  }

  // False: more chains than anyone could keep numbers for; nothing else may be asked then.
  bool known() const { return known_; }
  std::uint32_t chains() const { return chains_; }
  std::uint32_t chain(std::uint32_t node) const { return places_[node].chain; }
  std::uint32_t position(std::uint32_t node) const { return places_[node].position; }
  // How many nodes at the chain's begin this node comes after. Chains one beside the other.
  const std::uint32_t* comes_after(std::uint32_t node) const { return clocks_.data() + std::size_t{node} * chains_; }

 private:
  struct Place {
    std::uint32_t chain = 0, position = 0;
  };

  // A node goes on with the chain of a node that it directly follows, best its stream's, if that is its chain's last.
  void make_chains(const Program& program) {
    std::vector<std::uint32_t> last_of;  // per chain
    for (std::uint32_t i = 0; i < program.nodes.size(); ++i) {
      const RecordedNode& node = program.nodes[i];
      std::uint32_t follows = kNever;
      for (std::uint32_t j = 0; j < node.after_count; ++j) {
        const std::uint32_t before = program.after[node.after_at + j];
        if (before >= i || last_of[places_[before].chain] != before) continue;
        if (follows == kNever || program.nodes[before].stream == node.stream) follows = before;
      }
      if (follows == kNever) {
        places_[i] = {static_cast<std::uint32_t>(last_of.size()), 0};
        last_of.push_back(i);
      } else {
        places_[i] = {places_[follows].chain, places_[follows].position + 1};
        last_of[places_[i].chain] = i;
      }
    }
    chains_ = static_cast<std::uint32_t>(last_of.size());
  }

  void make_clocks(const Program& program) {
    clocks_.assign(std::size_t{chains_} * program.nodes.size(), 0);
    for (std::uint32_t i = 0; i < program.nodes.size(); ++i) {
      std::uint32_t* clock = clocks_.data() + std::size_t{i} * chains_;
      const RecordedNode& node = program.nodes[i];
      for (std::uint32_t j = 0; j < node.after_count; ++j) {
        const std::uint32_t before = program.after[node.after_at + j];
        if (before >= i) continue;
        const std::uint32_t* theirs = comes_after(before);
        for (std::uint32_t c = 0; c < chains_; ++c) clock[c] = std::max(clock[c], theirs[c]);
        std::uint32_t& own = clock[places_[before].chain];
        own = std::max(own, places_[before].position + 1);
      }
    }
  }

  std::vector<Place> places_;
  std::vector<std::uint32_t> clocks_;
  std::uint32_t chains_ = 0;
  bool known_ = true;
};

// The temps that words refer to, and which of them may share bytes.
class Lives {
 public:
  explicit Lives(const Program& program) : program_(program), order_(program) {
    const std::uint64_t numbers = std::uint64_t{order_.chains()} * program.temps.size();
    known_ = order_.known() && numbers <= kMostNumbers;
    used_.assign(program.temps.size(), 0);
    if (known_) {
      last_use_.assign(numbers, 0);
      all_after_.assign(numbers, kNever);
    }
    std::uint32_t node = 0;
    for (const Reference& reference : program.references) {
      while (reference.word >= program.nodes[node].words_at + program.nodes[node].word_count) ++node;
      if (reference.role == Role::kTemp) use(reference.block, node);
    }
  }

  bool used(std::uint32_t temp) const { return used_[temp] != 0; }

  bool may_share(std::uint32_t a, std::uint32_t b) const { return precedes(a, b) || precedes(b, a); }

 private:
  void use(std::uint32_t temp, std::uint32_t node) {
    used_[temp] = 1;
    if (!known_) return;
    const std::size_t at = std::size_t{temp} * order_.chains();
    std::uint32_t& last = last_use_[at + order_.chain(node)];
    last = std::max(last, order_.position(node) + 1);
    const std::uint32_t* comes_after = order_.comes_after(node);
    for (std::uint32_t c = 0; c < order_.chains(); ++c)
      all_after_[at + c] = std::min(all_after_[at + c], comes_after[c]);
  }

  // Is `a` dead before `b` is born, and does every node that uses `b` come after every node that uses `a`?
  bool precedes(std::uint32_t a, std::uint32_t b) const {
    if (!known_ || program_.temps[a].died > program_.temps[b].born) return false;
    const std::uint32_t* last = last_use_.data() + std::size_t{a} * order_.chains();
    const std::uint32_t* after = all_after_.data() + std::size_t{b} * order_.chains();
    for (std::uint32_t c = 0; c < order_.chains(); ++c) {
      if (last[c] > after[c]) return false;
    }
    return true;
  }

  const Program& program_;
  NodeOrder order_;
  bool known_ = true;
  std::vector<std::uint8_t> used_;
  // Per temp and chain: how many nodes of the chain, from its begin, reach to the last user; and how many of them all
  // users come after.
  std::vector<std::uint32_t> last_use_, all_after_;
};

// Places one temp after the other, each in the smallest gap that it fits into between those that it may not share with.
ArenaPlan place(const Program& program, const Lives& lives, const std::vector<std::uint32_t>& order) {
  struct Placed {
    std::uint64_t begin, end;
    std::uint32_t temp;
  };
  ArenaPlan plan;
  plan.offsets.assign(program.temps.size(), 0);
  std::vector<Placed> placed;  // ascending by begin
  placed.reserve(order.size());
  for (const std::uint32_t temp : order) {
    const std::uint64_t bytes = aligned(program.temps[temp].bytes);
    std::uint64_t end = 0, best = 0, best_gap = ~std::uint64_t{0};
    for (const Placed& other : placed) {
      // Whether it may share is asked last: it is the dearest question.
      if (other.end <= end || lives.may_share(temp, other.temp)) continue;
      const std::uint64_t gap = other.begin > end ? other.begin - end : 0;
      if (gap >= bytes && gap < best_gap) {
        best = end;
        best_gap = gap;
      }
      end = other.end;
    }
    const std::uint64_t begin = best_gap != ~std::uint64_t{0} ? best : end;
    plan.offsets[temp] = begin;
    plan.bytes = std::max(plan.bytes, begin + bytes);
    const auto next = std::upper_bound(placed.begin(), placed.end(), begin,
                                       [](std::uint64_t value, const Placed& each) { return value < each.begin; });
    placed.insert(next, {begin, begin + bytes, temp});
  }
  return plan;
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

ArenaPlan plan_arena(const Program& program) {
  const Lives lives(program);
  std::vector<std::uint32_t> order;
  for (std::uint32_t i = 0; i < program.temps.size(); ++i) {
    if (lives.used(i) && program.temps[i].bytes != 0) order.push_back(i);
  }
  ArenaPlan best = place(program, lives, order);
  const std::uint64_t least = least_bytes(program, order);
  // Large and long-lived ones first did best on real programs.
  const auto weight = [&](std::uint32_t temp) {
    const BornBlock& block = program.temps[temp];
    return static_cast<double>(block.bytes) * (block.died - block.born);
  };
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return weight(a) > weight(b); });
  const std::size_t pairs = order.size() * order.size();
  for (int i = 1; i < kMostOrders && best.bytes > least && i * pairs <= kMostPairs; ++i) {
    ArenaPlan plan = place(program, lives, order);
    // The temps that lie beyond what the best plan could need are placed first the next time.
    std::stable_partition(order.begin(), order.end(), [&](std::uint32_t temp) {
      return plan.offsets[temp] + aligned(program.temps[temp].bytes) > least;
    });
    if (plan.bytes < best.bytes) best = std::move(plan);
  }
  return best;
}

void bind(const Program& program, const ArenaPlan& plan, const Bindings& bindings, std::uint64_t* out) {
  if (!program.words.empty()) std::memcpy(out, program.words.data(), program.words.size() * sizeof *out);
  for (const Reference& reference : program.references) {
    out[reference.word] += base_of(program, plan, bindings, reference);
  }
}

}  // namespace grape::program
