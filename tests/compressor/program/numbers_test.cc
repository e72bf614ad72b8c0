// Which words of kernels hold numbers of the call.
#include "compressor/program/numbers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "compressor/program/padding.h"
#include "compressor/program/plan.h"
#include "compressor/program/prove.h"
#include "compressor/program/symbolise.h"
#include "tests/compressor/program/record_builder.h"

namespace grape::program {
namespace {

constexpr std::uint64_t kWeight = 0x7f0000000000;

std::uint64_t bits_of(double number) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &number, sizeof bits);
  return bits;
}

std::uint64_t bits_of(float number) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &number, sizeof bits);
  return bits;
}

std::uint64_t pair(float first, float last) { return bits_of(first) | bits_of(last) << 32; }
std::uint64_t beside(std::uint32_t first, float last) { return first | bits_of(last) << 32; }

// One launch: a pointer, a struct of two words, a parameter of one word, two of four bytes.
Program run(std::uint64_t structure, std::uint64_t other, std::uint64_t word, std::uint64_t two = 0) {
  RecordBuilder r;
  r.before(kWeight, 512);
  r.launch(function_with(1, "f", {8, 16, 8, 4, 4}), {kWeight, structure, other, word, two});
  return symbolise(r.record());
}

// A run and its numbers.
struct Observed {
  Program program;
  NumberEvidence evidence;
};
Observed with(Program program, Numbers numbers) { return {std::move(program), {std::move(numbers), {}, {}, {}}}; }

Settled settle(Observed& a, Observed& b) { return settle_numbers(a.program, a.evidence, b.program, b.evidence); }

// As GraphExec does it.
std::vector<std::uint64_t> bound(const Observed& run, const Numbers& numbers) {
  Bindings bindings;
  bindings.numbers = numbers;
  std::vector<std::uint64_t> words(run.program.words.size());
  bind(run.program, plan_arena(run.program), bindings, words.data());
  return words;
}

// What compare() takes for padding in the later run.
std::vector<NoiseWord> noise_of(const Observed& last, const Observed& now) {
  const Comparison comparison = compare(last.program, now.program);
  EXPECT_EQ(comparison.difference, Difference::kNone);
  std::vector<NoiseWord> noise;
  add_noise(noise, now.program, last.program, comparison.noise);
  return noise;
}

NumbersFit fit(const Observed& run, const Numbers& now) {
  return numbers_fit(run.evidence, used_numbers(run.program, now.size()), now);
}

Observed handed(double rate, std::uint32_t garbage = 7) {
  const auto single = static_cast<float>(rate);
  return with(run(pair(single, 2.0F), beside(garbage, -single), bits_of(rate), pair(single, 3.0F)), {rate, -rate, 0.5});
}

TEST(Numbers, AreFoundInFloatsAndDoubles) {
  Observed a = handed(0.3), b = handed(0.7);
  EXPECT_EQ(settle(a, b), Settled::kLearned);
  EXPECT_EQ(compare(a.program, b.program).difference, Difference::kNone);
  EXPECT_TRUE(compare(a.program, b.program).noise.empty());
  const Observed c = handed(1.1);
  EXPECT_EQ(bound(b, c.evidence.numbers), bound(c, {}));
  EXPECT_EQ(fit(b, {1.1, -1.1, 0.5}), NumbersFit::kYes);
  Observed next = handed(1.9);
  EXPECT_EQ(settle(b, next), Settled::kKnown) << "the third run shows them once more";
  EXPECT_EQ(compare(b.program, next.program).difference, Difference::kNone);
}

TEST(Numbers, ThatDidNotMoveAreConstants) {
  Observed a = handed(0.3), b = handed(0.3);
  EXPECT_EQ(settle(a, b), Settled::kKnown);
  EXPECT_EQ(fit(b, {0.3, -0.3, 0.5}), NumbersFit::kYes);
  EXPECT_EQ(fit(b, {0.4, -0.4, 0.5}), NumbersFit::kNotSeen) << "nobody knows where it went";
  Observed c = handed(0.4);
  settle(b, c);
  EXPECT_EQ(fit(c, {0.9, -0.9, 0.5}), NumbersFit::kYes);
  EXPECT_EQ(fit(c, {0.9, -0.9, 0.6}), NumbersFit::kNotSeen) << "the third one never moved";
}

TEST(Numbers, ThatMoveLessThanAFloatTellNothingOfFloats) {
  const double rate = 0.3, near = std::nextafter(0.3, 1.0);
  Observed a = with(run(pair(0.3F, 0), 0, 0), {rate}), b = with(run(pair(0.3F, 0), 0, 0), {near});
  EXPECT_EQ(settle(a, b), Settled::kKnown);
  EXPECT_EQ(fit(b, {std::nextafter(near, 1.0)}), NumbersFit::kYes) << "the same float";
  EXPECT_EQ(fit(b, {0.4}), NumbersFit::kNotSeen);
}

