#include "tests/compressor/program/random_programs.h"

#include "compressor/program/symbolise.h"
#include "tests/compressor/program/record_builder.h"

namespace grape::program {
namespace {

constexpr std::uint64_t kTop = 0x7f0000000000, kApart = 16384;

struct Alive {
  std::uint64_t address;
  std::uint32_t until;
  bool input;
};

// Its words are addresses of half of what is alive; it follows its stream's last node, and some of others'.
void launch(RecordBuilder& r, std::mt19937& random, const std::vector<Alive>& alive, std::vector<std::uint32_t>& last,
            std::uint32_t node) {
  std::vector<std::uint64_t> words;
  for (const Alive& block : alive) {
    if (random() % 2 == 0) words.push_back(block.address);
  }
  const auto stream = static_cast<std::uint32_t>(random() % last.size());
  std::vector<std::uint32_t> after;
  for (std::uint32_t other = 0; other < last.size(); ++other) {
    if (last[other] != kNever && (other == stream || random() % 4 == 0)) after.push_back(last[other]);
  }
  r.launch(plain_kernel(10 + words.size(), static_cast<std::uint32_t>(words.size())), words).on(stream, after);
  last[stream] = node;
}

}  // namespace

Program random_program(std::mt19937& random, std::uint32_t nodes, std::uint32_t streams, RandomKind kind) {
  const auto below = [&](std::uint32_t end) { return static_cast<std::uint32_t>(random() % end); };
  const auto bytes = [&] { return 1 + below(below(2) == 0 ? 600 : 8000); };
  RecordBuilder r;
  std::vector<Alive> alive;
  std::uint64_t next = kTop;
  for (std::uint32_t i = kind.inputs != 0 ? 1 + below(kind.inputs) : 0; i > 0; --i, next += kApart) {
    const std::uint64_t size = bytes();
    r.before(next, size).input(next, size);
    alive.push_back({next, below(nodes), true});
  }
  std::vector<std::uint32_t> last(streams, kNever);
  for (std::uint32_t i = 0; i < nodes; ++i) {
    for (std::size_t k = alive.size(); k-- > 0;) {
      if (alive[k].until > i) continue;
      if (!alive[k].input) r.free(alive[k].address);
      alive.erase(alive.begin() + static_cast<std::ptrdiff_t>(k));
    }
    for (std::uint32_t k = below(3); k > 0; --k, next += kApart) {
      const bool stays = kind.outputs && below(4) == 0;
      alive.push_back({next, stays ? kNever : i + below(4), false});
      r.alloc(next, bytes());
    }
    launch(r, random, alive, last, i);
  }
  for (const Alive& block : alive) {
    if (!block.input && block.until != kNever) r.free(block.address);
  }
  return symbolise(r.record());
}

std::vector<std::uint32_t> edges_of(const Program& program, std::uint32_t node) {
  const auto begin = program.after.begin() + program.nodes[node].after_at;
  return {begin, begin + program.nodes[node].after_count};
}

}  // namespace grape::program
