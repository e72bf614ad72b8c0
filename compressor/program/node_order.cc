#include "compressor/program/node_order.h"

#include <algorithm>

namespace grape::program {
namespace {

constexpr std::uint64_t kMostNumbers = 1u << 24;  // 64 MiB

}  // namespace

NodeOrder::NodeOrder(const Program& program) : places_(program.nodes.size()) {
  make_chains(program);
  known_ = std::uint64_t{chains_} * program.nodes.size() <= kMostNumbers;
  if (known_) make_clocks(program);
}

// A node goes on with the chain of a node that it directly follows, best its stream's, if that is its chain's last.
void NodeOrder::make_chains(const Program& program) {
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

void NodeOrder::make_clocks(const Program& program) {
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

}  // namespace grape::program
