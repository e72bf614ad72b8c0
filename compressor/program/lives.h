// Which blocks of a program may share bytes: how long each is in use, by the order that its edges give. Core; throws
// std::bad_alloc only.
#pragma once

#include <cstdint>
#include <vector>

#include "compressor/program/program.h"

namespace grape::program {

// The nodes as chains in which each follows the one before by an edge: one chain for a single stream. A node comes
// after a prefix of each chain, so one number per node and chain says which nodes it comes after.
class NodeOrder {
 public:
  explicit NodeOrder(const Program& program);  // keeps no reference to it

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

  void make_chains(const Program& program);
  void make_clocks(const Program& program);

  std::vector<Place> places_;
  std::vector<std::uint32_t> clocks_;
  std::uint32_t chains_ = 0;
  bool known_ = true;
};

// Temps, inputs and outputs by one number: block `i` is Program::temps[i], inputs and outputs come behind. A temp is
// there from its birth to its death, an input from the begin to its last use, an output from its birth to the end.
class Lives {
 public:
  explicit Lives(const Program& program);

  std::uint32_t input(std::uint32_t number) const { return static_cast<std::uint32_t>(temps_ + number); }
  std::uint32_t output(std::uint32_t number) const { return static_cast<std::uint32_t>(temps_ + inputs_ + number); }
  bool used(std::uint32_t block) const { return used_[block] != 0; }
  bool may_share(std::uint32_t a, std::uint32_t b) const { return precedes(a, b) || precedes(b, a); }
  // Is `a` dead before `b` is born, and does every node that uses `b` come after every node that uses `a`?
  bool precedes(std::uint32_t a, std::uint32_t b) const {
    return known_ && died_[a] <= born_[b] && all_come_after(a, b);
  }

 private:
  void use(std::uint32_t block, std::uint32_t node);
  bool all_come_after(std::uint32_t a, std::uint32_t b) const {
    const std::uint32_t chains = order_.chains();
    const std::uint32_t* last = last_use_.data() + std::size_t{a} * chains;
    const std::uint32_t* after = all_after_.data() + std::size_t{b} * chains;
    for (std::uint32_t c = 0; c < chains; ++c) {
      if (last[c] > after[c]) return false;
    }
    return true;
  }

  NodeOrder order_;
  std::size_t temps_, inputs_;
  bool known_ = true;
  std::vector<std::uint8_t> used_;
  std::vector<std::uint32_t> born_, died_;  // before which nodes; kNever: behind all
  // Per block and chain: how many nodes of the chain, from its begin, reach to the last user; and how many of them all
  // users come after.
  std::vector<std::uint32_t> last_use_, all_after_;
};

}  // namespace grape::program
