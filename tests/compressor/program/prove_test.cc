// What two runs may differ in, and what they may not.
#include "compressor/program/prove.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "compressor/program/symbolise.h"
#include "tests/compressor/program/record_builder.h"

namespace grape::program {
namespace {

constexpr std::uint64_t kWeight = 0x7f0000000000, kOther = 0x7f0000010000, kTemp = 0x7f0000020000;

// A small program with something of everything.
RecordBuilder model() {
  RecordBuilder r;
  r.before(kWeight, 512).before(kOther, 512).alloc(kTemp, 512);
  r.launch(function_with(1, "first", {8, 4, 24}), {kWeight, 3, kTemp, 5, 6}).attribute(4, {1, 0, 0, 0});
  r.copy(kTemp, kWeight, 64);
  r.memset(kTemp, 0, 16);
  r.launch(function_with(2, "second", {8}), {kTemp}).free(kTemp);
  return r;
}

Comparison comparison(const RecordBuilder& a, const RecordBuilder& b) {
  return compare(symbolise(a.record()), symbolise(b.record()));
}

std::string described(const RecordBuilder& a, const RecordBuilder& b) {
  const Program one = symbolise(a.record()), other = symbolise(b.record());
  return describe(compare(one, other), one, other, nullptr).text;
}

using Change = std::function<void(RegionRecord&)>;

// Against the model, in both directions.
Difference difference(const Change& change, std::uint32_t* node = nullptr) {
  RecordBuilder changed = model();
  change(changed.record());
  const Comparison forth = comparison(model(), changed), back = comparison(changed, model());
  EXPECT_EQ(forth.difference, back.difference);
  EXPECT_EQ(forth.node, back.node);
  if (node != nullptr) *node = forth.node;
  return forth.difference;
}

TEST(Compare, TheSameRunTwiceIsTheSame) {
  const Comparison result = comparison(model(), model());
  EXPECT_EQ(result.difference, Difference::kNone);
  EXPECT_TRUE(result.noise.empty());
}

TEST(Compare, MemoryThatMovedIsTheSame) {
  RecordBuilder moved;
  const std::uint64_t temp = kTemp + 0x100000;
  moved.before(kWeight, 512).before(kOther, 512).alloc(temp, 512);
  moved.launch(function_with(1, "first", {8, 4, 24}), {kWeight, 3, temp, 5, 6}).attribute(4, {1, 0, 0, 0});
  moved.copy(temp, kWeight, 64).memset(temp, 0, 16).launch(function_with(2, "second", {8}), {temp}).free(temp);
  const Comparison result = comparison(model(), moved);
  EXPECT_EQ(result.difference, Difference::kNone);
  EXPECT_TRUE(result.noise.empty());
}

// Equal in both runs, and yet an address that will be somebody else's: what uses it shows in the shadow.
TEST(Compare, AddressesOfMemoryThatIsNobodysAreNoise) {
  const auto run = [](std::uint64_t stray) {
    RecordBuilder r;
    r.before(kWeight, 512).alloc(kTemp, 512);
    r.launch(function_with(1, "first", {8, 32}), {kWeight, stray, 7, kTemp + 8192, stray + 8}).free(kTemp);
    r.record().segments = {{kWeight, 0x1000}, {kTemp, 0x10000}};
    return r;
  };
  const std::uint64_t dead = kTemp + 4096;
  const Program program = symbolise(run(dead).record());
  EXPECT_EQ(program.strays, (std::vector<std::uint32_t>{1, 3, 4}));
  const Comparison result = comparison(run(dead), run(dead));
  EXPECT_EQ(result.difference, Difference::kNone);
  EXPECT_EQ(result.noise, (std::vector<std::uint32_t>{1, 3, 4}));
  const auto alive = [](std::uint64_t address) {
    return symbolise(RecordBuilder().before(kWeight, 512).launch(plain_kernel(1, 1), {address}).record()).strays;
  };
  EXPECT_TRUE(alive(kWeight + 8).empty());
  EXPECT_TRUE(alive(kOther).empty()) << "no device memory at all";
}

// The upper half of an address, left behind a number, makes an address where memory lies at it: no symbol, if another
// launch has a number there, or no other launch tells.
TEST(Symbolise, ANumberBesideAnUpperHalfIsNoSymbol) {
  constexpr std::uint64_t kBase = 0x7fe400000000, kBytes = 1 << 28;
  std::uint32_t known = 0;
  const auto strays = [&](std::uint64_t word, std::uint64_t elsewhere, bool twice, std::uint32_t bytes = 24) {
    RecordBuilder r;
    r.alloc(kBase, kBytes);
    const auto launch = [&](std::uint64_t value) {
      std::vector<std::uint64_t> words = {kBase + 0x2000000, value};
      words.resize(1 + (bytes + 7) / 8, 0);
      r.launch(function_with(1, "f", {8, bytes}), words);
    };
    launch(word);
    if (twice) launch(elsewhere);
    r.free(kBase);
    const Program program =
        symbolise(r.record(), [&](const FunctionInfo&, std::uint32_t place) { return place == known; });
    EXPECT_EQ(program.lows.size(), program.references.size());
    EXPECT_EQ(program.words[1], program.strays.empty() ? word - kBase : word);
    return program.strays;
  };
  const std::vector<std::uint32_t> none, the_word = {1};
  EXPECT_EQ(strays(kBase + 768, 768, true), the_word);
  EXPECT_EQ(strays(kBase + 0x123456, 0x7ffe00000000 | 768, true), the_word);
  EXPECT_EQ(strays(kBase + 768, kBase + 0x4000000, true), none) << "addresses in both launches";
  EXPECT_EQ(strays(kBase + 768, kBase + 512, true), (std::vector<std::uint32_t>{1, 5})) << "left behind both numbers";
  EXPECT_EQ(strays(kBase + 0x123456, kBase + 0x123456, true), (std::vector<std::uint32_t>{1, 5}));
  EXPECT_EQ(strays(kBase, kBase, true), none) << "where a block begins";
  EXPECT_EQ(strays(kBase + 768, 0, true), none) << "null is a pointer";
  EXPECT_EQ(strays(kBase + 0x2000000, 768, true), the_word) << "a stride of 32 MB";
  EXPECT_EQ(strays(kBase + 0x1220000, kBase + 0x910000, true), (std::vector<std::uint32_t>{1, 5}))
      << "strides of 19 and 9.5 MB";
  EXPECT_EQ(strays(kBase + 0x4000000, 768, true), none) << "too large for a number";
  EXPECT_EQ(strays(kBase + 768, 0, false), the_word);
  EXPECT_EQ(strays(kBase + 0x23456, 0, false), the_word);
  EXPECT_EQ(strays(kBase + 0x123456, 0, false), the_word);
  EXPECT_EQ(strays(kBase + 0x1234560, 0, false), none);
  EXPECT_EQ(strays(kBase + 768, 768, true, 8), none) << "a pointer, and no struct";
  known = 1;
  EXPECT_EQ(strays(kBase + 768, 768, true), none) << "known to be a pointer";
  known = 2;
  EXPECT_EQ(strays(kBase + 768, 768, true), the_word) << "another word is";
}

TEST(Compare, PointersToMemoryThatIsNobodysAreRefused) {
  const auto run = [](std::uint64_t pointer) {
    RecordBuilder r;
    r.before(kWeight, 512).launch(function_with(1, "first", {8, 8}), {kWeight, pointer});
    r.record().segments = {{kWeight, 0x1000}};
    return r;
  };
  const RecordBuilder stray = run(kWeight + 2048);
  EXPECT_EQ(comparison(run(kWeight + 8), run(kWeight + 8)).difference, Difference::kNone);
  EXPECT_EQ(comparison(stray, stray).difference, Difference::kStray) << "what it reaches is not known";
}

TEST(Compare, CopiesOfMemoryThatIsNobodysAreRefused) {
  const auto run = [](std::uint64_t from) {
    RecordBuilder r;
    r.before(kWeight, 512).copy(kWeight, from, 64);
    r.record().segments = {{kWeight, 0x1000}};
    return r;
  };
  const RecordBuilder stray = run(kWeight + 2048);
  EXPECT_EQ(comparison(run(kWeight + 256), run(kWeight + 256)).difference, Difference::kNone);
  EXPECT_EQ(comparison(stray, stray).difference, Difference::kStray);
  EXPECT_NE(described(stray, stray)
                .find("uses device memory that was given back, or that PyTorch's allocator does not report"),
            std::string::npos)
      << described(stray, stray);
}

TEST(Compare, NodesMustBeTheSame) {
  std::uint32_t node = 0;
  EXPECT_EQ(difference([](RegionRecord& r) { r.nodes.pop_back(); }, &node), Difference::kNodeCount);
  EXPECT_EQ(node, 3u);
  EXPECT_EQ(difference([](RegionRecord& r) { r.nodes.erase(r.nodes.begin() + 1); }, &node), Difference::kNodeCount);
  EXPECT_EQ(node, 1u);
  EXPECT_EQ(difference([](RegionRecord& r) { std::swap(r.nodes[1].kind, r.nodes[2].kind); }, &node),
            Difference::kNodeKind);
  EXPECT_EQ(node, 1u);
  EXPECT_EQ(difference([](RegionRecord& r) { r.functions[1].name = "third"; }, &node), Difference::kFunction);
  EXPECT_EQ(node, 3u);
  // The same name, of a module that was loaded anew.
  EXPECT_EQ(difference([](RegionRecord& r) { r.functions[0].handle = 9; }, &node), Difference::kFunction);
  EXPECT_EQ(node, 0u);
}

TEST(Compare, LaunchesMustHaveTheSameShape) {
  const Change changes[] = {
      [](RegionRecord& r) { r.nodes[3].grid.z = 2; },
      [](RegionRecord& r) { r.nodes[3].block.y = 2; },
      [](RegionRecord& r) { r.nodes[3].shared_bytes = 2; },
      [](RegionRecord& r) { r.nodes[3].cooperative = true; },
      [](RegionRecord& r) { r.nodes[3].packed = true; },
      [](RegionRecord& r) { r.nodes[3].parameter_bytes = 4; },
      [](RegionRecord& r) {
        r.nodes[3].attribute_count = 1;
        r.nodes[3].attributes_at = 0;
      },
  };
  for (const Change& change : changes) {
    std::uint32_t node = 0;
    EXPECT_EQ(difference(change, &node), Difference::kLaunchShape) << &change - changes;
    EXPECT_EQ(node, 3u);
  }
  EXPECT_EQ(difference([](RegionRecord& r) { r.attributes[8] = 2; }), Difference::kLaunchShape);
  EXPECT_EQ(difference([](RegionRecord& r) { r.attributes[50] = 2; }), Difference::kNone);  // behind the value
}

TEST(Compare, TheOrderMustBeTheSame) {
  std::uint32_t node = 0;
  EXPECT_EQ(difference([](RegionRecord& r) { r.after[1] = 0; }, &node), Difference::kOrder);
  EXPECT_EQ(node, 2u);
  EXPECT_EQ(difference([](RegionRecord& r) { r.nodes[3].after_count = 0; }, &node), Difference::kOrder);
  EXPECT_EQ(difference([](RegionRecord& r) { r.nodes[2].stream = 1; }, &node), Difference::kOrder);
  EXPECT_EQ(node, 2u);
  // Another handle for the one stream is no difference.
  EXPECT_EQ(difference([](RegionRecord& r) { r.streams[0] = 99; }), Difference::kNone);
}

TEST(Compare, BlocksMustBeTheSame) {
  const auto resize = [](std::uint64_t bytes) { return [bytes](RegionRecord& r) { r.block_events[0].bytes = bytes; }; };
  EXPECT_EQ(difference(resize(1024)), Difference::kBlocks);
  EXPECT_EQ(difference([](RegionRecord& r) { r.block_events.pop_back(); }), Difference::kBlocks);  // an output now
  EXPECT_EQ(difference([](RegionRecord& r) {
              r.block_events.push_back({true, 4, kTemp, 512, 5});
            }),
            Difference::kBlocks);
  EXPECT_EQ(difference([](RegionRecord& r) { r.inputs.push_back({kOther + 8, 8}); }), Difference::kBlocks);
  // Born, or freed, at another time, though no word shows it.
  const auto unused = [](std::uint32_t born, std::uint32_t died) {
    RecordBuilder r = model();
    r.record().block_events = {{true, 0, kTemp, 512, 5},
                               {true, born, kOther + 4096, 512, 6},
                               {false, died, kOther + 4096, 512, 6},
                               {false, 4, kTemp, 512, 5}};
    return r;
  };
  EXPECT_EQ(comparison(unused(1, 3), unused(1, 3)).difference, Difference::kNone);
  EXPECT_EQ(comparison(unused(1, 3), unused(2, 3)).difference, Difference::kBlocks);
  const Comparison result = comparison(unused(1, 3), unused(1, 2));
  EXPECT_EQ(result.difference, Difference::kBlocks);
  EXPECT_EQ(result.node, 1u);
}

TEST(Compare, TheAllocatorMayGiveMoreThanALargeRequestAskedFor) {
  const auto run = [](std::uint64_t bytes) {
    RecordBuilder r;
    r.alloc(kTemp, bytes).launch(plain_kernel(1, 1), {kTemp}).free(kTemp);
    return r;
  };
  constexpr std::uint64_t kMega = 1 << 20;
  EXPECT_EQ(comparison(run(2 * kMega), run(2 * kMega + 512)).difference, Difference::kNone);
  EXPECT_EQ(comparison(run(2 * kMega), run(3 * kMega)).difference, Difference::kNone);
  EXPECT_EQ(comparison(run(2 * kMega), run(40 * kMega)).difference, Difference::kBlocks);
  EXPECT_EQ(comparison(run(kMega), run(kMega + 512)).difference, Difference::kBlocks);
  EXPECT_EQ(comparison(run(512), run(1024)).difference, Difference::kBlocks);
}

TEST(Compare, WordsOfCopiesAndMemsetsAreNoNoise) {
  std::uint32_t node = 0;
  RecordBuilder changed = model();
  changed.record().words[5] = kOther;
  EXPECT_EQ(comparison(model(), changed).difference, Difference::kPointer);
  const auto word = [&](std::size_t at, std::uint64_t value) {
    return difference([=](RegionRecord& r) { r.words[at] = value; }, &node);
  };
  EXPECT_EQ(word(6, kOther), Difference::kPointer);  // the copy's source
  EXPECT_EQ(node, 1u);
  EXPECT_EQ(word(7, 65), Difference::kScalar);  // its size
  EXPECT_EQ(word(9, 1), Difference::kScalar);   // the memset's value
  EXPECT_EQ(node, 2u);
  EXPECT_EQ(word(11, 17), Difference::kScalar);  // and width
}

TEST(Compare, AStaticIsItsAllocationNotItsAddress) {
  EXPECT_EQ(difference([](RegionRecord& r) { r.before[0].serial = 9; }), Difference::kPointer);
  // Of what is not referred to, nothing counts.
  EXPECT_EQ(difference([](RegionRecord& r) { r.before[1].serial = 9; }), Difference::kNone);
}

std::string shouted(const std::string& name) { return name + "!"; }

TEST(Describe, SaysWhatDiffersInWhichKernel) {
  const auto changed = [](const Change& change) {
    RecordBuilder r = model();
    change(r.record());
    return described(model(), r);
  };
  EXPECT_EQ(described(model(), model()), "") << "nothing is refused";
  EXPECT_EQ(changed([](RegionRecord& r) { r.nodes.pop_back(); }),
            "one call ran 4 operations on the device, the other 3; operation 3 is there in one of them only");
  EXPECT_EQ(changed([](RegionRecord& r) { r.nodes.erase(r.nodes.begin() + 1); }),
            "one call ran 4 operations on the device, the other 3; operation 1 is a copy in one call and a memset in "
            "the other");
  EXPECT_EQ(changed([](RegionRecord& r) { r.functions[1].name = "third"; }),
            "operation 3 is kernel second in one call and kernel third in the other");
  EXPECT_EQ(changed([](RegionRecord& r) { r.functions[1].handle = 9; }),
            "kernel second (operation 3) was loaded anew between the calls");
  EXPECT_EQ(changed([](RegionRecord& r) { r.nodes[0].grid.x = 7; }),
            "kernel first (operation 0) was launched with a grid of 1x1x1 and of 7x1x1");
  EXPECT_EQ(changed([](RegionRecord& r) { r.attributes[8] = 2; }),
            "kernel first (operation 0) was launched with different attributes");
  EXPECT_EQ(changed([](RegionRecord& r) { r.words[1] = 4096; }),
            "parameter 1 of kernel first (operation 0) is 3 in one call and 4096 (0x1000) in the other");
  EXPECT_EQ(changed([](RegionRecord& r) { r.words[0] = kTemp + 8; }),
            "parameter 0 of kernel first (operation 0) is memory from before the call (512 bytes at 0x7f0000000000) in "
            "one call and temporary memory 0 + 8 bytes in the other");
  EXPECT_EQ(changed([](RegionRecord& r) { r.words[7] = 65; }),
            "the size of a copy (operation 1) is 64 (0x40) in one call and 65 (0x41) in the other");
  EXPECT_EQ(
      changed([](RegionRecord& r) { r.block_events[0].bytes = 1024; }),
      "the calls allocated memory in different ways: 1 and 1 temporary blocks, 0 and 0 that outlive the call; the "
      "first to differ is allocated before kernel first (operation 0)");
}

TEST(Describe, SaysWhatIsOrderedOtherwise) {
  RecordBuilder changed = model();
  changed.record().nodes[2].stream = 1;
  EXPECT_EQ(described(model(), changed),
            "a memset (operation 2) ran on another stream, or waited for other work, in the other call");
}

TEST(Describe, CountsWordsWhereTheLayoutIsNotKnown) {
  FunctionInfo function;
  function.handle = 1;
  function.name = "f";
  RecordBuilder a, b;
  a.launch(function, {1, 2});
  b.launch(function, {1, 3});
  EXPECT_EQ(described(a, b), "word 1 of the parameters of kernel f (operation 0) is 2 in one call and 3 in the other");
}

TEST(Describe, TakesReadableNames) {
  RecordBuilder changed = model();
  changed.record().nodes[0].shared_bytes = 7;
  const Program one = symbolise(model().record()), other = symbolise(changed.record());
  EXPECT_EQ(describe(compare(one, other), one, other, shouted).text,
            "kernel first! (operation 0) was launched with 0 and 7 bytes of shared memory");
}

// A parameter of less than a word, or across two, is told as it is.
TEST(Describe, SmallParametersAreReadFromTheirBytes) {
  FunctionInfo function;
  function.handle = 1;
  function.name = "f";
  function.has_layout = true;
  function.parameters = {{0, 4}, {4, 8}, {12, 4}};
  RecordBuilder a, b;
  a.launch(function, {0x0000000500000001, 0x0000000300000000});
  b.launch(function, {0x0000000600000001, 0x0000000300000000});
  EXPECT_EQ(described(a, b), "parameter 1 of kernel f (operation 0) is 5 in one call and 6 in the other");
}

}  // namespace
}  // namespace grape::program
