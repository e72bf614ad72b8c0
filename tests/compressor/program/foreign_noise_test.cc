// What a run of an earlier process may tell of padding, and what it may not.
#include <gtest/gtest.h>

#include "compressor/program/padding.h"
#include "compressor/program/prove.h"
#include "compressor/program/symbolise.h"
#include "tests/compressor/program/record_builder.h"

namespace grape::program {
namespace {

constexpr std::uint64_t kWeight = 0x7f0000000000, kOther = 0x7f0000010000;
constexpr std::uint64_t kHarmlessAll = 0x7e0000000000;                    // 4 GiB of it
constexpr std::uint64_t kHere = 0x7f9fca877ee0, kThere = 0x7fc1311dee00;  // the same function, in two processes
constexpr std::uint64_t kNowhere = 0x7fffffff0000, kCode = 0x7f00cafe0000, kData = 0x1cafe000;

std::uint64_t handle_of(const std::string& name) { return static_cast<std::uint64_t>(name.front()); }

// Launches of a kernel that takes a pointer and a struct of three words, each with another first word of these.
Program run(const std::vector<std::uint64_t>& firsts, const std::string& name = "f") {
  RecordBuilder r;
  r.before(kWeight, 512).before(kOther, 512);
  for (const std::uint64_t first : firsts)
    r.launch(function_with(handle_of(name), name, {8, 24}), {kWeight, first, 2, 3});
  r.record().segments = {{kNowhere, 4096}};
  return symbolise(r.record());
}

HostPlace place_of(std::uint64_t address) {
  if (address == kCode) return HostPlace::kCode;
  return address == kData ? HostPlace::kData : HostPlace::kNone;
}

ForeignNoise foreign_noise_of(const Program& own, const Program& earlier) {
  const Comparison comparison = compare(own, earlier);
  EXPECT_EQ(comparison.difference, Difference::kNone);
  return foreign_noise(own, earlier, comparison.noise, place_of);
}

// As the controller does it with an observed call of a process, and an earlier one's: is the call enough?
bool observe(PaddingKnowledge& knowledge, const Program& own, const Program& earlier) {
  const ForeignNoise noise = foreign_noise_of(own, earlier);
  knowledge.note_call(own, noise);
  return knowledge.unsettled(own, noise).empty();
}

TEST(ForeignNoise, TellsNumbersFromAddresses) {
  const ForeignNoise plain = foreign_noise_of(run({0x0102}), run({0x0302}));
  EXPECT_EQ(plain.plain, (std::vector<NoiseWord>{{1, 0b10}}));
  EXPECT_TRUE(plain.addresses.empty() && plain.replaced.empty());
  const ForeignNoise own = foreign_noise_of(run({kOther + 8}), run({7}));
  EXPECT_TRUE(own.plain.empty());
  EXPECT_EQ(own.addresses, (std::vector<NoiseWord>{{1, 0xf5}}));
  EXPECT_EQ(own.replaced, (std::vector<NoiseWord>{{1, 0xf0}})) << "the lower half stays this process's";
  const ForeignNoise theirs = foreign_noise_of(run({7}), run({kOther + 8}));
  EXPECT_EQ(theirs.addresses, own.addresses);
  EXPECT_TRUE(theirs.replaced.empty()) << "here it is no address";
}

// Memory that was given back, in this process, although the earlier one had the same word.
TEST(ForeignNoise, AStrayOfThisProcessIsReplaced) {
  Program earlier = run({kNowhere + 8});
  earlier.strays.clear();
  EXPECT_EQ(foreign_noise_of(run({kNowhere + 8}), earlier).replaced, (std::vector<NoiseWord>{{1, 0xf0}}));
}

TEST(ForeignNoise, CodeOfTheHostIsEachProcesss) {
  const ForeignNoise noise = foreign_noise_of(run({kCode}), run({kThere}));
  EXPECT_TRUE(noise.plain.empty() && noise.addresses.empty());
}

TEST(ForeignNoise, AddressesKeepTheirLowerHalf) {
  PaddingKnowledge knowledge;
  for (const std::uint64_t there : {kThere, std::uint64_t{7}}) {
    Program own = run({kOther + 5});
    const ForeignNoise noise = foreign_noise_of(own, run({there}));
    EXPECT_EQ(settle_noise(own, {}, noise.replaced, knowledge, kHarmlessAll), (std::vector<NoiseWord>{{1, 0xf0}}));
    EXPECT_EQ(own.words[1], kHarmlessAll | (static_cast<std::uint32_t>(kOther) + 5)) << "whatever the other one's";
  }
}

TEST(ForeignNoise, NumbersAreTriedWithCare) {
  PaddingKnowledge knowledge;
  Program own = run({kHere, 0x9000100000009, kData, 0x0fedcba987654321});
  const ForeignNoise noise = foreign_noise_of(own, run({kThere, 0x9000100000005, 0x2cafe000, 0x0fedcba912345678}));
  const std::vector<NoiseWord> tried = settle_foreign_noise(own, noise, knowledge, place_of, kHarmlessAll);
  EXPECT_EQ(tried.size(), 4u);
  const auto first = [&own](std::size_t launch) { return own.words[own.nodes[launch].words_at + 1]; };
  EXPECT_EQ(first(0) >> 32, kHarmlessAll >> 32);
  EXPECT_EQ(first(1), 0x9000100000004u) << "smaller, not the other one";
  EXPECT_EQ(first(2) >> 32, kHarmlessAll >> 32) << "memory of the process";
  EXPECT_EQ(first(3), 0x0fedcba912345678u);
}

TEST(ForeignNoise, WhatIsEachProcesssIsNotTried) {
  PaddingKnowledge knowledge;
  for (int i = 0; i < 2; ++i) observe(knowledge, run({kHere}), run({kThere}));
  Program own = run({kHere});
  const ForeignNoise noise = foreign_noise_of(own, run({kThere}));
  EXPECT_TRUE(settle_foreign_noise(own, noise, knowledge, place_of, kHarmlessAll).empty());
  EXPECT_EQ(own.words[1], kHere);
}

TEST(ForeignNoise, OneShadowReplayIsEnough) {
  PaddingKnowledge knowledge;
  Program own = run({kHere});
  const ForeignNoise noise = foreign_noise_of(own, run({kThere}));
  EXPECT_FALSE(knowledge.unsettled(own, noise).empty());
  knowledge.confirm(own, settle_foreign_noise(own, noise, knowledge, place_of, kHarmlessAll));
  EXPECT_TRUE(knowledge.unsettled(own, noise).empty());
  EXPECT_FALSE(knowledge.unknown(own, noise.plain).empty()) << "of two runs of one process";
}

TEST(ForeignNoise, OneCallIsEnoughWhereNothingDiffers) {
  PaddingKnowledge knowledge;
  EXPECT_TRUE(observe(knowledge, run({kHere}), run({kHere})));
}

TEST(ForeignNoise, WhatIsTheSameInTwoCallsIsTheProcesss) {
  PaddingKnowledge knowledge;
  EXPECT_FALSE(observe(knowledge, run({kHere}), run({kThere})));
  EXPECT_FALSE(observe(knowledge, run({kHere}, "g"), run({kThere}, "g"))) << "another kernel";
  EXPECT_TRUE(observe(knowledge, run({kHere, kHere}), run({kThere, kThere}))) << "of whichever program";
  EXPECT_EQ(knowledge.known(function_with(handle_of("g"), "g", {})).count(1), 0u);
  EXPECT_EQ(knowledge.known(function_with(handle_of("f"), "f", {})).at(1).own, 0b11111) << "the bytes that differ";
}

TEST(ForeignNoise, HowOftenAKernelIsLaunchedIsNoEvidence) {
  PaddingKnowledge knowledge;
  EXPECT_FALSE(observe(knowledge, run({kHere, kHere, kHere}), run({kThere, kThere, kThere})));
}

TEST(ForeignNoise, WhatVariesIsNobodysOwn) {
  PaddingKnowledge by_call, by_launch;
  EXPECT_FALSE(observe(by_call, run({kHere}), run({kThere})));
  EXPECT_FALSE(observe(by_call, run({kHere + 0x100}), run({kThere})));
  EXPECT_FALSE(observe(by_call, run({kHere + 0x100}), run({kThere}))) << "though this time it was the same";
  const PaddingKnowledge::Word word = by_call.known(function_with(handle_of("f"), "f", {})).at(1);
  EXPECT_EQ(word.varies, 0b10);
  EXPECT_EQ(word.own & 0b11101, 0b11101) << "of the other bytes one knows";
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(observe(by_launch, run({kHere, kHere + 1}), run({kThere, kThere})));
}

TEST(ForeignNoise, PaddingThatShadowReplaysShowedNeedsNoSecondCall) {
  PaddingKnowledge knowledge;
  knowledge.confirm(run({1}), {{1, 0b11111}});
  EXPECT_TRUE(observe(knowledge, run({kHere}), run({kThere})));
  EXPECT_FALSE(observe(knowledge, run({kOther + 8}), run({7}))) << "of an address the upper half was not tried";
  knowledge.confirm(run({1}), {{1, 0xff}});
  EXPECT_TRUE(observe(knowledge, run({kOther + 8}), run({7})));
}

// An address in one of the processes, and none in the other: that both keep theirs says nothing of it.
TEST(ForeignNoise, AddressesAreNeverTheProcesss) {
  PaddingKnowledge knowledge;
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(observe(knowledge, run({7}), run({kOther + 8})));
}

TEST(ForeignNoise, IsKnownFromElsewhere) {
  PaddingKnowledge knowledge;
  knowledge.set_source([](const FunctionInfo& function) {
    PaddingKnowledge::Words words;
    if (function.name == "f") words[1].own = 0b11111;
    if (function.name == "g") words[1] = {{}, 0b11111, 0b00010};
    return words;
  });
  EXPECT_TRUE(observe(knowledge, run({kHere}), run({kThere})));
  EXPECT_FALSE(observe(knowledge, run({kHere}, "g"), run({kThere}, "g"))) << "once it was not so";
  EXPECT_FALSE(observe(knowledge, run({kHere + 0x1'0000}), run({kThere}))) << "not so here";
  // Padding by evidence of shadow replays is another matter.
  EXPECT_FALSE(knowledge.unknown(run({1}), {{1, 0b1}}).empty());
}

TEST(ForeignNoise, ForgottenWhenModulesAreUnloaded) {
  PaddingKnowledge knowledge;
  observe(knowledge, run({kHere}), run({kThere}));
  knowledge.set_module_epoch(3);
  EXPECT_FALSE(observe(knowledge, run({kHere}), run({kThere})));
  EXPECT_TRUE(observe(knowledge, run({kHere}), run({kThere})));
}

}  // namespace
}  // namespace grape::program
