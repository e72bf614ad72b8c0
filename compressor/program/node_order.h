// Which nodes come after which, by edges. For plan.cc only. Core: no CUDA, no Python.
#pragma once

#include <cstdint>
#include <vector>

#include "compressor/program/program.h"

namespace grape::program {

// The nodes as chains in which each follows the one before by an edge: one chain for a single stream. A node comes
// after a prefix of each chain, so one number per node and chain says which nodes it comes after.
class NodeOrder {
 public:
  // Keeps no reference to `program`.
  explicit NodeOrder(const Program& program);

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

}  // namespace grape::program
