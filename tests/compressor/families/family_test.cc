// Requests of a `generate`, and hidden state that looks like a function of their lengths.
#include "compressor/families/family.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <ostream>
#include <random>
#include <string>

namespace grape::families {
namespace {

using program::Program;

using Words = std::vector<program::NoiseWord>;

Words no_padding(const Program&, const Words& noise) { return noise; }

// One kernel that is handed a function of the length, and something else.
Program step(std::int64_t length, std::int64_t hidden, std::uint64_t left_there = 0) {
  Program program;
  program.functions.push_back({1, "f", {{0, 8}, {8, 8}, {16, 16}}, true});
  program::RecordedNode node;
  node.word_count = 4;
  node.parameter_bytes = 32;
  node.grid.x = static_cast<std::uint32_t>(length + 1);
  program.nodes.push_back(node);
  program.words = {static_cast<std::uint64_t>(64 * length + 64), static_cast<std::uint64_t>(hidden), 7, left_there};
  return program;
}

struct Hidden {
  const char* name;
  std::int64_t (*value)(std::int64_t call, std::int64_t request, std::int64_t most, std::int64_t length);
  bool old_rule_is_right;
};
void PrintTo(const Hidden& hidden, std::ostream* out) { *out << hidden.name; }

class HiddenState : public testing::TestWithParam<Hidden> {};

struct Counts {
  std::size_t by_two_calls = 0, wrong_by_two_calls = 0, by_family = 0, wrong_by_family = 0;
};

// Calls of 400 requests. A signature is proven by two observed calls that are the same, or by its family.
class Replayed {
 public:
  void call(std::int64_t length, const Program& truth, bool with_family) {
    ++calls_;
    const auto proven = proven_.find(length);
    if (proven != proven_.end()) {
      const bool wrong = proven->second.program.words != truth.words;
      const bool predicted = proven->second.predicted;
      (predicted ? counts.by_family : counts.by_two_calls) += 1;
      (predicted ? counts.wrong_by_family : counts.wrong_by_two_calls) += wrong ? 1 : 0;
      if (!predicted || !family_.is_lost()) return;
      proven_.erase(proven);
    }
    const Family::Answer answer = family_.observe(truth, {length}, calls_, no_padding);
    const auto before = seen_.find(length);
    if (answer.takes_back) {
      for (auto each = proven_.begin(); each != proven_.end();) {
        each = each->second.predicted ? proven_.erase(each) : std::next(each);
      }
    }
    const bool same = before != seen_.end() && before->second.words == truth.words;
    if (same) proven_[length] = {truth, false};
    if (!same && with_family && answer.proves) proven_[length] = {truth, true};
    seen_[length] = truth;
  }
  Counts counts;

