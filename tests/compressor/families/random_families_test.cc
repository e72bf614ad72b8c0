// Families at random, and their programs made by brute force.
#include <gtest/gtest.h>

#include <random>

#include "compressor/families/regime.h"

namespace grape::families {
namespace {

using program::Program;

std::uint64_t below(std::mt19937_64& random, std::uint64_t end) { return random() % end; }

// One function of numbers for each lane: what kernels are handed.
Formula random_formula(std::mt19937_64& random, std::size_t numbers) {
  Formula formula;
  formula.factors[0] = static_cast<std::uint16_t>(below(random, numbers));
  if (below(random, 3) == 0) formula.factors[1] = static_cast<std::uint16_t>(below(random, numbers));
  switch (below(random, 8)) {
    case 0:
      break;
    case 1:
      formula.offset = static_cast<std::int64_t>(below(random, 5));
      break;
    case 2:
      formula.slope = static_cast<std::int64_t>(1 + below(random, 1024));
      break;
    case 3:
      formula.slope = static_cast<std::int64_t>(1 + below(random, 64));
      formula.offset = static_cast<std::int64_t>(below(random, 200));
      break;
    case 4:
    case 5:
      formula.divisor = std::int64_t{1} << (1 + below(random, 9));
      formula.offset = below(random, 2) == 0 ? 0 : formula.divisor - 1;
      if (below(random, 3) == 0) formula.most = 132;
      break;
    case 6:
      formula.form = below(random, 2) == 0 ? Form::kFloat : Form::kInverse;
      break;
    default:
      formula.form = below(random, 2) == 0 ? Form::kAtenMultiplier : Form::kCutlassMultiplier;
  }
  return formula;
}

class RandomFamily {
 public:
  explicit RandomFamily(std::uint64_t seed) : random_(seed) {
    count_ = 1 + below(random_, 4);
    for (std::size_t i = 0; i < 2 + below(random_, 10); ++i) lanes_.push_back(random_formula(random_, count_));
  }
  Numbers numbers() {
    Numbers numbers;
    for (std::size_t i = 0; i < count_; ++i) numbers.push_back(static_cast<std::int64_t>(1 + below(random_, 300)));
    return numbers;
  }
  Program program(const Numbers& numbers) const {
    Program program;
    program.functions.push_back({1, "f", {}, false});
    program::RecordedNode node;
    node.word_count = static_cast<std::uint32_t>(lanes_.size());
    node.parameter_bytes = 8 * node.word_count;
    for (const Formula& lane : lanes_) {
      program.words.push_back(static_cast<std::uint64_t>(*evaluate(lane, numbers)) | std::uint64_t{7} << 32);
    }
    node.grid.x = static_cast<std::uint32_t>((numbers[0] + 127) / 128);
    program.nodes.push_back(node);
    program.temps.push_back({static_cast<std::uint64_t>(512 * numbers.back()), 0, 0, 1});
    return program;
  }

 private:
  std::mt19937_64 random_;
  std::size_t count_ = 0;
  std::vector<Formula> lanes_;
};

bool same_values(const Program& a, const Program& b) {
  return a.words == b.words && a.nodes.front().grid == b.nodes.front().grid &&
         a.temps.front().bytes == b.temps.front().bytes;
}

// Most programs are foretold. Where a wrong one is, the observed program differs from it.
TEST(RandomFamilies, AreForetold) {
  constexpr std::size_t kFamilies = 10000, kMembers = 10;
  std::vector<std::size_t> foretold(kMembers), wrong(kMembers);  // by members that were there
  for (std::uint64_t seed = 0; seed < kFamilies; ++seed) {
    RandomFamily family(seed);
    Numbers numbers = family.numbers();
    Regime regime(family.program(numbers), numbers);
    for (std::size_t i = 1; i < kMembers; ++i) {
      numbers = family.numbers();
      const Program program = family.program(numbers);
      ASSERT_TRUE(regime.holds(program, numbers));
      const Regime::Foretold answer = regime.foretell(numbers);
      const bool same = answer.unknown.empty() && same_values(answer.program, program);
      ASSERT_EQ(regime.differences(program, numbers).empty(), same) << "seed " << seed;
      foretold[i] += same ? 1 : 0;
      wrong[i] += answer.unknown.empty() && !same ? 1 : 0;
      regime.add(program, numbers);
      for (const Numbers& member : regime.members()) {
        const Regime::Foretold again = regime.foretell(member);
        ASSERT_TRUE(!again.unknown.empty() || same_values(again.program, family.program(member))) << "seed " << seed;
      }
    }
  }
  EXPECT_GE(foretold[4], 7500U);
  EXPECT_GE(foretold[9], 9000U);
  EXPECT_LE(wrong[9], 300U) << "bounds and quotients that no member has shown yet";
}

}  // namespace
}  // namespace grape::families
