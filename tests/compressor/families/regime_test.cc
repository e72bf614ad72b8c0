#include "compressor/families/regime.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "compressor/program/symbolise.h"
#include "tests/compressor/program/record_builder.h"

namespace grape::families {
namespace {

using program::Program;
using program::RecordBuilder;

constexpr std::uint64_t kWeight = 0x7f0000000000, kTemp = 0x7f0010000000;

// A kernel over `length` elements of a block of that size, and a copy of what it left.
Program step(std::uint64_t length, std::uint64_t factor = 8, std::uint32_t kernels = 1,
             std::uint64_t weight = kWeight) {
  RecordBuilder r;
  r.before(weight, 4096).alloc(kTemp, length * 512);
  for (std::uint32_t i = 0; i < kernels; ++i) {
    r.launch(program::function_with(1, "f", {8, 8, 8}),
             {weight + length * 4, kTemp, length * factor | (8 * length + 8) << 32});
    r.record().nodes.back().grid.x = static_cast<std::uint32_t>((length + 3) / 4);
  }
  r.copy(kTemp, weight, length * 2).free(kTemp);
  return program::symbolise(r.record());
}

Regime regime_of(const std::vector<std::int64_t>& lengths) {
  const auto length_of = [](std::int64_t length) { return static_cast<std::uint64_t>(length); };
  Regime regime(step(length_of(lengths.front())), {lengths.front()});
  for (std::size_t i = 1; i < lengths.size(); ++i) regime.add(step(length_of(lengths[i])), {lengths[i]});
  return regime;
}

TEST(Regime, FourMembersForetellTheOthers) {
  const Regime regime = regime_of({5, 6, 9, 12});
  for (std::int64_t length = 1; length < 1000; ++length) {
    const Program program = step(static_cast<std::uint64_t>(length));
    EXPECT_TRUE(regime.holds(program, {length}));
    const Regime::Foretold foretold = regime.foretell({length});
    EXPECT_TRUE(foretold.unknown.empty());
    EXPECT_EQ(foretold.program.words, program.words);
    EXPECT_EQ(foretold.program.nodes.front().grid.x, program.nodes.front().grid.x);
    EXPECT_EQ(foretold.program.temps.front().bytes, program.temps.front().bytes);
    EXPECT_TRUE(regime.differences(program, {length}).empty());
  }
  EXPECT_EQ(regime.formula_count(), regime.sequence_count());
}

TEST(Regime, ThreeDoNot) {
  const Regime regime = regime_of({5, 6, 9});
  EXPECT_FALSE(regime.foretell({7}).unknown.empty());
  EXPECT_FALSE(regime.differences(step(7), {7}).empty());
}

TEST(Regime, SlotsThatHadTheSameValuesPartWays) {
  Regime regime(step(5, 8), {5, 8});
  for (const std::int64_t length : {6, 9, 12, 13}) regime.add(step(static_cast<std::uint64_t>(length), 8), {length, 8});
  const std::size_t sequences = regime.sequence_count();
  EXPECT_FALSE(regime.differences(step(10, 4), {10, 4}).empty()) << "the factor was a constant";
  regime.add(step(10, 4), {10, 4});
  EXPECT_GE(regime.sequence_count(), sequences);
  EXPECT_TRUE(regime.differences(step(20, 16), {20, 16}).empty()) << "a product since";
}

TEST(Regime, WhatDiffersIsNamed) {
  const Regime regime = regime_of({5, 6, 9, 12});
  Program other = step(20);
  ++other.words[other.nodes.front().words_at + 2];
  const std::vector<Slot> different = regime.differences(other, {20}).slots;
  ASSERT_EQ(different.size(), 1u);
  EXPECT_EQ(different.front().kind, Slot::Kind::kLane);
  EXPECT_EQ(different.front().index, 2 * (other.nodes.front().words_at + 2));
}

// A kernel that is handed a number, and a struct of two words.
Program step_with_struct(std::int64_t length, std::uint64_t word) {
  Program program;
  program.functions.push_back({1, "f", {{0, 8}, {8, 16}}, true});
  program::RecordedNode node;
  node.word_count = 3;
  node.parameter_bytes = 24;
  program.nodes.push_back(node);
  program.words = {static_cast<std::uint64_t>(64 * length), word, 7};
  return program;
}

using Words = std::vector<program::NoiseWord>;

// A counter that is the length within the first request.
TEST(Regime, WhatWasAnotherWordInTheSameCallIsForetoldByNoNumbers) {
  Regime regime(step_with_struct(5, 5), {5});
  for (const std::int64_t length : {6, 7, 8, 9, 10}) {
    regime.add(step_with_struct(length, static_cast<std::uint64_t>(length)), {length});
  }
  EXPECT_TRUE(regime.differences(step_with_struct(20, 20), {20}).empty());
  const Regime::Differences found = regime.observe_again(2, step_with_struct(7, 11), true);
  EXPECT_TRUE(found.slots.empty()) << "it may be padding";
  EXPECT_EQ(found.noise, (Words{{1, 0x01}}));
  EXPECT_EQ(regime.differences(step_with_struct(20, 20), {20}).noise, (Words{{1, 0x01}})) << "from now on";
  EXPECT_TRUE(regime.foretell({20}).unknown.size() == 1);
}

// Only the lane that varied: the other one of the word is a number.
TEST(Regime, LanesOfOneWordAreToldApart) {
  const auto word = [](std::uint64_t upper, std::uint64_t left) { return upper << 32 | left; };
  Regime regime(step_with_struct(5, word(15, 0x70000090)), {5});
  const std::int64_t lengths[] = {6, 9, 12, 17};
  const std::uint64_t left[] = {0x70000010, 0x70000070, 0x70000020, 0x700000f0};
  for (std::size_t i = 0; i < 4; ++i) {
    const auto upper = static_cast<std::uint64_t>(3 * lengths[i]);
    regime.add(step_with_struct(lengths[i], word(upper, left[i])), {lengths[i]});
  }
  EXPECT_EQ(regime.differences(step_with_struct(20, word(60, 0x70000050)), {20}).noise, (Words{{1, 0x01}}));
  EXPECT_EQ(regime.differences(step_with_struct(20, word(61, 0x70000050)), {20}).noise, (Words{{1, 0x11}}));
}

// What the host left there, which follows from the length in a way that no formula tells.
std::uint64_t left_by(std::int64_t length) {
  return static_cast<std::uint64_t>(length) * 0x9e3779b97f4a7c15 >> 33 | std::uint64_t{0x7f00} << 32;
}

TEST(Regime, WordsThatWereEqualInCallsThatCameAgainAreSteady) {
  Regime regime(step_with_struct(5, left_by(5)), {5});
  for (const std::int64_t length : {6, 7, 8, 9}) regime.add(step_with_struct(length, left_by(length)), {length});
  const Program next = step_with_struct(20, left_by(20));
  for (std::size_t member = 0; member < Regime::kSteady; ++member) {
    EXPECT_FALSE(regime.differences(next, {20}).noise.empty()) << member << " came again";
    const auto length = static_cast<std::int64_t>(5 + member);
    EXPECT_TRUE(regime.observe_again(member, step_with_struct(length, left_by(length)), true).empty());
  }
  const Regime::Differences found = regime.differences(next, {20});
  EXPECT_TRUE(found.empty());
  EXPECT_EQ(found.steady, 1U);
  EXPECT_FALSE(regime.observe_again(4, step_with_struct(9, left_by(9) + 1), true).empty());
  EXPECT_FALSE(regime.differences(next, {20}).noise.empty()) << "unsteady since";
}

// A boolean beside what the host left there.
TEST(Regime, OfASteadyWordOnlyTheBytesThatDifferedAreAskedFor) {
  const auto word = [](std::int64_t length, std::uint64_t left) { return left_by(length) << 8 | left; };
  Regime regime(step_with_struct(5, word(5, 1)), {5});
  for (const std::int64_t length : {6, 7, 8, 9}) regime.add(step_with_struct(length, word(length, 1)), {length});
  for (std::size_t member = 0; member < Regime::kSteady; ++member) {
    const auto length = static_cast<std::int64_t>(5 + member);
    const Regime::Differences found = regime.observe_again(member, step_with_struct(length, word(length, 2)), true);
    EXPECT_TRUE(found.slots.empty());
    EXPECT_EQ(found.noise, (Words{{1, 0x01}}));
  }
  for (const std::uint64_t left : {1U, 7U}) {
    EXPECT_EQ(regime.differences(step_with_struct(20, word(20, left)), {20}).noise, (Words{{1, 0x01}}));
  }
}

// A mode beside what the host left there: the word had several values, but the mode's byte had one.
TEST(Regime, OfAnUnsteadyWordTheOtherBytesNeedTwoValuesThemselves) {
  const auto word = [](std::uint64_t mode, std::uint64_t left) { return mode << 8 | left; };
  Regime regime(step_with_struct(5, word(1, 5)), {5});
  for (const std::int64_t length : {6, 7, 8, 9}) {
    regime.add(step_with_struct(length, word(1, static_cast<std::uint64_t>(length))), {length});
  }
  for (std::size_t member = 0; member < Regime::kSteady; ++member) {
    const auto length = static_cast<std::int64_t>(5 + member);
    regime.observe_again(member, step_with_struct(length, word(1, 0x40 + member)), true);
  }
  EXPECT_EQ(regime.differences(step_with_struct(20, word(1, 7)), {20}).noise, (Words{{1, 0x01}}));
  EXPECT_EQ(regime.differences(step_with_struct(20, word(2, 7)), {20}).noise, (Words{{1, 0x03}}));
}

TEST(Regime, AMemberTwiceInARowSaysNothingOfSteadiness) {
  Regime regime(step_with_struct(5, left_by(5)), {5});
  for (const std::int64_t length : {6, 7, 8, 9}) regime.add(step_with_struct(length, left_by(length)), {length});
  for (std::size_t member = 0; member < Regime::kSteady; ++member) {
    const auto length = static_cast<std::int64_t>(5 + member);
    regime.observe_again(member, step_with_struct(length, left_by(length)), false);
    regime.observe_again(0, step_with_struct(5, left_by(5)), true);
  }
  EXPECT_FALSE(regime.differences(step_with_struct(20, left_by(20)), {20}).noise.empty()) << "one member alone counts";
}

// A mode: one value in all members that came again.
TEST(Regime, WhatWasConstantIsNotSteady) {
  Regime regime(step_with_struct(5, 1), {5});
  for (const std::int64_t length : {6, 7, 8, 9, 10}) regime.add(step_with_struct(length, 1), {length});
  for (std::size_t member = 0; member < Regime::kSteady; ++member) {
    regime.observe_again(member, step_with_struct(static_cast<std::int64_t>(5 + member), 1), true);
  }
  EXPECT_TRUE(regime.differences(step_with_struct(20, 1), {20}).empty());
  EXPECT_FALSE(regime.differences(step_with_struct(20, 2), {20}).noise.empty());
  regime.add(step_with_struct(20, 2), {20});
  EXPECT_FALSE(regime.differences(step_with_struct(21, 3), {21}).noise.empty())
      << "no call came again with another one";
}

// A library sets something up in single calls, and leaves other bytes there.
TEST(Regime, OneValueInCallsThatCameAgainIsFollowedByThatValue) {
  Regime regime(step_with_struct(5, 7), {5});
  for (const std::int64_t length : {6, 7, 8, 9, 10}) regime.add(step_with_struct(length, 1), {length});
  for (std::size_t member = 1; member <= Regime::kSteady; ++member) {
    EXPECT_FALSE(regime.differences(step_with_struct(20, 1), {20}).noise.empty()) << member - 1 << " came again";
    EXPECT_TRUE(regime.observe_again(member, step_with_struct(static_cast<std::int64_t>(5 + member), 1), true).empty());
  }
  EXPECT_EQ(regime.differences(step_with_struct(20, 1), {20}).steady, 1U);
  EXPECT_FALSE(regime.differences(step_with_struct(20, 7), {20}).noise.empty());
  EXPECT_FALSE(regime.differences(step_with_struct(20, 2), {20}).noise.empty());
}

TEST(Regime, APlainNumberIsNeverSteady) {
  const auto number = [](std::int64_t length) {
    Program program = step_with_struct(length, 1);
    program.words[0] = left_by(length);
    return program;
  };
  Regime regime(number(5), {5});
  for (const std::int64_t length : {6, 7, 8, 9}) regime.add(number(length), {length});
  for (std::size_t member = 0; member < 5; ++member) {
    EXPECT_TRUE(regime.observe_again(member, number(static_cast<std::int64_t>(5 + member)), true).empty());
  }
  EXPECT_EQ(regime.differences(number(20), {20}).slots.size(), 1U) << "but for the upper lane, which is constant";
}

// An address of the host in one call, of a weight in another one.
TEST(Regime, WordsThatReferToOtherMemoryMayBeSteady) {
  const auto with_weight = [](std::int64_t length) {
    Program program = step_with_struct(length, static_cast<std::uint64_t>(8 * length));
    program.statics.push_back({kWeight, 4096, 1});
    if (length % 2 != 0) program.references.push_back({1, program::Role::kStatic, 0});
    return program;
  };
  for (const std::int64_t first : {5, 6}) {
    Regime regime(with_weight(first), {first});
    for (const std::int64_t length : {17, 18, 21, 24}) regime.add(with_weight(length), {length});
    EXPECT_FALSE(regime.differences(with_weight(31), {31}).empty());
    const std::int64_t lengths[] = {first, 17, 18, 21};
    for (std::size_t member = 0; member < 4; ++member) {
      EXPECT_TRUE(regime.observe_again(member, with_weight(lengths[member]), true).empty());
    }
    EXPECT_TRUE(regime.differences(with_weight(31), {31}).empty());
    EXPECT_EQ(regime.differences(with_weight(31), {31}).steady, first == 5 ? 1U : 2U);
    Program other = with_weight(21);
    other.words[1] += 16;
    EXPECT_FALSE(regime.observe_again(3, other, true).empty());
    EXPECT_FALSE(regime.differences(with_weight(31), {31}).empty()) << "unsteady";
  }
}

TEST(Regime, APlainNumberIsNoNoise) {
  Regime regime(step_with_struct(5, 1), {5});
  for (const std::int64_t length : {6, 9, 12}) regime.add(step_with_struct(length, 1), {length});
  const Regime::Differences found = regime.observe_again(1, step_with_struct(7, 1), true);
  EXPECT_TRUE(found.noise.empty());
  ASSERT_EQ(found.slots.size(), 1U) << "another number in the same call";
  EXPECT_EQ(found.slots.front().index, 0U);
}

TEST(Regime, OtherSkeletonsAreOtherRegimes) {
  const Regime regime = regime_of({5});
  EXPECT_TRUE(regime.holds(step(7), {7}));
  EXPECT_FALSE(regime.holds(step(7, 8, 2), {7})) << "another list of kernels";
  EXPECT_FALSE(regime.holds(step(7, 8, 1, kWeight + 0x100000), {7})) << "another weight";
  EXPECT_FALSE(regime.holds(step(7), {7, 8})) << "another number of numbers";
  Program other = step(7);
  other.temps.front().died = 1;
  EXPECT_FALSE(regime.holds(other, {7})) << "another life";
  other = step(7);
  const auto in_temp =
      std::find_if(other.references.begin(), other.references.end(), [](const program::Reference& each) {
        return each.role == program::Role::kTemp || each.role == program::Role::kOutput;
      });
  ASSERT_NE(in_temp, other.references.end());
  in_temp->block = 1;
  EXPECT_FALSE(regime.holds(other, {7})) << "another block";
}

// Signatures hold sizes and strides, of which many follow from each other.
TEST(Regime, ManyNumbersThatFollowFromEachOther) {
  const auto numbers = [](std::int64_t length, std::int64_t batch) {
    Numbers all = {length, batch};
    for (std::int64_t i = 1; i < 40; ++i) all.push_back(i % 2 == 0 ? 64 * i * length : 32 * i * batch);
    return all;
  };
  Regime regime(step(5, 2), numbers(5, 2));
  std::int64_t next = 5;
  for (const std::int64_t batch : {3, 4, 2, 7, 5, 9, 3, 8, 6, 4, 2, 5}) {
    next = next * 5 % 97 + 3;
    regime.add(step(static_cast<std::uint64_t>(next), static_cast<std::uint64_t>(batch)), numbers(next, batch));
  }
  EXPECT_TRUE(regime.differences(step(50, 11), numbers(50, 11)).empty());
}

// A counter of calls is in no signature, so no formula holds it.
TEST(Regime, ACounterIsNotForetold) {
  Regime regime(step(5, 100), {5});
  std::uint64_t count = 100;
  for (const std::int64_t length : {9, 6, 12, 7, 30})
    regime.add(step(static_cast<std::uint64_t>(length), ++count), {length});
  EXPECT_LT(regime.formula_count(), regime.sequence_count());
  EXPECT_FALSE(regime.differences(step(8, ++count), {8}).empty());
}

}  // namespace
}  // namespace grape::families