 private:
  struct Proven {
    Program program;
    bool predicted;
  };
  Family family_;
  std::uint64_t calls_ = 0;
  std::map<std::int64_t, Proven> proven_;
  std::map<std::int64_t, Program> seen_;
};

// `in_struct`: it stands where padding could be, as `hidden` is 3.
Counts run(const Hidden& hidden, bool with_family, std::uint64_t seed, bool in_struct = false) {
  std::mt19937_64 random(seed);
  Replayed replayed;
  std::int64_t calls = 0, most = 0;
  for (std::int64_t request = 0; request < 400; ++request) {
    const auto prompt = static_cast<std::int64_t>(10 + random() % 90);
    const auto answers = static_cast<std::int64_t>(1 + random() % 40);
    for (std::int64_t length = prompt; length < prompt + answers; ++length, ++calls) {
      most = std::max(most, length);
      const std::int64_t value = hidden.value(calls, request, most, length);
      const Program truth = in_struct ? step(length, 3, static_cast<std::uint64_t>(value)) : step(length, value);
      replayed.call(length, truth, with_family);
    }
  }
  return replayed.counts;
}

TEST_P(HiddenState, IsNotProvenByItsFamilyWhereTwoCallsAreRight) {
  std::size_t by_family = 0, by_two_calls = 0;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const Counts old = run(GetParam(), false, seed), with = run(GetParam(), true, seed);
    EXPECT_EQ(old.by_family, 0U);
    if (GetParam().old_rule_is_right) {
      EXPECT_EQ(old.wrong_by_two_calls, 0U);
      EXPECT_EQ(with.wrong_by_family + with.wrong_by_two_calls, 0U);
    }
    by_family += with.by_family;
    by_two_calls += old.by_two_calls;
  }
  if (std::string(GetParam().name) == "none") {
    EXPECT_GT(by_family, by_two_calls / 2) << "most lengths replay from their second call on";
  }
  const bool changes = std::string(GetParam().name) == "calls" || std::string(GetParam().name) == "requests";
  EXPECT_EQ(by_two_calls == 0, changes);
}

// Nobody knows these words for padding, and that they are steady only calls that come again show.
TEST_P(HiddenState, IsNotTakenForASteadyWord) {
  std::size_t by_family = 0;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const Counts with = run(GetParam(), true, seed, true);
    if (GetParam().old_rule_is_right) {
      EXPECT_EQ(with.wrong_by_family + with.wrong_by_two_calls, 0U);
    }
    by_family += with.by_family;
  }
  const std::string name = GetParam().name;
  if (name == "none" || name == "garbage") {
    EXPECT_GT(by_family, 0U);
  }
  if (name == "calls" || name == "requests") {
    EXPECT_EQ(by_family, 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, HiddenState,
    testing::Values(
        Hidden{"none", [](std::int64_t, std::int64_t, std::int64_t, std::int64_t n) { return 8 * n; }, true},
        Hidden{"garbage",
               [](std::int64_t, std::int64_t, std::int64_t, std::int64_t n) {
                 return static_cast<std::int64_t>(static_cast<std::uint64_t>(n) * 0x9e3779b97f4a7c15 >> 20);
               },
               true},
        Hidden{"calls", [](std::int64_t c, std::int64_t, std::int64_t, std::int64_t) { return c; }, true},
        Hidden{"requests", [](std::int64_t, std::int64_t r, std::int64_t, std::int64_t) { return r; }, true},
        Hidden{"most", [](std::int64_t, std::int64_t, std::int64_t m, std::int64_t) { return m; }, false},
        Hidden{"mode",
               [](std::int64_t c, std::int64_t, std::int64_t, std::int64_t) { return std::int64_t{c < 2000 ? 1 : 2}; },
               false},
        Hidden{"turns", [](std::int64_t c, std::int64_t, std::int64_t, std::int64_t) { return c % 2; }, false}),
    [](const auto& kind) { return kind.param.name; });

class Lengths {
 public:
  Family::Answer see(std::int64_t length, std::uint64_t left_there = 0) {
    const Program program = step(length, 3, left_there);
    return see(length, program, [](const Program&, Words noise) {
      noise.erase(std::remove_if(noise.begin(), noise.end(), [](const auto& each) { return each.word == 3; }),
                  noise.end());
      return noise;
    });
  }
  Family::Answer see(std::int64_t length, const Program& program, const UnknownPadding& unknown = no_padding) {
    return family_.observe(program, {length}, ++calls_, unknown);
  }
  void pass() { ++calls_; }
  Family& family() { return family_; }

 private:
  Family family_;
  std::uint64_t calls_ = 0;
};

TEST(Family, TwoSignaturesHaveToComeAgain) {
  Lengths lengths;
  for (const std::int64_t length : {5, 6, 9, 12}) EXPECT_FALSE(lengths.see(length).proves);
  EXPECT_FALSE(lengths.see(20).foretold) << "nothing is learned before";
  EXPECT_TRUE(lengths.see(6).repeats);
  EXPECT_FALSE(lengths.see(21).proves) << "one came again";
  EXPECT_TRUE(lengths.see(6).repeats);
  EXPECT_FALSE(lengths.see(22).proves) << "the same one";
  lengths.see(9);
  const Family::Answer answer = lengths.see(23);
  EXPECT_TRUE(answer.foretold && answer.proves);
  EXPECT_FALSE(lengths.see(23).proves) << "two calls are another proof";
}

TEST(Family, ASignatureTwiceInARowIsNoRepetition) {
  Lengths lengths;
  for (const std::int64_t length : {5, 6, 9, 12, 12, 13, 13, 14, 14}) lengths.see(length);
  EXPECT_FALSE(lengths.see(20).proves);
  lengths.pass();
  lengths.see(20);
  lengths.see(5);
  EXPECT_TRUE(lengths.see(21).proves) << "another call was between";
}

TEST(Family, WhatDiffersOnceEndsItsRight) {
  Lengths lengths;
  for (const std::int64_t length : {5, 6, 9, 12, 6, 9}) lengths.see(length);
  EXPECT_TRUE(lengths.see(20).proves);
  EXPECT_FALSE(lengths.see(5, step(5, 4)).differences.empty()) << "a plain number";
  EXPECT_TRUE(lengths.family().is_lost());
  const Family::Answer answer = lengths.see(21);
  EXPECT_TRUE(answer.foretold && !answer.proves);
}

TEST(Family, AnotherListOfKernelsForOneSignatureEndsItsRight) {
  Lengths lengths;
  for (const std::int64_t length : {5, 6, 9, 12, 6, 9}) lengths.see(length);
  Program other = step(6, 3);
  other.functions.front().name = "g";
  lengths.see(6, other);
  EXPECT_TRUE(lengths.family().is_lost());
}

// PyTorch's reductions have as many threads as the next lower power of two.
TEST(Family, OtherBlocksOfThreadsAreAnotherRegime) {
  Lengths lengths;
  const auto see = [&](std::int64_t length) {
    Program program = step(length, 3);
    program.nodes.front().block.x = length < 32 ? 16 : 32;
    return lengths.see(length, program);
  };
  for (const std::int64_t length : {17, 18, 21, 24, 18, 21}) see(length);
  EXPECT_TRUE(see(30).proves);
  EXPECT_FALSE(see(33).foretold);
  EXPECT_EQ(lengths.family().regime_count(), 2U);
  EXPECT_TRUE(see(31).proves);
}

TEST(Family, EachRegimeLearnsForItself) {
  Lengths lengths;
  for (const std::int64_t length : {5, 6, 9, 12, 6, 9}) lengths.see(length);
  Program other = step(33, 3);
  other.functions.front().name = "g";
  EXPECT_FALSE(lengths.see(33, other).foretold) << "the first of its regime";
  EXPECT_EQ(lengths.family().regime_count(), 2U);
  other = step(34, 3);
  other.functions.front().name = "g";
  EXPECT_FALSE(lengths.see(34, other).proves);
  EXPECT_TRUE(lengths.see(20).proves);
}

TEST(Family, PaddingThatIsKnownIsNoDifference) {
  Lengths lengths;
  std::uint64_t left = 0x7f1234560000;
  for (const std::int64_t length : {5, 6, 9, 12, 6, 9}) lengths.see(length, left += 0x1230);
  EXPECT_FALSE(lengths.family().is_lost());
  EXPECT_TRUE(lengths.see(20, left + 5).proves);
  const Family::Answer answer = lengths.see(21, step(21, 3, left + 9));
  EXPECT_FALSE(answer.foretold) << "nobody knows it for padding";
  ASSERT_FALSE(answer.unknown.empty());
  EXPECT_EQ(answer.unknown.front().word, 3U);
}

// On GPUs most kernels have words that the host's stack left there.
TEST(Family, WordsThatMayBePaddingHaveToBeKnownAndEndNoRight) {
  Lengths lengths;
  std::uint64_t left = 0x7f1234560000;
  const auto see = [&](std::int64_t length) { return lengths.see(length, step(length, 3, left += 0x1231)); };
  for (const std::int64_t length : {5, 6, 9, 12, 6, 9}) see(length);
  EXPECT_FALSE(lengths.family().is_lost());
  const Family::Answer answer = see(20);
  EXPECT_FALSE(answer.proves) << "nobody knows it for padding";
  ASSERT_EQ(answer.unknown.size(), 1U);
  EXPECT_EQ(answer.unknown.front().word, 3U);
  EXPECT_TRUE(lengths.see(21, left + 5).proves) << "now it is known";
}

TEST(Family, WhatRestedOnAWordThatThenDiffersIsTakenBack) {
  Lengths lengths;
  const auto see = [&](std::int64_t length, std::uint64_t left) {
    return lengths.see(length, step(length, 3, left + static_cast<std::uint64_t>(length) * 0x10001));
  };
  for (const std::int64_t length : {5, 6, 9, 12, 6, 9}) see(length, 0);
  EXPECT_TRUE(see(20, 0).proves);
  const Family::Answer answer = see(5, 1);
  EXPECT_TRUE(answer.takes_back);
  EXPECT_FALSE(lengths.family().is_lost());
  EXPECT_FALSE(see(6, 2).takes_back) << "nothing has been proven since that rests on this byte";
  EXPECT_TRUE(see(9, 0x100).takes_back) << "another byte";
}

// Sizes of results are in no program.
TEST(Family, NumbersBesideTheProgramAreForetoldAsWell) {
  Family family;
  std::uint64_t calls = 0;
  const auto see = [&](std::int64_t length, std::int64_t size, std::uint64_t outside = 1) {
    const std::vector<std::int64_t> beside = {size};
    const Program program = step(length, 3);
    return family.observe({program, beside, outside}, {length}, ++calls, no_padding);
  };
  for (const std::int64_t length : {5, 6, 9, 12, 6, 9}) see(length, 2 * length);
  EXPECT_TRUE(see(20, 40).proves);
  EXPECT_FALSE(see(21, 43).foretold);
  EXPECT_FALSE(see(22, 44, 2).foretold) << "another kind of result";
  see(5, 11);
  EXPECT_TRUE(family.is_lost());
}

TEST(Family, KeepsSoManyRegimesAndNumbers) {
  Lengths lengths;
  for (const std::int64_t length : {5, 6, 9, 12, 6, 9}) lengths.see(length);
  for (std::int64_t length = 100; length < 200; ++length) {
    Program other = step(length, 3);
    other.functions.front().name = std::to_string(length);
    lengths.see(length, other);
    EXPECT_FALSE(lengths.see(length, other).proves);
  }
  EXPECT_EQ(lengths.family().regime_count(), Family::kMostRegimes);
  EXPECT_TRUE(lengths.see(20).proves);

  Family family;
  const std::size_t count = Family::kMostNumbers / 8;
  for (std::int64_t length = 0; length < 20; ++length) {
    Numbers numbers(count, 7);
    numbers.front() = length;
    family.observe(step(length, 3), numbers, static_cast<std::uint64_t>(length), no_padding);
  }
  Numbers numbers(count, 7);
  numbers.front() = 7;
  EXPECT_TRUE(family.observe(step(7, 3), numbers, 30, no_padding).repeats);
  numbers.front() = 8;
  EXPECT_FALSE(family.observe(step(8, 3), numbers, 31, no_padding).repeats) << "there was no room for it";
}

// A library loads code for a new length, and may set something up as it does.
TEST(Family, ACallThatMayHaveDoneMoreIsProvenAndTeachesNothing) {
  Family family;
  std::uint64_t calls = 0;
  const auto see = [&](std::int64_t length, bool did_more, std::int64_t hidden = 3) {
    return family.observe(step(length, hidden), {length}, ++calls, no_padding, did_more);
  };
  see(4, true);
  for (const std::int64_t length : {5, 6, 9, 12, 6}) see(length, false);
  see(9, true);
  EXPECT_FALSE(see(20, false).proves) << "one came again, but for calls that may have done more";
  see(9, false);
  EXPECT_TRUE(see(21, true).proves);
  const std::uint64_t wrong = family.wrong_count();
  EXPECT_FALSE(see(22, true, 4).proves);
  EXPECT_FALSE(see(21, true, 4).repeats);
  EXPECT_FALSE(family.is_lost());
  EXPECT_EQ(family.wrong_count(), wrong);
  EXPECT_FALSE(see(4, false).repeats);
  EXPECT_TRUE(see(22, false).proves);
  see(22, false, 4);
  EXPECT_TRUE(family.is_lost());
}

TEST(Family, ShadowsShowTheFirstMembersAndOneOfSixteen) {
  Lengths lengths;
  for (const std::int64_t length : {5, 6, 9, 12, 6, 9}) lengths.see(length);
  std::vector<bool> needed;
  for (std::int64_t length = 20; length < 20 + 40; ++length) {
    const Family::Answer answer = lengths.see(length);
    ASSERT_TRUE(answer.proves);
    needed.push_back(answer.needs_shadow);
  }
  for (std::size_t i = 0; i < needed.size(); ++i) {
    EXPECT_EQ(needed[i], i < Family::kShadowed || i % Family::kSampled == 0) << i;
  }
  EXPECT_EQ(lengths.family().right_count(), 40U);
}

}  // namespace
}  // namespace grape::families