// Kernels that divide are handed 1 / number, computed in one type or the other: mostly the same float.
TEST(Numbers, ThatAreAlikeAreToldApartBeforeTheyDiffer) {
  const auto of = [](double rate) { return with(run(pair(static_cast<float>(1.0 / rate), 0), 0, 0), {rate}); };
  const auto differs = [](double rate) { return 1.0F / static_cast<float>(rate) != static_cast<float>(1.0 / rate); };
  double other = 0.1;
  while (!differs(other)) other += 0.001;
  Observed a = of(0.5), b = of(0.25);
  ASSERT_FALSE(differs(0.5) || differs(0.25));
  EXPECT_EQ(settle(a, b), Settled::kLearned);
  EXPECT_EQ(fit(b, {0.125}), NumbersFit::kYes);
  EXPECT_EQ(fit(b, {other}), NumbersFit::kNotSeen) << "one of two, and they differ";
  Observed c = of(other);
  EXPECT_EQ(settle(b, c), Settled::kLearned) << "it was the other one";
  EXPECT_EQ(compare(b.program, c.program).difference, Difference::kNone);
  EXPECT_EQ(fit(c, {other + 0.1}), NumbersFit::kYes);
  EXPECT_EQ(bound(c, {other + 0.1}), bound(of(other + 0.1), {}));
  EXPECT_EQ(bound(c, {other}), bound(of(other), {}));
}

TEST(Numbers, ThatAreEqualForAWhileAreToldApart) {
  const auto of = [](double first, double second) {
    return with(run(pair(static_cast<float>(second), 0), 0, 0), {first, second});
  };
  Observed a = of(0.5, 0.5), b = of(0.25, 0.25);
  EXPECT_EQ(settle(a, b), Settled::kLearned);
  EXPECT_EQ(fit(b, {0.1, 0.1}), NumbersFit::kYes);
  EXPECT_EQ(fit(b, {0.1, 0.2}), NumbersFit::kNotSeen);
  Observed c = of(0.1, 0.2);
  EXPECT_EQ(settle(b, c), Settled::kLearned);
  EXPECT_EQ(bound(c, {0.3, 0.4}), bound(of(0.3, 0.4), {}));
}

