// What a program has to do with what is around it: events, streams, the host's memory.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "compressor/program/prove.h"
#include "compressor/program/symbolise.h"
#include "tests/compressor/program/record_builder.h"

namespace grape::program {
namespace {

constexpr std::uint64_t kWeight = 0x7f0000000000;

RecordBuilder model() {
  RecordBuilder r;
  r.before(kWeight, 512).launch(function_with(1, "first", {8}), {kWeight}).memset(kWeight, 0, 16);
  return r;
}

Comparison comparison(const RecordBuilder& a, const RecordBuilder& b) {
  return compare(symbolise(a.record()), symbolise(b.record()));
}

std::string described(const RecordBuilder& a, const RecordBuilder& b) {
  const Program one = symbolise(a.record()), other = symbolise(b.record());
  return describe(compare(one, other), one, other, nullptr).text;
}

TEST(Surroundings, EventsThatReachBeyondTheCallMustBeTheSame) {
  const auto with = [](std::vector<LiveHandle> waited, std::vector<LiveHandle> recorded) {
    RecordBuilder r = model();
    r.record().waited_events = std::move(waited);
    r.record().recorded_events = std::move(recorded);
    return r;
  };
  const RecordBuilder one = with({{16, 1}}, {{32, 2}, {48, 3}});
  EXPECT_EQ(comparison(one, one).difference, Difference::kNone);
  EXPECT_EQ(comparison(one, with({{16, 9}}, {{32, 2}, {48, 3}})).difference, Difference::kEvents) << "the handle again";
  EXPECT_EQ(comparison(one, with({}, {{32, 2}, {48, 3}})).difference, Difference::kEvents);
  EXPECT_EQ(comparison(one, with({{16, 1}}, {{32, 2}})).difference, Difference::kEvents);
  EXPECT_EQ(comparison(one, with({{16, 1}}, {{32, 2}, {64, 3}})).difference, Difference::kEvents);
  EXPECT_EQ(described(one, with({}, {})), "the calls wait for other CUDA events from before them");
  EXPECT_EQ(described(one, with({{16, 1}}, {})), "the calls record other CUDA events that outlive them");
}

TEST(Surroundings, ArgumentsAndWaitsOfTheHostMustBeTheSame) {
  const auto refused = [](const RecordBuilder& changed) -> std::string {
    const Program one = symbolise(model().record()), other = symbolise(changed.record());
    return refusal::name_of(describe(compare(one, other), one, other, nullptr).id);
  };
  RecordBuilder longer = model(), waits = model();
  longer.record().inputs.push_back({kWeight + 256, 64});
  EXPECT_EQ(refused(longer), "other_input_sizes");
  waits.record().waited_streams = {0x500};
  EXPECT_EQ(refused(waits), "other_waited_streams");
}

// What is named must be alive; which streams they are is no part of the program.
TEST(Surroundings, StreamsMayBeOtherOnes) {
  RecordBuilder one = model(), other = model();
  one.record().streams = {0, 0x500, 0x600};
  one.record().stream_serials = {0, 7, 8};
  other.record().streams = {0, 0x900};
  other.record().stream_serials = {0, 9};
  EXPECT_EQ(comparison(one, other).difference, Difference::kNone);
  EXPECT_EQ(symbolise(one.record()).streams, (std::vector<LiveHandle>{{0x500, 7}, {0x600, 8}}));
}

TEST(Surroundings, WhatIsCopiedFromTheHostMustBeTheSame) {
  const auto with = [](const std::vector<std::uint8_t>& data, std::uint64_t at, std::uint64_t bytes) {
    RecordBuilder r = model();
    r.copy(kWeight, at, bytes);
    r.last().kind = NodeKind::kHostCopy;
    r.record().host_data = data;
    return r;
  };
  const std::vector<std::uint8_t> data = {1, 2, 3, 4, 5, 6, 7, 8};
  const RecordBuilder one = with(data, 2, 4);
  const Program program = symbolise(one.record());
  EXPECT_EQ(program.host_data, data);
  EXPECT_EQ(program.references.back().role, Role::kHostData);
  EXPECT_EQ(program.words[program.references.back().word], 2u);
  EXPECT_EQ(comparison(one, one).difference, Difference::kNone);
  EXPECT_EQ(comparison(one, with({9, 9, 3, 4, 5, 6, 9, 9}, 2, 4)).difference, Difference::kNone) << "not copied";
  const Comparison other = comparison(one, with({1, 2, 3, 4, 5, 0, 7, 8}, 2, 4));
  EXPECT_EQ(other.difference, Difference::kHostData);
  EXPECT_EQ(other.node, 2u);
  EXPECT_EQ(comparison(one, with(data, 3, 4)).difference, Difference::kPointer);
  EXPECT_EQ(comparison(one, with(data, 2, 3)).difference, Difference::kScalar);
  EXPECT_EQ(comparison(one, with({1, 2, 3}, 2, 4)).difference, Difference::kHostData) << "is not all there";
  EXPECT_EQ(comparison(with(data, 8, 1), with(data, 8, 1)).difference, Difference::kHostData);
}

}  // namespace
}  // namespace grape::program
