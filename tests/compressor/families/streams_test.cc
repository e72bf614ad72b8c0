// Decoding steps of real PyTorch: three times 24 lengths of GPT-2.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include "compressor/families/regime.h"
#include "compressor/program/symbolise.h"
#include "tests/compressor/program/stream_records.h"

namespace grape::families {
namespace {

using program::Program;

constexpr std::size_t kLengths = 24;

const std::vector<Program>& steps() {
  static const std::vector<Program> programs = [] {
    std::vector<program::StreamRegion> regions;
    std::string error;
    EXPECT_TRUE(program::read_converted(GRAPE_PROGRAM_DATA "/gpt2-generate-3x24.grape", regions, error)) << error;
    std::set<std::uint64_t> weights;
    for (const program::LiveBlock& block : regions.front().record.before) weights.insert(block.serial);
    std::vector<Program> made;
    for (program::StreamRegion& region : regions) {
      program::find_random_state(region.record);
      for (const program::StaticBlock& block : program::symbolise(region.record).statics) {
        if (weights.count(block.serial) == 0) region.record.inputs.push_back({block.address, block.bytes});
      }
      made.push_back(program::symbolise(region.record));
    }
    return made;
  }();
  return programs;
}

std::uint64_t identity(const program::FunctionInfo& function) { return std::hash<std::string>()(function.name); }

// 22 lengths after the first two are one regime. From its sixth member on only leftovers are not foretold.
TEST(Decoding, FewMembersForetellAllFurtherLengths) {
  ASSERT_EQ(steps().size(), 3 * kLengths);
  std::vector<Regime> regimes;
  std::size_t all = 0;
  for (std::size_t i = 0; i < kLengths; ++i) {
    const Numbers numbers = {static_cast<std::int64_t>(i)};
    const auto regime = std::find_if(regimes.begin(), regimes.end(),
                                     [&](const Regime& each) { return each.holds(steps()[i], numbers); });
    if (regime == regimes.end()) {
      regimes.emplace_back(steps()[i], numbers, identity);
      continue;
    }
    const Regime::Differences found = regime->differences(steps()[i], numbers);
    if (found.slots.empty()) {
      ++all;
      EXPECT_LE(found.noise.size(), 363U) << "words that may be padding";
    }
    regime->add(steps()[i], numbers);
  }
  ASSERT_EQ(regimes.size(), 2U) << "the first step, and all others";
  EXPECT_GE(all, 16U);
  EXPECT_LE(regimes.back().sequence_count(), 48U) << "of 42,000 lanes";
}

// The same lengths again: what is foretold is what came, whatever was learned from.
TEST(Decoding, ItDoesNotMatterWhichMembersItLearnedFrom) {
  Regime regime(steps()[3], {3}, identity);
  for (const std::size_t length : {8U, 9U, 13U, 20U, 23U}) {
    regime.add(steps()[length + kLengths], {static_cast<std::int64_t>(length)});
  }
  for (std::size_t i = 2; i < kLengths; ++i) {
    const Numbers numbers = {static_cast<std::int64_t>(i)};
    const Program& again = steps()[i + 2 * kLengths];
    ASSERT_TRUE(regime.holds(again, numbers));
    EXPECT_TRUE(regime.differences(again, numbers).slots.empty()) << "length " << i;
  }
}

}  // namespace
}  // namespace grape::families
