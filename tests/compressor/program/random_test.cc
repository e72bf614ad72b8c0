// Words that follow the random state, told from plain numbers that look alike.
#include <gtest/gtest.h>

#include "compressor/program/plan.h"
#include "compressor/program/prove.h"
#include "compressor/program/symbolise.h"
#include "tests/compressor/program/record_builder.h"

namespace grape::program {
namespace {

constexpr std::uint64_t kSeed = 67280421310721;  // PyTorch's default
constexpr std::uint64_t kGarbage = 0xabcdef0000000000;

// A kernel whose second parameter is at::PhiloxCudaState, as PyTorch's dropout has it.
FunctionInfo dropout() { return function_with(7, "_Z7dropoutlN2at15PhiloxCudaStateE", {8, 32}); }
// One that has the state in the midst of a larger struct, as flash attention does.
FunctionInfo attention() { return function_with(8, "_Z9attention6Params", {64}); }

RecordBuilder dropout_at(std::uint64_t seed, std::uint64_t before, std::uint64_t offset, std::uint64_t after) {
  RecordBuilder r;
  r.random(seed, before, after).launch(dropout(), {100, seed, offset, 0, 0});
  return r;
}

TEST(Random, SeedAndOffsetOfAStateFollowTheGenerator) {
  const Program program = symbolise(dropout_at(kSeed, 40, 44, 48).record());
  EXPECT_EQ(symbol_at(program, 0), "plain 100");
  EXPECT_EQ(symbol_at(program, 1), "seed 0 + 0");
  EXPECT_EQ(symbol_at(program, 2), "offset 0 + 4");
  EXPECT_EQ(symbol_at(program, 3), "plain 0");
  EXPECT_EQ(program.random_increment, 8u);
  EXPECT_EQ(program.observed_seed, kSeed);
  EXPECT_EQ(program.observed_offset, 40u);
}

TEST(Random, OnlyOffsetsThatTheGeneratorPassedThroughCount) {
  EXPECT_EQ(symbolise(dropout_at(kSeed, 40, 40, 48).record()).references.size(), 2u);
  EXPECT_EQ(symbolise(dropout_at(kSeed, 40, 47, 48).record()).references.size(), 2u);
  EXPECT_TRUE(symbolise(dropout_at(kSeed, 40, 39, 48).record()).references.empty());
  EXPECT_TRUE(symbolise(dropout_at(kSeed, 40, 48, 48).record()).references.empty());
}

TEST(Random, NothingFollowsAGeneratorThatDidNotMoveOrIsNotKnown) {
  EXPECT_TRUE(symbolise(dropout_at(kSeed, 40, 40, 40).record()).references.empty());
  RecordBuilder unknown = dropout_at(kSeed, 40, 40, 48);
  unknown.record().random.known = false;
  const Program program = symbolise(unknown.record());
  EXPECT_TRUE(program.references.empty());
  EXPECT_EQ(program.random_increment, 0u);
}

TEST(Random, AStateInsideALargerStructIsFound) {
  RecordBuilder r;
  r.before(0x7f0000000000, 512).random(kSeed, 40, 48);
  r.launch(attention(), {0x7f0000000000, 1, kSeed, 44, kGarbage, 3, 4, 5});
  const Program program = symbolise(r.record());
  EXPECT_EQ(symbol_at(program, 0), "static 0 + 0");
  EXPECT_EQ(symbol_at(program, 2), "seed 0 + 0");
  EXPECT_EQ(symbol_at(program, 3), "offset 0 + 4");
}

TEST(Random, NumbersAloneAreNoState) {
  const std::uint64_t seed = 42;
  RecordBuilder r;
  r.random(seed, 0, 100);
  r.launch(plain_kernel(1, 4), {seed, 4, 0, 0});                            // 0: eight-byte parameters
  r.launch(function_with(2, "small", {16, 8, 8}), {seed, 4, 0, 0});         // 4: a struct that holds no state
  r.launch(function_with(3, "captured", {32}), {seed, 4, 0x100000000, 0});  // 8: a flag in the way
  r.launch(function_with(4, "apart", {32}), {seed, 200, 4, 0});             // 12: the offset is elsewhere
  r.launch(function_with(5, "end", {24, 24}), {1, seed, 4, 0, seed, 4});    // 16: over a parameter's end
  r.copy(seed, 4, 0);
  FunctionInfo packed;
  packed.handle = 6;
  r.launch(packed, {seed, 4, 0, 0});
  EXPECT_TRUE(symbolise(r.record()).references.empty());
}

TEST(Random, BindPutsTheNextStateIn) {
  const Program program = symbolise(dropout_at(kSeed, 40, 44, 48).record());
  Bindings bindings;
  bindings.seed = 5;
  bindings.offset = 1000;
  std::vector<std::uint64_t> words(program.words.size());
  bind(program, plan_arena(program), bindings, words.data());
  EXPECT_EQ(words, (std::vector<std::uint64_t>{100, 5, 1004, 0, 0}));
}

TEST(Random, RunsAtOtherStatesAreTheSameProgram) {
  const Program a = symbolise(dropout_at(kSeed, 0, 4, 8).record());
  const Program b = symbolise(dropout_at(kSeed, 8, 12, 16).record());
  const Program c = symbolise(dropout_at(77, 0, 4, 8).record());
  EXPECT_EQ(compare(a, b).difference, Difference::kNone);
  EXPECT_EQ(compare(a, c).difference, Difference::kNone);
  EXPECT_TRUE(compare(a, b).noise.empty());
}

TEST(Random, RunsAtTheSameStateProveNothing) {
  const Program a = symbolise(dropout_at(kSeed, 0, 4, 8).record());
  const Comparison comparison = compare(a, a);
  EXPECT_EQ(comparison.difference, Difference::kRandom);
  EXPECT_NE(describe(comparison, a, a, nullptr).text.find("same random state"), std::string::npos);
}

TEST(Random, AnotherAmountDrawnIsADifference) {
  const Program a = symbolise(dropout_at(kSeed, 0, 4, 8).record());
  const Program b = symbolise(dropout_at(kSeed, 8, 12, 20).record());
  const Comparison comparison = compare(a, b);
  EXPECT_EQ(comparison.difference, Difference::kRandom);
  EXPECT_NE(
      describe(comparison, a, b, nullptr)
          .text.find("the calls drew different amounts of random numbers: the generator's offset moved by 8 and by 12"),
      std::string::npos);
}

TEST(Random, AnotherOffsetAtTheSamePlaceIsADifference) {
  const Program a = symbolise(dropout_at(kSeed, 0, 0, 8).record());
  const Program b = symbolise(dropout_at(kSeed, 8, 12, 16).record());
  EXPECT_EQ(compare(a, b).difference, Difference::kRandom);
}

// A constant that looks like a small seed and offset in one run: the other run, at another state, shows what it is. It
// must be no noise, as noise may take the values of either run.
TEST(Random, AConstantThatLookedLikeAStateIsFoundOut) {
  const auto run = [](std::uint64_t before) {
    RecordBuilder r;
    r.random(0, before, before + 8).launch(dropout(), {100, 0, before, 0, 0});
    r.launch(attention(), {1, 0, 0, 0, 0, 0, 2, 3});
    return symbolise(r.record());
  };
  const Program first = run(0), second = run(8), third = run(16);
  EXPECT_NE(symbol_at(first, 6), "plain 0");
  EXPECT_EQ(compare(first, second).difference, Difference::kRandom);
  EXPECT_EQ(compare(second, first).difference, Difference::kRandom);
  for (const bool forth : {true, false}) {
    Program one = first, other = second;
    EXPECT_EQ(compare_and_settle(forth ? one : other, forth ? other : one).difference, Difference::kNone);
    EXPECT_EQ(one.words, other.words);
    EXPECT_EQ(one.references.size(), other.references.size());
    EXPECT_EQ(one.lows.size(), one.references.size());
  }
  EXPECT_EQ(compare(second, third).difference, Difference::kNone);
  EXPECT_TRUE(compare(second, third).noise.empty());
  EXPECT_EQ(second.references.size(), 2u);
}

TEST(Random, AStateLeftInPaddingIsNoise) {
  const auto run = [](std::uint64_t before, std::uint64_t left_over) {
    RecordBuilder r;
    r.random(kSeed, before, before + 8).launch(attention(), {1, kSeed, before + 4, 0, kSeed, left_over, 0, 3});
    return symbolise(r.record());
  };
  // In the first run it is this call's, in the second one that is gone.
  const Program first = run(40, 40), second = run(48, 12);
  const Comparison comparison = compare(first, second);
  EXPECT_EQ(comparison.difference, Difference::kNone);
  EXPECT_EQ(comparison.noise, (std::vector<std::uint32_t>{4, 5}));
}

TEST(Random, AGeneratorOfTheUsersIsRefused) {
  // The kernel takes a state, but not the known generator's: it could be seeded anew at any time.
  const auto run = [](bool known) {
    RecordBuilder r;
    if (known) r.random(kSeed, 40, 40);
    r.launch(plain_kernel(1, 1), {3}).launch(dropout(), {100, 1234, 0, 0, 0});
    return symbolise(r.record());
  };
  for (const bool known : {false, true}) {
    const Program program = run(known);
    const Comparison comparison = compare(program, program);
    EXPECT_EQ(comparison.difference, Difference::kRandom);
    EXPECT_EQ(comparison.node, 1u);
    EXPECT_NE(describe(comparison, program, program, nullptr).text.find("cannot be followed"), std::string::npos);
  }
}

}  // namespace
}  // namespace grape::program
