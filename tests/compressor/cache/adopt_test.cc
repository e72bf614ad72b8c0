// Programs of another process, as if this one had seen them.
#include "compressor/cache/adopt.h"

#include <gtest/gtest.h>

#include "compressor/program/prove.h"
#include "compressor/program/symbolise.h"
#include "tests/compressor/program/record_builder.h"

namespace grape::cache {
namespace {

using program::compare;
using program::Difference;
using program::function_with;
using program::Program;
using program::RecordBuilder;

const std::vector<Digest> kKernels = {{11, 1}, {13, 2}};

// Where a process's memory lies, and what its kernels' handles are.
struct Process {
  std::uint64_t first, second;  // two weights of a size
  std::uint64_t input, output, handles;
};
constexpr Process kEarlier{0x7f0000000000, 0x7f0000010000, 0x7f0000020000, 0x7f0000030000, 100};
constexpr Process kNow{0x7e0000050000, 0x7e0000000000, 0x7e0000080000, 0x7e0000090000, 500};

struct Change {
  bool swapped = false;       // the weights
  std::uint64_t scalar = 5;   // of the second kernel
  std::uint64_t padding = 0;  // in the first kernel's struct
  std::uint64_t weight_bytes = 512;
};

Program run(const Process& process, const Change& change = {}) {
  RecordBuilder r;
  const std::uint64_t low = std::min(process.first, process.second), high = std::max(process.first, process.second);
  r.before(low, change.weight_bytes);
  if (high != low) r.before(high, change.weight_bytes);
  r.before(process.input, 512);
  r.input(process.input, 512);
  r.alloc(process.output, 512);
  const std::uint64_t first = change.swapped ? process.second : process.first;
  const std::uint64_t second = change.swapped ? process.first : process.second;
  r.launch(function_with(process.handles, "f", {8, 8, 8, 16}),
           {process.output, process.first, second + 8, change.padding, 3});
  r.launch(function_with(process.handles + 1, "g", {8, 8, 8}), {process.output, first + 16, change.scalar});
  return program::symbolise(r.record());
}

// As a cache has it.
Program cached(const Change& change = {}) {
  Program program = run(kEarlier, change);
  for (std::size_t i = 0; i < program.functions.size(); ++i) program.functions[i].handle = handle_of(kKernels[i]);
  return program;
}

std::string why;  // of the last adopt()

Difference difference(Program earlier, const Program& now, std::vector<std::uint32_t>* noise = nullptr) {
  EXPECT_TRUE(adopt(earlier, now, kKernels, why)) << why;
  const program::Comparison comparison = compare(earlier, now);
  if (noise != nullptr) *noise = comparison.noise;
  return comparison.difference;
}

TEST(Adopt, TheSameWorkElsewhereIsTheSame) {
  std::vector<std::uint32_t> noise;
  EXPECT_NE(compare(cached(), run(kNow)).difference, Difference::kNone) << "before it is adopted";
  EXPECT_EQ(difference(cached(), run(kNow), &noise), Difference::kNone);
  EXPECT_TRUE(noise.empty());
  EXPECT_EQ(difference(cached({true}), run(kNow, {true})), Difference::kNone);
}

TEST(Adopt, OtherMemoryIsAnother) {
  EXPECT_NE(difference(cached(), run(kNow, {true})), Difference::kNone) << "the weights changed places";
  EXPECT_NE(difference(cached({true}), run(kNow)), Difference::kNone);
  EXPECT_NE(difference(cached({false, 5, 0, 1024}), run(kNow)), Difference::kNone) << "weights of another size";
}

TEST(Adopt, TwoWeightsAreNotOneThatIsTied) {
  Process tied = kNow;
  tied.second = tied.first;
  EXPECT_NE(difference(cached(), run(tied)), Difference::kNone);
}

TEST(Adopt, OtherNumbersAreOthers) { EXPECT_EQ(difference(cached(), run(kNow, {false, 6})), Difference::kScalar); }

TEST(Adopt, PaddingIsNoDifference) {
  std::vector<std::uint32_t> noise;
  EXPECT_EQ(difference(cached({false, 5, 77}), run(kNow, {false, 5, 78}), &noise), Difference::kNone);
  EXPECT_EQ(noise, (std::vector<std::uint32_t>{3}));
  // What lay there points into memory of one of the two.
  EXPECT_EQ(difference(cached({false, 5, kEarlier.first + 4}), run(kNow), &noise), Difference::kNone);
  EXPECT_EQ(noise, (std::vector<std::uint32_t>{3}));
  EXPECT_EQ(difference(cached(), run(kNow, {false, 5, kNow.second}), &noise), Difference::kNone);
  EXPECT_EQ(noise, (std::vector<std::uint32_t>{3}));
}

TEST(Adopt, OtherKernelsAreRefused) {
  const Program now = run(kNow);
  Program earlier = cached();
  EXPECT_FALSE(adopt(earlier, now, {kKernels[1], kKernels[0]}, why));
  EXPECT_EQ(why, "the code of f was another one");
  earlier = cached();
  EXPECT_FALSE(adopt(earlier, now, {kKernels[0]}, why));
  earlier = cached();
  earlier.functions[1].name = "h";
  EXPECT_FALSE(adopt(earlier, now, kKernels, why));
  EXPECT_EQ(why, "it ran g; there, h");
  earlier = cached();
  earlier.functions[1].parameters.back().bytes = 4;
  EXPECT_FALSE(adopt(earlier, now, kKernels, why));
  earlier = cached();
  earlier.functions[0].has_layout = false;
  EXPECT_FALSE(adopt(earlier, now, kKernels, why));
}

TEST(Adopt, WhatWaitsForOthersIsRefused) {
  for (const bool of_now : {false, true}) {
    for (int kind = 0; kind < 3; ++kind) {
      Program now = run(kNow), earlier = cached();
      Program& one = of_now ? now : earlier;
      if (kind == 0) one.waited_events.push_back({1, 2});
      if (kind == 1) one.recorded_events.push_back({1, 2});
      if (kind == 2) one.waited_streams.push_back(1);
      EXPECT_FALSE(adopt(earlier, now, kKernels, why)) << of_now << kind;
      EXPECT_EQ(why, "it waits for events of before it, or others for its");
    }
  }
}

}  // namespace
}  // namespace grape::cache