TEST(Numbers, OnWhichCodeMayBranchTellNothing) {
  for (const double number :
       {0.0, 1e-45, 1e60, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_FALSE(is_ordinary(number)) << number;
    Observed a = handed(0.3), b = handed(number), c = handed(number);
    const Program before = a.program;
    EXPECT_EQ(settle(a, b), Settled::kUnlike) << number;
    EXPECT_EQ(a.program.words, before.words);
    EXPECT_EQ(settle(b, c), Settled::kKnown) << "the same in both: " << number;
  }
  Observed a = handed(0.3), b = handed(0.7);
  settle(a, b);
  EXPECT_EQ(fit(b, {0, -0.0, 0.5}), NumbersFit::kNotOrdinary);
}

TEST(Numbers, LeaveOtherDifferencesToCompare) {
  Observed a = with(run(1, 0, 5), {0.3}), b = with(run(2, 0, 6), {0.7});
  EXPECT_EQ(settle(a, b), Settled::kKnown);
  EXPECT_EQ(compare(a.program, b.program).difference, Difference::kScalar);
}

TEST(Numbers, MayHavePaddingBesideThem) {
  Observed a = handed(0.3, 1), b = handed(0.7, 1), c = handed(0.9, 2);
  settle(a, b);
  EXPECT_EQ(settle(b, c), Settled::kKnown);
  const std::vector<NoiseWord> noise = noise_of(b, c);
  EXPECT_EQ(noise, (std::vector<NoiseWord>{{2, 0b0001}})) << "and no byte of the number";
  const PaddingKnowledge knowledge;
  EXPECT_EQ(settle_noise(c.program, {&b.program}, noise, knowledge, 1), noise);
  EXPECT_EQ(bound(c, {0.5, -0.5, 0.5})[2], beside(1, -0.5F)) << "the number stays one";
}

TEST(Numbers, MayBeginToMoveBesideAnother) {
  for (const bool first_moves : {false, true}) {
    const auto of = [first_moves](double moves, double late) {
      const auto one = static_cast<float>(moves), other = static_cast<float>(late);
      return with(run(first_moves ? pair(one, other) : pair(other, one), 0, 0), {moves, late});
    };
    Observed a = of(0.3, 0.5), b = of(0.7, 0.5), c = of(0.9, 0.6), d = of(1.1, 0.8);
    EXPECT_EQ(settle(a, b), Settled::kLearned);
    EXPECT_EQ(fit(b, {0.9, 0.6}), NumbersFit::kNotSeen);
    EXPECT_EQ(settle(b, c), Settled::kLearned);
    EXPECT_TRUE(compare(b.program, c.program).noise.empty()) << "no padding";
    EXPECT_EQ(settle(c, d), Settled::kKnown);
    EXPECT_EQ(bound(d, {0.1, 0.2}), bound(of(0.1, 0.2), {}));
  }
}

// Of scalars in a struct the last one may have a part of an old address behind it. Together they look like an address.
TEST(Numbers, MayLookLikeAddresses) {
  constexpr std::uint64_t kHigh = kWeight >> 32, kBytes = std::uint64_t{0xFFFF} << 16, kOtherHigh = 0x5500;
  const auto of = [](double rate, std::uint64_t high, std::uint64_t alive) {
    RecordBuilder r;
    r.before(kWeight, alive);
    const std::uint64_t number = bits_of(static_cast<float>(rate));
    r.launch(function_with(1, "f", {16, 8}), {number | high << 32, 7, 3});
    return with(symbolise(r.record()), {rate});
  };
  const std::uint64_t highs[] = {kHigh, kOtherHigh};
  for (const std::uint64_t first : highs) {
    for (const std::uint64_t second : highs) {
      Observed a = of(0.3, first, kBytes), b = of(0.7, second, kBytes), c = of(0.9, kHigh, kBytes);
      EXPECT_EQ(reference_at(a.program, 0) == nullptr, first == kOtherHigh);
      EXPECT_EQ(settle(a, b), Settled::kLearned);
      EXPECT_EQ(settle(b, c), Settled::kKnown);
      const std::vector<NoiseWord> noise = noise_of(b, c);
      ASSERT_EQ(noise.size(), 1u);
      EXPECT_EQ(noise[0].word, 0u);
      EXPECT_EQ(noise[0].bytes & 0x0F, 0) << "the number is none";
      settle_noise(c.program, {&b.program}, noise, PaddingKnowledge(), 1);
      EXPECT_EQ(static_cast<std::uint32_t>(bound(c, {0.5})[0]), bits_of(0.5F));
      EXPECT_TRUE(c.program.statics.empty()) << "nothing else needs that memory";
    }
  }
}

TEST(Numbers, MayLookLikeAddressesOfNobody) {
  const auto of = [](double rate) {
    RecordBuilder r;
    r.record().segments.push_back({kWeight, std::uint64_t{0xFFFF} << 16});
    r.launch(function_with(1, "f", {16}), {bits_of(static_cast<float>(rate)) | kWeight, 7});
    return with(symbolise(r.record()), {rate});
  };
  Observed a = of(0.3), b = of(0.7);
  EXPECT_EQ(a.program.strays.size(), 1u);
  EXPECT_EQ(settle(a, b), Settled::kLearned);
  EXPECT_TRUE(a.program.strays.empty() && b.program.strays.empty());
  EXPECT_TRUE(compare(a.program, b.program).noise.empty());
  EXPECT_EQ(bound(b, {0.3}), bound(of(0.3), {}));
}

// An address stays one, whatever its lower half.
TEST(Numbers, LeaveAddresses) {
  const auto of = [](std::uint64_t address, double rate) {
    RecordBuilder r;
    r.before(kWeight, 512).input(kWeight + 4096, 512).input(address, 512);
    r.launch(function_with(1, "f", {8, 8}), {address, kWeight});
    return with(symbolise(r.record()), {rate});
  };
  Observed a = of(kWeight + 8192, 0.3), b = of(kWeight + 16384, 0.7);
  EXPECT_EQ(settle(a, b), Settled::kKnown);
  EXPECT_EQ(compare(a.program, b.program).difference, Difference::kNone);
  EXPECT_EQ(symbol_at(b.program, 0), "input 1 + 0");
}

// Kernels that are handed numbers in all ways, at random: what a replay puts there is what the call would.
class RandomCalls {
 public:
  explicit RandomCalls(unsigned seed) : random_(seed) {
    const std::size_t words = 2 * (1 + pick(4));
    for (std::size_t i = 0; i < 2 * words; ++i)
      lanes_.push_back({static_cast<Lane::Kind>(pick(4)), pick(kNumbers), pick(3)});
    for (std::size_t i = 0; i < words; ++i) whole_.push_back(pick(6) == 0);
  }
  Numbers next() {
    Numbers numbers = last_;
    for (double& number : numbers) {
      if (pick(3) == 0) number = number_at_random();
    }
    if (pick(4) == 0) numbers[0] = numbers[1];  // alike for a while
    if (pick(8) == 0) numbers[2] = 0;
    return last_ = numbers;
  }
  // A call: its words as they are, with leftovers at random, and which of their bytes are none.
  Observed call(const Numbers& numbers, std::vector<std::uint64_t>& real) {
    std::vector<std::uint64_t> words;
    real.clear();
    for (std::size_t i = 0; i < whole_.size(); ++i) {
      const Lane &first = lanes_[2 * i], &last = lanes_[2 * i + 1];
      if (whole_[i]) {
        words.push_back(bits_of(numbers[first.number]));
        real.push_back(~std::uint64_t{0});
        continue;
      }
      words.push_back(half(first, numbers) | half(last, numbers) << 32);
      real.push_back((first.kind != Lane::kLeftover ? 0xFFFF'FFFFu : 0) |
                     (last.kind != Lane::kLeftover ? 0xFFFF'FFFFull << 32 : 0));
    }
    RecordBuilder r;
    r.before(kWeight, std::uint64_t{0xFFFF} << 16);
    r.launch(function_with(1, "f", {static_cast<std::uint32_t>(8 * words.size())}), words);
    return with(symbolise(r.record()), numbers);
  }

 private:
  static constexpr unsigned kNumbers = 4;
  struct Lane {
    enum Kind : std::uint8_t { kConstant, kNumber, kOther, kLeftover } kind;
    unsigned number, form;
  };

  unsigned pick(unsigned below) { return static_cast<unsigned>(random_() % below); }
  double number_at_random() {
    const double common[] = {0.5, 0.25, 1.0, 2.0, 0.1, 1e-4, 3e-3};
    return pick(3) == 0 ? common[pick(7)] : static_cast<double>(1 + pick(100'000)) / 65'537;
  }
  std::uint64_t half(const Lane& lane, const Numbers& numbers) {
    const double number = numbers[lane.number];
    if (lane.kind == Lane::kConstant) return 17 + lane.number;
    if (lane.kind == Lane::kLeftover) return pick(2) == 0 ? kWeight >> 32 : pick(3);
    if (lane.form == 0 || lane.kind == Lane::kNumber) return bits_of(static_cast<float>(number));
    return lane.form == 1 ? bits_of(1.0F / static_cast<float>(number)) : bits_of(static_cast<float>(1.0 / number));
  }

  std::mt19937 random_;
  std::vector<Lane> lanes_;
  std::vector<bool> whole_;
  Numbers last_ = Numbers(kNumbers, 0.75);
};

// As the controller does it, but that no shadow refutes what was taken for padding: none of it may be a number.
TEST(Numbers, AreRightInRandomCalls) {
  std::size_t replays = 0, wrong = 0, taken_for_padding = 0;
  for (unsigned seed = 0; seed < 10000; ++seed) {
    RandomCalls calls(seed);
    std::vector<std::uint64_t> real;
    Observed last = calls.call(calls.next(), real);
    bool proven = false;
    for (int step = 0; step < 40; ++step) {
      const Numbers numbers = calls.next();
      Observed now = calls.call(numbers, real);
      const std::vector<std::uint64_t> words = bound(now, {});
      if (proven && fit(last, numbers) == NumbersFit::kYes) {
        ++replays;
        const std::vector<std::uint64_t> replayed = bound(last, numbers);
        for (std::size_t i = 0; i < words.size(); ++i) wrong += ((replayed[i] ^ words[i]) & real[i]) != 0;
        continue;
      }
      const Settled settled = settle(last, now);
      if (settled == Settled::kUnlike) {
        proven = false;
      } else {
        for (const NoiseWord& noise : noise_of(last, now)) {
          std::uint64_t bytes = 0;
          for (int byte = 0; byte < 8; ++byte) bytes |= (noise.bytes >> byte & 1) != 0 ? 0xFFull << 8 * byte : 0;
          taken_for_padding += (bytes & real[noise.word]) != 0;
        }
        proven = settled == Settled::kKnown;
      }
      last = std::move(now);
    }
  }
  EXPECT_GT(replays, 20'000u);
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(taken_for_padding, 0u);
}

TEST(Numbers, HaveFormsThatCanBeRead) {
  EXPECT_FALSE(is_number_form(0));
  EXPECT_FALSE(is_number_form(NumberForm{1, 0, 1}.packed()));
  EXPECT_FALSE(is_number_form(1u << 24));
  EXPECT_FALSE(is_number_form(0xFF));
  EXPECT_TRUE(is_number_form(NumberForm{1, 2, 0}.packed()));
  EXPECT_TRUE(is_number_form(NumberForm{0, 0, 3}.packed()));
  EXPECT_EQ(number_bits(NumberForm{4, 0, 0}.packed(), {0.5}), 0u) << "a number that is missing";
}

}  // namespace
}  // namespace grape::program
