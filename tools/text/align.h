// Aligns two sequences: which element of one stands for which of the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace grape::tools {

constexpr std::size_t kNoPartner = SIZE_MAX;

// Which things of one side stand for which of the other: those that met first, throughout.
template <class Key>
class Pairing {
 public:
  // `fresh`: neither has stood for anything before.
  bool pair(const Key& a, const Key& b, bool& fresh) {
    const auto forward = forward_.emplace(a, b), backward = backward_.emplace(b, a);
    fresh = forward.second && backward.second;
    return forward.first->second == b && backward.first->second == a;
  }
  bool pair(const Key& a, const Key& b) {
    bool fresh = false;
    return pair(a, b, fresh);
  }

 private:
  std::map<Key, Key> forward_, backward_;
};

// A shortest edit script (Myers) between two sequences of keys: pairs (i, j) of equal elements, (i, kNoPartner) for
// what only the first has and (kNoPartner, j) for what only the second has, in order. Sequences that need more than
// `most_edits` edits are aligned at their equal begin and end alone; what is between stands unpaired.
std::vector<std::pair<std::size_t, std::size_t>> align(const std::vector<std::uint32_t>& a,
                                                       const std::vector<std::uint32_t>& b,
                                                       std::size_t most_edits = 2000);

}  // namespace grape::tools
