// Aligns two sequences: which element of one stands for which of the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace grape::tools {

constexpr std::size_t kNoPartner = SIZE_MAX;

// A shortest edit script (Myers) between two sequences of keys: pairs (i, j) of equal elements, (i, kNoPartner) for
// what only the first has and (kNoPartner, j) for what only the second has, in order. Sequences that need more than
// `most_edits` edits are aligned at their equal begin and end alone; what is between stands unpaired.
std::vector<std::pair<std::size_t, std::size_t>> align(const std::vector<std::uint32_t>& a,
                                                       const std::vector<std::uint32_t>& b,
                                                       std::size_t most_edits = 2000);

}  // namespace grape::tools
