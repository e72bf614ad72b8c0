#include "compressor/program/lives.h"

#include <algorithm>

namespace grape::program {
namespace {

constexpr std::uint64_t kMostNumbers = 1u << 24;  // of each kind: 64 MiB, three times

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

Lives::Lives(const Program& program)
    : order_(program), temps_(program.temps.size()), inputs_(program.input_bytes.size()) {
  const std::size_t blocks = temps_ + inputs_ + program.outputs.size();
  const std::uint64_t numbers = std::uint64_t{order_.chains()} * blocks;
  known_ = order_.known() && numbers <= kMostNumbers;
  used_.assign(blocks, 0);
  born_.assign(blocks, 0);
  died_.assign(blocks, 0);
  for (std::size_t i = 0; i < temps_; ++i) {
    born_[i] = program.temps[i].born;
    died_[i] = program.temps[i].died;
  }
  for (std::uint32_t i = 0; i < program.outputs.size(); ++i) {
    born_[output(i)] = program.outputs[i].born;
    died_[output(i)] = kNever;
  }
  if (known_) {
    last_use_.assign(numbers, 0);
    all_after_.assign(numbers, kNever);
  }
  std::uint32_t node = 0;
  for (const Reference& reference : program.references) {
    while (reference.word >= program.nodes[node].words_at + program.nodes[node].word_count) ++node;
    if (reference.role == Role::kTemp) use(reference.block, node);
    if (reference.role == Role::kOutput) use(output(reference.block), node);
    if (reference.role != Role::kInput) continue;
    died_[input(reference.block)] = node + 1;
    use(input(reference.block), node);
  }
}

void Lives::use(std::uint32_t block, std::uint32_t node) {
  used_[block] = 1;
  if (!known_) return;
  const std::size_t at = std::size_t{block} * order_.chains();
  std::uint32_t& last = last_use_[at + order_.chain(node)];
  last = std::max(last, order_.position(node) + 1);
  const std::uint32_t* comes_after = order_.comes_after(node);
  for (std::uint32_t c = 0; c < order_.chains(); ++c) all_after_[at + c] = std::min(all_after_[at + c], comes_after[c]);
}

}  // namespace grape::program
