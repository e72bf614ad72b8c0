// Addresses become symbols: which block, at which moment.
#include "compressor/program/symbolise.h"

#include <gtest/gtest.h>

#include "tests/compressor/program/record_builder.h"

namespace grape::program {
namespace {

constexpr std::uint64_t kWeight = 0x7f0000000000, kData = 0x7f0000010000, kFree = 0x7f0000020000;

TEST(Symbolise, EachRoleHasItsSymbol) {
  RecordBuilder r;
  r.before(kWeight, 1024).before(kData, 512).input(kData, 400);
  r.alloc(kFree, 512).alloc(kFree + 512, 1024);
  r.launch(plain_kernel(1, 5), {kWeight + 8, kData + 16, kFree, kFree + 512 + 1023, 7});
  r.free(kFree);
  const Program program = symbolise(r.record());
  EXPECT_EQ(symbol_at(program, 0), "static 0 + 8");
  EXPECT_EQ(symbol_at(program, 1), "input 0 + 16");
  EXPECT_EQ(symbol_at(program, 2), "temp 0 + 0");
  EXPECT_EQ(symbol_at(program, 3), "output 0 + 1023");
  EXPECT_EQ(symbol_at(program, 4), "plain 7");
  ASSERT_EQ(program.statics.size(), 1u);
  EXPECT_EQ(program.statics[0].address, kWeight);
  EXPECT_EQ(program.statics[0].bytes, 1024u);
  EXPECT_EQ(program.statics[0].serial, 100u);
  EXPECT_EQ(program.input_bytes, std::vector<std::uint64_t>{400});
  ASSERT_EQ(program.temps.size(), 1u);
  EXPECT_EQ(program.temps[0].bytes, 512u);
  EXPECT_EQ(program.temps[0].birth, 0u);
  EXPECT_EQ(program.temps[0].born, 0u);
  EXPECT_EQ(program.temps[0].died, 1u);
  ASSERT_EQ(program.outputs.size(), 1u);
  EXPECT_EQ(program.outputs[0].birth, 1u);
  EXPECT_EQ(program.outputs[0].died, kNever);
}

TEST(Symbolise, OneAddressIsAnotherBlockAtAnotherTime) {
  RecordBuilder r;
  const FunctionInfo kernel = plain_kernel(1, 1);
  r.before(kData, 512);
  r.launch(kernel, {kData});
  r.free(kData).launch(kernel, {kData});
  r.alloc(kData, 512).launch(kernel, {kData});
  r.free(kData).alloc(kData, 256).launch(kernel, {kData + 4});
  r.launch(kernel, {kData + 300});
  r.free(kData).launch(kernel, {kData});
  r.alloc(kData, 512);
  const Program program = symbolise(r.record());
  EXPECT_EQ(symbol_at(program, 0), "static 0 + 0");
  EXPECT_EQ(symbol_at(program, 1), "plain " + std::to_string(kData));
  EXPECT_EQ(symbol_at(program, 2), "temp 0 + 0");
  EXPECT_EQ(symbol_at(program, 3), "temp 1 + 4");
  EXPECT_EQ(symbol_at(program, 4), "plain " + std::to_string(kData + 300));
  EXPECT_EQ(symbol_at(program, 5), "plain " + std::to_string(kData));
  EXPECT_EQ(program.temps.size(), 2u);
  EXPECT_EQ(program.temps[1].born, 3u);
  EXPECT_EQ(program.temps[1].died, 5u);
  EXPECT_EQ(program.outputs.size(), 1u);  // born after the last node
  EXPECT_EQ(program.outputs[0].born, 6u);
}

TEST(Symbolise, ABlockFreedAfterTheLastNodeIsATemp) {
  RecordBuilder r;
  r.alloc(kData, 512).launch(plain_kernel(1, 1), {kData}).free(kData);
  const Program program = symbolise(r.record());
  EXPECT_EQ(symbol_at(program, 0), "temp 0 + 0");
  EXPECT_EQ(program.temps[0].died, 1u);
  EXPECT_TRUE(program.outputs.empty());
}

TEST(Symbolise, AnInputIsItsExtentAndTheRestOfTheBlockIsStatic) {
  RecordBuilder r;
  r.before(kData, 4096).input(kData + 512, 100).input(kData + 1024, 200);
  r.launch(plain_kernel(1, 6), {kData, kData + 512, kData + 611, kData + 612, kData + 1024 + 199, kData + 4096});
  const Program program = symbolise(r.record());
  EXPECT_EQ(symbol_at(program, 0), "static 0 + 0");
  EXPECT_EQ(symbol_at(program, 1), "input 0 + 0");
  EXPECT_EQ(symbol_at(program, 2), "input 0 + 99");
  EXPECT_EQ(symbol_at(program, 3), "static 0 + 612");
  EXPECT_EQ(symbol_at(program, 4), "input 1 + 199");
  EXPECT_EQ(symbol_at(program, 5), "plain " + std::to_string(kData + 4096));
}

TEST(Symbolise, ExtentsKeepTheirNumbersInWhateverOrderTheyCome) {
  RecordBuilder r;
  r.before(kWeight, 512).before(kData, 512).input(kData, 512).input(kWeight, 512);
  r.launch(plain_kernel(1, 2), {kWeight, kData});
  const Program program = symbolise(r.record());
  EXPECT_EQ(symbol_at(program, 0), "input 1 + 0");
  EXPECT_EQ(symbol_at(program, 1), "input 0 + 0");
}

TEST(Symbolise, AnInputThatIsFreedInsideGivesItsAddressToOthers) {
  // A cache's tensor that the call replaces: its memory goes to what is allocated next.
  RecordBuilder r;
  const FunctionInfo kernel = plain_kernel(1, 1);
  r.before(kData, 512).input(kData, 512).launch(kernel, {kData});
  r.free(kData).launch(kernel, {kData});
  r.alloc(kData, 512).launch(kernel, {kData}).free(kData);
  const Program program = symbolise(r.record());
  EXPECT_EQ(symbol_at(program, 0), "input 0 + 0");
  EXPECT_EQ(symbol_at(program, 1), "plain " + std::to_string(kData));
  EXPECT_EQ(symbol_at(program, 2), "temp 0 + 0");
}

TEST(Symbolise, AnInputOutsideOfAllKnownBlocksIsAnInput) {
  RecordBuilder r;
  r.input(kData, 512).launch(plain_kernel(1, 1), {kData + 8});
  EXPECT_EQ(symbol_at(symbolise(r.record()), 0), "input 0 + 8");
}

TEST(Symbolise, ABlockBornInAnEmptySegmentIsNotTheSegment) {
  // The driver's segment held no block of the framework's, and so is a block itself.
  RecordBuilder r;
  r.before(kData, 1 << 20).alloc(kData + 512, 512);
  r.launch(plain_kernel(1, 3), {kData + 512, kData + 1024, kData});
  r.free(kData + 512).launch(plain_kernel(1, 3), {kData + 512, 0, 0});
  r.alloc(kData, 512).launch(plain_kernel(1, 3), {kData, 0, 0});
  r.free(kData).launch(plain_kernel(1, 3), {kData, 0, 0});
  const Program program = symbolise(r.record());
  EXPECT_EQ(symbol_at(program, 0), "temp 0 + 0");
  EXPECT_EQ(symbol_at(program, 1), "static 0 + 1024");
  EXPECT_EQ(symbol_at(program, 2), "static 0 + 0");
  EXPECT_EQ(symbol_at(program, 3), "static 0 + 512");
  EXPECT_EQ(symbol_at(program, 6), "temp 1 + 0");
  EXPECT_EQ(symbol_at(program, 9), "static 0 + 0");
}

TEST(Symbolise, OnePastTheEndBelongsToTheNextBlockOrToNone) {
  RecordBuilder r;
  r.before(kData, 512).before(kData + 512, 512);
  r.launch(plain_kernel(1, 2), {kData + 512, kData + 1024});
  const Program program = symbolise(r.record());
  EXPECT_EQ(symbol_at(program, 0), "static 0 + 0");
  EXPECT_EQ(program.statics[0].address, kData + 512);
  EXPECT_EQ(symbol_at(program, 1), "plain " + std::to_string(kData + 1024));
}

TEST(Symbolise, WhatIsEmptyHoldsNothing) {
  RecordBuilder r;
  r.before(kWeight, 0).input(kWeight, 0).before(kData, 512).input(kData + 8, 0);
  r.alloc(kFree, 0).launch(plain_kernel(1, 3), {kWeight, kData + 8, kFree}).free(kFree);
  const Program program = symbolise(r.record());
  EXPECT_EQ(symbol_at(program, 0), "plain " + std::to_string(kWeight));
  EXPECT_EQ(symbol_at(program, 1), "static 0 + 8");
  EXPECT_EQ(symbol_at(program, 2), "plain " + std::to_string(kFree));
  EXPECT_EQ(program.input_bytes, (std::vector<std::uint64_t>{0, 0}));
  EXPECT_EQ(program.temps.size(), 1u);
  EXPECT_TRUE(program.outputs.empty());
}

TEST(Symbolise, ABlockWhoseDeathNobodySawIsDeadWhenAnotherLiesThere) {
  RecordBuilder r;
  r.alloc(kData, 512).alloc(kData + 512, 512).alloc(kData + 256, 512);
  r.launch(plain_kernel(1, 3), {kData, kData + 256, kData + 512});
  const Program program = symbolise(r.record());
  EXPECT_EQ(symbol_at(program, 0), "plain " + std::to_string(kData));
  EXPECT_EQ(symbol_at(program, 1), "output 0 + 0");
  EXPECT_EQ(symbol_at(program, 2), "output 0 + 256");
  EXPECT_EQ(program.temps.size(), 2u);
}

TEST(Symbolise, CopiesAndMemsetsHaveAddressesInTheirFirstWords) {
  RecordBuilder r;
  r.before(kWeight, 512).before(kData, 512);
  r.copy(kData, kWeight + 8, kWeight);       // words 0 to 2; the size only looks like an address
  r.memset(kData + 16, kWeight, 0x7f00000);  // words 3 to 8
  const Program program = symbolise(r.record());
  EXPECT_EQ(symbol_at(program, 0), "static 0 + 0");
  EXPECT_EQ(symbol_at(program, 1), "static 1 + 8");
  EXPECT_EQ(symbol_at(program, 2), "plain " + std::to_string(kWeight));
  EXPECT_EQ(symbol_at(program, 3), "static 0 + 16");
  EXPECT_EQ(symbol_at(program, 4), "plain " + std::to_string(kWeight));
  EXPECT_EQ(program.references.size(), 3u);
}

TEST(Symbolise, TwoNumbersSideBySideAreNoPointer) {
  RecordBuilder r;
  r.before(kData, 512);
  const FunctionInfo numbers = function_with(1, "numbers", {4, 4}), pointer = function_with(2, "pointer", {8});
  const FunctionInfo end = function_with(3, "end", {12, 4});  // a struct's last four bytes and a number
  r.launch(numbers, {kData}).launch(pointer, {kData}).launch(end, {kData, kData});
  const Program program = symbolise(r.record());
  EXPECT_EQ(symbol_at(program, 0), "plain " + std::to_string(kData));
  EXPECT_EQ(symbol_at(program, 1), "static 0 + 0");
  EXPECT_EQ(symbol_at(program, 2), "static 0 + 0");
  EXPECT_EQ(symbol_at(program, 3), "plain " + std::to_string(kData));
}

TEST(Symbolise, AParameterThatIsNotAlignedIsNoPointer) {
  FunctionInfo function;
  function.handle = 1;
  function.has_layout = true;
  function.parameters = {{0, 4}, {4, 8}, {12, 4}, {16, 8}};
  RecordBuilder r;
  r.before(kData, 512).launch(function, {kData, kData, kData});
  const Program program = symbolise(r.record());
  EXPECT_EQ(program.references.size(), 1u);
  EXPECT_EQ(symbol_at(program, 2), "static 0 + 0");
}

TEST(Symbolise, APackedBufferIsLookedAtWordByWord) {
  FunctionInfo packed;
  packed.handle = 1;
  RecordBuilder r;
  r.before(kData, 512).launch(packed, {kData, 5, kData + 8, kData + 16}, 30);  // six bytes of the last word
  const Program program = symbolise(r.record());
  EXPECT_EQ(symbol_at(program, 0), "static 0 + 0");
  EXPECT_EQ(symbol_at(program, 1), "plain 5");
  EXPECT_EQ(symbol_at(program, 2), "static 0 + 8");
  EXPECT_EQ(symbol_at(program, 3), "plain " + std::to_string(kData + 16));
}

TEST(Symbolise, ALayoutThatReachesBeyondTheParametersDoesNoHarm) {
  RecordBuilder r;
  r.before(kData, 512).launch(function_with(1, "long", {8, 64}), {kData, kData}).launch(plain_kernel(2, 1), {kData});
  const Program program = symbolise(r.record());
  EXPECT_EQ(program.references.size(), 3u);
}

TEST(Symbolise, FunctionsAndStreamsAreNumberedByFirstUse) {
  RecordBuilder r;
  r.launch(plain_kernel(1, 1), {1}).launch(plain_kernel(2, 1), {2}).on(1, {0}).launch(plain_kernel(1, 1), {3});
  RegionRecord record = r.record();
  // The same, with tables in another order, an unused function and stream, and a function that was defined twice.
  record.functions = {plain_kernel(9, 1), plain_kernel(2, 1), plain_kernel(1, 1), plain_kernel(1, 1)};
  record.streams = {1, 2, 3};
  record.nodes[0].function = 3;
  record.nodes[1].function = 1;
  record.nodes[2].function = 2;
  record.nodes[0].stream = 2;
  record.nodes[1].stream = 0;
  record.nodes[2].stream = 2;
  const Program one = symbolise(r.record()), other = symbolise(record);
  ASSERT_EQ(one.functions.size(), 2u);
  ASSERT_EQ(other.functions.size(), 2u);
  EXPECT_EQ(one.stream_count, 2u);
  EXPECT_EQ(other.stream_count, 2u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(one.functions[one.nodes[i].function].handle, other.functions[other.nodes[i].function].handle);
    EXPECT_EQ(one.nodes[i].function, other.nodes[i].function);
    EXPECT_EQ(one.nodes[i].stream, other.nodes[i].stream);
  }
}

TEST(Symbolise, ItemsLieInNodeOrder) {
  RecordBuilder r;
  r.before(kData, 512);
  r.launch(plain_kernel(1, 2), {kData, 1})
      .attribute(4, {1})
      .launch(plain_kernel(1, 2), {2, kData + 8})
      .attribute(4, {2});
  r.launch(plain_kernel(1, 1), {3}).on(0, {1, 0});
  RegionRecord shuffled = r.record();
  // The second node's items first, with a gap.
  shuffled.words = {2, kData + 8, 99, kData, 1, 3};
  shuffled.nodes[0].words_at = 3;
  shuffled.nodes[1].words_at = 0;
  shuffled.nodes[2].words_at = 5;
  std::vector<std::uint8_t> attributes(r.record().attributes.begin() + kAttributeBytes, r.record().attributes.end());
  attributes.insert(attributes.end(), r.record().attributes.begin(), r.record().attributes.begin() + kAttributeBytes);
  shuffled.attributes = attributes;
  shuffled.nodes[0].attributes_at = 1;
  shuffled.nodes[1].attributes_at = 0;
  const Program one = symbolise(r.record()), other = symbolise(shuffled);
  EXPECT_EQ(one.words, (std::vector<std::uint64_t>{0, 1, 2, 8, 3}));
  EXPECT_EQ(other.words, one.words);
  EXPECT_EQ(other.references, one.references);
  EXPECT_EQ(other.attributes, one.attributes);
  EXPECT_EQ(other.nodes[1].words_at, 2u);
  EXPECT_EQ(one.after, (std::vector<std::uint32_t>{0, 0, 1}));
}

TEST(Symbolise, AttributesKeepTheirValuesAndNoGarbage) {
  RecordBuilder clean, dirty, unknown;
  const FunctionInfo kernel = plain_kernel(1, 1);
  const std::vector<std::uint8_t> cluster = {2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0};
  clean.launch(kernel, {1}).attribute(4, cluster).attribute(6, {1, 0, 0, 0});
  dirty.launch(kernel, {1}).attribute(4, cluster, 0xee).attribute(6, {1, 0, 0, 0}, 0x77);
  unknown.launch(kernel, {1}).attribute(200, {1}, 0xee);
  const Program program = symbolise(dirty.record());
  EXPECT_EQ(program.attributes, symbolise(clean.record()).attributes);
  EXPECT_EQ(std::vector<std::uint8_t>(program.attributes.begin() + 8, program.attributes.begin() + 20), cluster);
  EXPECT_EQ(symbolise(unknown.record()).attributes, unknown.record().attributes);
}

// A gradient that a pass hands on: whoever has it may free it while the pass goes on.
TEST(Symbolise, ABlockThatIsGivenAwayIsAnOutputThoughItIsFreedInside) {
  RecordBuilder r;
  r.alloc(kData, 512).launch(plain_kernel(1, 1), {kData}).free(kData).launch(plain_kernel(1, 1), {kData});
  const Program kept = symbolise(r.record());
  EXPECT_EQ(symbol_at(kept, 0), "temp 0 + 0");
  EXPECT_TRUE(kept.outputs.empty());
  r.record().given_away = {r.record().block_events[0].serial};
  const Program given = symbolise(r.record());
  EXPECT_EQ(symbol_at(given, 0), "output 0 + 0");
  EXPECT_EQ(symbol_at(given, 1), "plain " + std::to_string(kData)) << "it is somebody else's";
  EXPECT_TRUE(given.temps.empty());
  ASSERT_EQ(given.outputs.size(), 1u);
  EXPECT_EQ(given.outputs[0].died, kNever);
}

// Its serial tells it from others at its address, whether its end was seen or not.
TEST(Symbolise, WhatIsBornWhereABlockWasGivenAwayIsAnotherBlock) {
  for (const bool freed : {true, false}) {
    RecordBuilder r;
    r.alloc(kFree, 512).free(kFree).alloc(kData, 512).launch(plain_kernel(1, 1), {kData + 4});
    if (freed) r.free(kData);
    r.alloc(kData, 256).launch(plain_kernel(1, 1), {kData + 8}).free(kData);
    r.record().given_away = {r.record().block_events[2].serial};
    const Program program = symbolise(r.record());
    EXPECT_EQ(symbol_at(program, 0), "output 0 + 4");
    EXPECT_EQ(symbol_at(program, 1), "temp 1 + 8");
    ASSERT_EQ(program.outputs.size(), 1u);
    EXPECT_EQ(program.outputs[0].bytes, 512u);
    EXPECT_EQ(program.outputs[0].birth, 1u);
    ASSERT_EQ(program.temps.size(), 2u);
    EXPECT_EQ(program.temps[1].bytes, 256u);
  }
}

TEST(Symbolise, AnEmptyRecordIsAnEmptyProgram) {
  const Program program = symbolise(RegionRecord());
  EXPECT_TRUE(program.nodes.empty());
  EXPECT_TRUE(program.references.empty());
}

}  // namespace
}  // namespace grape::program
