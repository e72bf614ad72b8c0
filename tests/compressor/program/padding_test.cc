// What shadow replays teach about padding.
#include "compressor/program/padding.h"

#include <gtest/gtest.h>

#include <thread>

#include "compressor/program/prove.h"
#include "compressor/program/symbolise.h"
#include "tests/compressor/program/record_builder.h"

namespace grape::program {
namespace {

constexpr std::uint64_t kWeight = 0x7f0000000000, kOther = 0x7f0000010000, kHarmless = 0x7fff000;
constexpr std::uint64_t kHarmlessAll = 0x7e0000000000;  // 4 GiB of it

// One launch of a kernel that takes a pointer and a struct of three words.
Program run(const std::vector<std::uint64_t>& structure, std::uint64_t handle = 1, const std::string& name = "f",
            std::size_t launches = 1) {
  RecordBuilder r;
  r.before(kWeight, 512).before(kOther, 512);
  std::vector<std::uint64_t> words = {kWeight};
  words.insert(words.end(), structure.begin(), structure.end());
  for (std::size_t i = 0; i < launches; ++i) r.launch(function_with(handle, name, {8, 24}), words);
  return symbolise(r.record());
}

std::vector<NoiseWord> noise_of(const std::vector<Program>& runs) {
  std::vector<NoiseWord> all;
  for (std::size_t i = 1; i < runs.size(); ++i) {
    const Comparison comparison = compare(runs[0], runs[i]);
    EXPECT_EQ(comparison.difference, Difference::kNone);
    add_noise(all, runs[0], runs[i], comparison.noise);
  }
  return all;
}

// As the controller does it with two runs: true if the second one's program may be replayed.
bool prove(PaddingKnowledge& knowledge, const Program& first, Program second, bool equal = true) {
  const std::vector<NoiseWord> noise = noise_of({second, first});
  const std::vector<NoiseWord> tried = settle_noise(second, {&first}, noise, knowledge, kHarmless);
  if (equal) {
    knowledge.confirm(second, tried);
  } else {
    knowledge.refute(second, tried);
  }
  return equal && knowledge.unknown(second, noise).empty();
}

TEST(AddNoise, BytesOfAllRuns) {
  const Program a = run({1, 2, 3}), b = run({1, 0x0200, 3}), c = run({0x01000001, 2, 3}), d = run({1, 2, kOther + 8});
  EXPECT_EQ(noise_of({a, b}), (std::vector<NoiseWord>{{2, 0b11}}));
  EXPECT_EQ(noise_of({a, b, c}), (std::vector<NoiseWord>{{1, 0b1000}, {2, 0b11}}));
  EXPECT_EQ(noise_of({a, d, b, a}), (std::vector<NoiseWord>{{2, 0b11}, {3, 0xf5}}))
      << "of what may be an address the upper half, and what differs of the lower one";
  std::vector<NoiseWord> all = noise_of({a, c});
  add_noise(all, a, run({2, 2, 3}), {1});
  EXPECT_EQ(all, (std::vector<NoiseWord>{{1, 0b1001}})) << "one word, the bytes of both";
}

TEST(Padding, IsDescribed) {
  EXPECT_EQ(describe(run({1, 2, 3}, 1, "f", 2), {6, 0x0f}), "bytes 0x0f of word 2 of kernel f (operation 1)");
}

TEST(Padding, OneCodeUnderSeveralHandlesIsOneKernel) {
  PaddingKnowledge knowledge;
  knowledge.set_identity([](const FunctionInfo& function) { return function.handle % 16 | 1; });
  EXPECT_FALSE(prove(knowledge, run({1, 2, 3}, 0x10), run({9, 2, 3}, 0x10)));
  EXPECT_TRUE(prove(knowledge, run({1, 2, 3}, 0x20), run({9, 2, 3}, 0x20)));
  EXPECT_FALSE(prove(knowledge, run({1, 2, 3}, 0x22), run({9, 2, 3}, 0x22))) << "another one's";
}

TEST(Padding, KnownAfterTwoShadowReplays) {
  PaddingKnowledge knowledge;
  EXPECT_FALSE(prove(knowledge, run({1, 2, 3}), run({9, 2, 3})));
  EXPECT_TRUE(prove(knowledge, run({1, 2, 3}), run({9, 2, 3})));
  EXPECT_TRUE(prove(knowledge, run({5, 2, 3}), run({6, 2, 3}))) << "known from here on, whatever the values";
  EXPECT_FALSE(prove(knowledge, run({5, 2, 3}), run({6, 7, 3}))) << "another word";
  EXPECT_TRUE(prove(knowledge, run({5, 2, 3}), run({5, 2, 3}))) << "no padding at all";
}

TEST(Padding, HowOftenAKernelIsLaunchedIsNoEvidence) {
  PaddingKnowledge knowledge;
  EXPECT_FALSE(prove(knowledge, run({1, 2, 3}, 1, "f", 8), run({9, 2, 3}, 1, "f", 8)));
}

TEST(Padding, ProgramsOfOneKernelLearnTogether) {
  PaddingKnowledge knowledge;
  EXPECT_FALSE(prove(knowledge, run({1, 2, 3}, 1, "f", 2), run({9, 2, 3}, 1, "f", 2)));
  EXPECT_TRUE(prove(knowledge, run({1, 2, 3}, 1, "f", 5), run({9, 2, 3}, 1, "f", 5)));
  EXPECT_FALSE(prove(knowledge, run({1, 2, 3}, 2, "f"), run({9, 2, 3}, 2, "f"))) << "another kernel";
  EXPECT_FALSE(prove(knowledge, run({1, 2, 3}, 1, "g"), run({9, 2, 3}, 1, "g"))) << "another name: another kernel";
  EXPECT_FALSE(prove(knowledge, run({1, 2, 3}, 1, "f"), run({9, 2, 3}, 1, "f"))) << "which took the handle's place";
}

// A small scalar behind a flag's padding, all in one word.
TEST(Padding, BytesOfAWordAreKnownOneByOne) {
  PaddingKnowledge knowledge;
  const auto word = [](std::uint64_t scalar, std::uint64_t garbage) {
    return run({scalar << 32 | garbage << 8 | 1, 0, 0});
  };
  EXPECT_FALSE(prove(knowledge, word(7, 0xabcd), word(7, 0x1234)));
  EXPECT_TRUE(prove(knowledge, word(7, 0xabcd), word(7, 0x1234)));
  EXPECT_FALSE(prove(knowledge, word(7, 0xabcd), word(8, 0x1234))) << "the scalar was the same all the time";
}

TEST(Padding, AShadowThatDiffersTakesTheNewBytesEvidence) {
  PaddingKnowledge knowledge;
  EXPECT_FALSE(prove(knowledge, run({1, 2, 3}), run({9, 2, 3})));
  EXPECT_FALSE(prove(knowledge, run({1, 2, 3}), run({9, 2, 3}), false));
  EXPECT_FALSE(prove(knowledge, run({1, 2, 3}), run({9, 2, 3}))) << "from the beginning";
  EXPECT_TRUE(prove(knowledge, run({1, 2, 3}), run({9, 2, 3})));
  EXPECT_FALSE(prove(knowledge, run({1, 2, 3}), run({9, 8, 3}), false));
  EXPECT_TRUE(prove(knowledge, run({1, 2, 3}), run({9, 2, 3}))) << "the new one was to blame";
  EXPECT_FALSE(prove(knowledge, run({1, 2, 3}), run({9, 2, 3}), false));
  EXPECT_FALSE(prove(knowledge, run({1, 2, 3}), run({9, 2, 3}))) << "there was no other to blame";
}

TEST(Padding, ForgottenWhenModulesAreUnloaded) {
  PaddingKnowledge knowledge;
  knowledge.set_module_epoch(3);
  prove(knowledge, run({1, 2, 3}), run({9, 2, 3}));
  knowledge.set_module_epoch(3);
  EXPECT_TRUE(prove(knowledge, run({1, 2, 3}), run({9, 2, 3})));
  knowledge.set_module_epoch(4);
  EXPECT_FALSE(prove(knowledge, run({1, 2, 3}), run({9, 2, 3})));
}

TEST(Padding, ManyThreads) {
  PaddingKnowledge knowledge;
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&knowledge, t] {
      for (std::uint64_t i = 0; i < 200; ++i) {
        prove(knowledge, run({1, 2, 3}, i % 7 + t), run({9, 2, 4}, i % 7 + t), i % 50 != 49);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(prove(knowledge, run({1, 2, 3}, 3), run({9, 2, 4}, 3)) ||
              prove(knowledge, run({1, 2, 3}, 3), run({9, 2, 4}, 3)));
}

TEST(SettleNoise, TheDonorThatTriesMost) {
  PaddingKnowledge knowledge;
  const Program first = run({0x0001, 2, 3}), second = run({0x0102, 2, 3});
  Program third = run({0x0103, 2, 3});
  const std::vector<NoiseWord> noise = noise_of({third, first, second});
  EXPECT_EQ(noise, (std::vector<NoiseWord>{{1, 0b11}}));
  EXPECT_EQ(settle_noise(third, {&first, &second}, noise, knowledge, kHarmless), noise);
  EXPECT_EQ(third.words[1], 0x0001u);

  // Once the low byte is known, one that tries the other.
  for (int i = 0; i < 2; ++i) knowledge.confirm(third, {{1, 0b01}});
  Program low = run({0x0103, 2, 3});
  const Program other = run({0x0203, 2, 3}), known = run({0x0188, 2, 3});
  EXPECT_EQ(settle_noise(low, {&known, &other}, noise_of({low, known, other}), knowledge, kHarmless),
            (std::vector<NoiseWord>{{1, 0b10}}));
  EXPECT_EQ(low.words[1], 0x0203u);
}

TEST(SettleNoise, WhereNoDonorDiffersNothingIsTried) {
  PaddingKnowledge knowledge;
  Program program = run({1, 2, 3});
  EXPECT_TRUE(settle_noise(program, {}, {{1, 0xff}}, knowledge, kHarmless).empty());
  const Program same = program;
  EXPECT_TRUE(settle_noise(program, {&same}, {{1, 0xff}}, knowledge, kHarmless).empty());
  EXPECT_EQ(program.words, same.words);
}

// Whatever held an address in any of the runs is never given one of live memory.
TEST(SettleNoise, WhatMightBeAPointerPointsToHarmlessMemory) {
  PaddingKnowledge knowledge;
  for (const int which : {0, 1, 2}) {
    std::vector<Program> runs = {run({5, 2, 3}), run({6, 2, 3}), run({7, 2, 3})};
    runs[static_cast<std::size_t>(which)] = run({kOther + 8, 2, 3});
    const std::vector<NoiseWord> noise = noise_of({runs[2], runs[0], runs[1]});
    EXPECT_EQ(noise, (std::vector<NoiseWord>{{1, 0xf5}}));
    EXPECT_EQ(settle_noise(runs[2], {&runs[0], &runs[1]}, noise, knowledge, kHarmless),
              (std::vector<NoiseWord>{{1, 0xff}}));
    EXPECT_EQ(runs[2].words[1], kHarmless);
    EXPECT_EQ(symbol_at(runs[2], 1), "plain " + std::to_string(kHarmless));
    EXPECT_EQ(symbol_at(runs[2], 0), "static 0 + 0");
    ASSERT_EQ(runs[2].statics.size(), 1u) << "what only padding pointed to is no part of the program";
    EXPECT_EQ(runs[2].statics[0].address, kWeight);
    // Also when it is known to be padding.
    for (int i = 0; i < 2; ++i) knowledge.confirm(runs[2], noise);
    Program again = run({kOther, 2, 3});
    const Program donor = run({8, 2, 3});
    settle_noise(again, {&donor}, noise_of({again, donor}), knowledge, kHarmless);
    EXPECT_EQ(again.words[1], kHarmless);
  }
}

// Also what points to memory that was given back: it may be somebody's when the program is replayed.
TEST(SettleNoise, StrayAddressesPointToHarmlessMemory) {
  PaddingKnowledge knowledge;
  const auto stray_run = [](std::uint64_t word) {
    RecordBuilder r;
    r.before(kWeight, 512).launch(function_with(1, "f", {8, 24}), {kWeight, word, 2, 3});
    r.record().segments = {{kWeight, 1 << 20}};
    return symbolise(r.record());
  };
  for (const bool own : {false, true}) {
    Program program = stray_run(own ? kOther : 7);
    const Program donor = stray_run(own ? 7 : kOther);
    const std::vector<NoiseWord> noise = noise_of({program, donor});
    EXPECT_EQ(noise, (std::vector<NoiseWord>{{1, 0xf5}}));
    EXPECT_EQ(settle_noise(program, {&donor}, noise, knowledge, kHarmless), (std::vector<NoiseWord>{{1, 0xff}}));
    EXPECT_EQ(program.words[1], kHarmless);
  }
  // The same one in both runs.
  Program program = stray_run(kOther);
  const Program donor = program;
  const std::vector<NoiseWord> noise = noise_of({program, donor});
  EXPECT_EQ(noise, (std::vector<NoiseWord>{{1, 0xf0}}));
  EXPECT_FALSE(prove(knowledge, donor, program)) << "not known yet";
  settle_noise(program, {&donor}, noise, knowledge, kHarmless);
  EXPECT_EQ(program.words[1], kHarmless);
  EXPECT_TRUE(prove(knowledge, donor, donor));
}

// A number of four bytes, and behind it the upper half of an address that somebody left there. If memory lies at what
// both make together it is taken for a symbol, in one of the runs or in both; with another number the kernel would go
// astray.
TEST(SettleNoise, ANumberBesideWhatMayBeAnAddressStays) {
  constexpr std::uint64_t kNumber = kOther & 0xffffffff, kLeft = 0x7fe400000000;
  const auto left_in = [&](const std::vector<std::uint64_t>& words, std::size_t own, std::uint64_t expected) {
    std::vector<Program> runs;
    std::vector<const Program*> donors;
    for (const std::uint64_t word : words) runs.push_back(run({word, 2, 3}));
    Program program = runs[own];
    std::vector<NoiseWord> noise;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      if (i == own) continue;
      donors.push_back(&runs[i]);
      add_noise(noise, program, runs[i], compare(program, runs[i]).noise);
    }
    EXPECT_EQ(noise, (std::vector<NoiseWord>{{1, 0xf0}}));
    PaddingKnowledge knowledge;
    EXPECT_EQ(settle_noise(program, donors, noise, knowledge, kHarmlessAll), noise);
    EXPECT_EQ(program.words[1], expected);
    EXPECT_TRUE(program.lows.empty());
    knowledge.confirm(program, noise);
    EXPECT_FALSE(knowledge.unknown(program, noise).empty());
    knowledge.confirm(program, noise);
    EXPECT_TRUE(knowledge.unknown(program, noise).empty());
  };
  for (const std::size_t own : {std::size_t{0}, std::size_t{1}}) {
    left_in({kOther, kLeft | kNumber}, own, kHarmlessAll | kNumber);
    left_in({kOther, kNumber, kLeft | kNumber}, own, kHarmlessAll | kNumber);
  }
}

TEST(SettleNoise, LowerHalvesThatDifferAreTriedAsTheyWere) {
  PaddingKnowledge knowledge;
  for (const bool own_is_address : {false, true}) {
    Program program = run({own_is_address ? kOther + 8 : 0x0500000007, 2, 3});
    const Program donor = run({own_is_address ? 0x0500000007 : kOther + 8, 2, 3});
    const std::vector<NoiseWord> noise = noise_of({program, donor});
    EXPECT_EQ(noise, (std::vector<NoiseWord>{{1, 0xf5}}));
    EXPECT_EQ(settle_noise(program, {&donor}, noise, knowledge, kHarmlessAll), noise);
    EXPECT_EQ(program.words[1], kHarmlessAll | (own_is_address ? 7 : 0x10008));
  }
}

// A program that was kept tells no lower halves: it was proven with them.
TEST(SettleNoise, LowerHalvesThatAreNotKnownCountAsTheSame) {
  PaddingKnowledge knowledge;
  Program program = run({7, 2, 3}), kept = run({kOther + 8, 2, 3});
  kept.lows.clear();
  const std::vector<NoiseWord> noise = noise_of({program, kept});
  EXPECT_EQ(noise, (std::vector<NoiseWord>{{1, 0xf0}}));
  EXPECT_EQ(settle_noise(program, {&kept}, noise, knowledge, kHarmlessAll), noise);
  EXPECT_EQ(program.words[1], kHarmlessAll | 7);
}

TEST(Padding, AStrayThatWasToBlameMayBeAPointer) {
  PaddingKnowledge knowledge;
  Program program = run({kHarmlessAll | 7, 2, 3});
  const FunctionInfo& function = program.functions.front();
  EXPECT_FALSE(knowledge.refute(program, {{1, 0xf0}})) << "no address";
  EXPECT_FALSE(knowledge.may_be_pointer(function, 1));
  program.strays = {1};
  EXPECT_TRUE(knowledge.refute(program, {{1, 0xf0}}));
  EXPECT_FALSE(knowledge.refute(program, {{1, 0xf0}})) << "known since";
  EXPECT_TRUE(knowledge.may_be_pointer(function, 1));
  EXPECT_FALSE(knowledge.may_be_pointer(function, 2));
}

// A list of pointers in a struct: launches with shorter lists have what the host left there, so that a pointer with a
// small lower half looks like a number. Where another launch's pointer follows a block that moves, it is none.
TEST(Padding, AWordThatFollowsABlockThatMovesIsAPointer) {
  constexpr std::uint64_t kBase = 0x7fe400000000, kBlock = 0x240000, kLeftThere = 0x1e8e;
  const auto list = [&](std::uint64_t gradient, std::uint64_t first, std::uint64_t second, std::uint32_t bytes) {
    RecordBuilder r;
    r.alloc(kBase + 0x900000, kBlock).alloc(gradient, kBlock);
    r.launch(function_with(2, "list", {8, bytes}), {kBase + 0x900000, kBase + 0x900000, 1, 0});
    r.launch(function_with(2, "list", {8, bytes}), {kBase + 0x900000, first, 2, 0});
    r.launch(function_with(2, "list", {8, bytes}), {kBase + 0x900000, second, 3, 0});
    r.free(kBase + 0x900000).free(gradient);
    return r;
  };
  const auto learns = [&](std::uint64_t before, std::uint64_t after, std::uint64_t elsewhere, std::uint32_t bytes) {
    PaddingKnowledge knowledge;
    auto first = list(before, before, elsewhere, bytes), last = list(after, after, elsewhere, bytes);
    const Program a = symbolise(first.record()), b = symbolise(last.record());
    const bool learned = knowledge.note_pointers(a, b);
    EXPECT_EQ(knowledge.may_be_pointer(b.functions.front(), 1), learned);
    EXPECT_FALSE(knowledge.may_be_pointer(b.functions.front(), 0)) << "no launch has a stray there";
    EXPECT_FALSE(knowledge.note_pointers(a, b)) << "known since";
    return learned;
  };
  constexpr std::uint64_t kThere = kBase + 0x20000000, kElsewhere = kBase + 0x30000000, kSmall = kBase + 0xfc0000;
  EXPECT_TRUE(learns(kThere, kElsewhere, kLeftThere, 24));
  EXPECT_FALSE(learns(kThere, kThere, kLeftThere, 24)) << "nothing moves";
  EXPECT_FALSE(learns(kThere, kThere + 0x100000000, kLeftThere, 24)) << "a number does not change with the upper half";
  EXPECT_FALSE(learns(kThere, kElsewhere, kLeftThere, 8)) << "nothing is doubted";
  EXPECT_FALSE(learns(kSmall, kElsewhere, kLeftThere, 24)) << "doubted itself";
}

TEST(Padding, WhereLowerHalvesAreNotKnownNothingIsLearned) {
  PaddingKnowledge knowledge;
  Program a = run({kOther, 2, 3}), b = run({kOther, 2, 3});
  a.strays = b.strays = {1};
  b.lows.front() += 512;
  EXPECT_FALSE(knowledge.note_pointers(a, b)) << "statics do not move";
  b.lows.clear();
  EXPECT_FALSE(knowledge.note_pointers(a, b));
}

TEST(SettleNoise, StaticsKeepTheirWords) {
  PaddingKnowledge knowledge;
  RecordBuilder a, b;
  for (RecordBuilder* r : {&a, &b}) {
    r->before(kWeight, 512).before(kOther, 512);
    r->launch(function_with(1, "f", {24, 8}), {r == &a ? kWeight + 4 : 7, 1, 2, kOther + 16});
  }
  Program program = symbolise(a.record());
  const Program donor = symbolise(b.record());
  EXPECT_EQ(symbol_at(program, 3), "static 1 + 16");
  settle_noise(program, {&donor}, noise_of({program, donor}), knowledge, kHarmless);
  EXPECT_EQ(symbol_at(program, 3), "static 0 + 16");
  ASSERT_EQ(program.statics.size(), 1u);
  EXPECT_EQ(program.statics[0].address, kOther);
}

TEST(Padding, WhatIsKnownFromElsewhere) {
  PaddingKnowledge knowledge;
  std::vector<std::string> asked;
  knowledge.set_source([&asked](const FunctionInfo& function) {
    asked.push_back(function.name);
    PaddingKnowledge::Words words;
    if (function.name == "f") words[1].seen = {2, 2, 2, 2, 2, 2, 2, 2};
    return words;
  });
  EXPECT_TRUE(prove(knowledge, run({1, 2, 3}), run({9, 2, 3}))) << "after one shadow replay";
  EXPECT_FALSE(prove(knowledge, run({1, 2, 3}), run({1, 2, 4}))) << "another word";
  EXPECT_FALSE(prove(knowledge, run({1, 2, 3}, 2, "g"), run({9, 2, 3}, 2, "g")));
  EXPECT_EQ(asked, (std::vector<std::string>{"f", "g"})) << "once each";
  // What it learned here is told with it.
  const PaddingKnowledge::Words f = knowledge.known(function_with(1, "f", {})),
                                g = knowledge.known(function_with(2, "g", {}));
  EXPECT_EQ(f.at(1).seen[0], 2);
  EXPECT_EQ(f.at(3).seen[0], 1);
  EXPECT_EQ(g.at(1).seen[0], 1);
  // After an unload the handle may be another kernel's: asked again.
  knowledge.set_module_epoch(7);
  EXPECT_TRUE(prove(knowledge, run({1, 2, 3}), run({9, 2, 3})));
  EXPECT_EQ(asked.size(), 3u);
}

}  // namespace
}  // namespace grape::program
