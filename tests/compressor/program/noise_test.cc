// Words of which two runs may have different ones, and what becomes of them.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compressor/program/parameter_types.h"
#include "compressor/program/prove.h"
#include "compressor/program/symbolise.h"
#include "tests/compressor/program/record_builder.h"

namespace grape::program {
namespace {

constexpr std::uint64_t kWeight = 0x7f0000000000, kOther = 0x7f0000010000, kTemp = 0x7f0000020000;
constexpr std::uint64_t kHeap = 0x29674af0;  // of the host

Comparison comparison(const RecordBuilder& a, const RecordBuilder& b) {
  return compare(symbolise(a.record()), symbolise(b.record()));
}

// One launch of two runs, told by a layout and the words.
Comparison launches(const FunctionInfo& function, const std::vector<std::uint64_t>& a,
                    const std::vector<std::uint64_t>& b) {
  const auto run = [&](const std::vector<std::uint64_t>& words) {
    RecordBuilder r;
    r.before(kWeight, 512).before(kOther, 512).alloc(kTemp, 512);
    r.launch(plain_kernel(99, 1), {0}).launch(function, words).free(kTemp);
    return r;
  };
  Comparison forth = comparison(run(a), run(b));
  const Comparison back = comparison(run(b), run(a));
  EXPECT_EQ(forth.difference, back.difference);
  EXPECT_EQ(forth.noise, back.noise);
  if (forth.difference != Difference::kNone) {
    EXPECT_EQ(forth.node, 1u);
  }
  return forth;
}

TEST(Compare, SmallParametersAreNoNoise) {
  const FunctionInfo function = function_with(1, "f", {8, 8, 4, 4, 24});
  const std::vector<std::uint64_t> words = {kWeight, 7, 0x500000004, 1, 2, 3};
  const auto with = [&](std::size_t word, std::uint64_t value) {
    std::vector<std::uint64_t> changed = words;
    changed[word] = value;
    return launches(function, words, changed);
  };
  EXPECT_EQ(with(1, 8).difference, Difference::kScalar);
  EXPECT_EQ(with(1, 8).parameter, 1u);
  EXPECT_EQ(with(1, 8).word, 1u);
  EXPECT_EQ(with(1, kWeight).difference, Difference::kScalar);  // a symbol in one, plain in the other
  EXPECT_EQ(with(0, 7).difference, Difference::kScalar);
  EXPECT_EQ(with(0, kOther).difference, Difference::kPointer);
  EXPECT_EQ(with(0, kWeight + 1).difference, Difference::kPointer);
  EXPECT_EQ(with(0, kTemp).difference, Difference::kPointer);
  EXPECT_EQ(with(0, kTemp).parameter, 0u);
  EXPECT_EQ(with(2, 0x500000009).difference, Difference::kScalar);
  EXPECT_EQ(with(2, 0x500000009).parameter, 2u);
  EXPECT_EQ(with(2, 0x900000004).parameter, 3u);
  EXPECT_EQ(with(2, 0x900000004).word, 2u);
}

TEST(Compare, WhatDiffersInALargeStructIsNoise) {
  const FunctionInfo function = function_with(1, "f", {8, 24});
  const std::vector<std::uint64_t> words = {kWeight, 1, kTemp, kOther + 8};
  EXPECT_EQ(launches(function, words, {kWeight, 2, kTemp, kOther + 8}).noise, (std::vector<std::uint32_t>{2}));
  EXPECT_EQ(launches(function, words, {kWeight, kTemp, 5, kOther}).noise, (std::vector<std::uint32_t>{2, 3, 4}));
  EXPECT_EQ(launches(function, words, {kWeight, 2, kTemp, kOther + 8}).difference, Difference::kNone);
  // But then something else differs: no noise is told.
  EXPECT_TRUE(launches(function, words, {kOther, 2, kTemp, kOther + 8}).noise.empty());
}

TEST(Compare, AWordIsNoiseOnlyByTheBytesThatDiffer) {
  // Twelve bytes of a struct, then four of a number, in one word.
  const FunctionInfo function = function_with(1, "f", {12, 4});
  EXPECT_EQ(launches(function, {1, 0x300000002}, {1, 0x300000009}).noise, (std::vector<std::uint32_t>{2}));
  const Comparison number = launches(function, {1, 0x300000002}, {1, 0x900000002});
  EXPECT_EQ(number.difference, Difference::kScalar);
  EXPECT_EQ(number.parameter, 1u);
  EXPECT_EQ(launches(function, {1, 0x300000002}, {1, 0x900000009}).difference, Difference::kScalar);
}

TEST(Compare, TheGapsOfAPackedBufferAreNoise) {
  // Bytes 4 to 7 belong to no parameter.
  const FunctionInfo function = function_with(1, "f", {4, 8});
  EXPECT_EQ(launches(function, {1, 2}, {0x500000001, 2}).noise, (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(launches(function, {1, 2}, {0x500000003, 2}).difference, Difference::kScalar);
}

TEST(Compare, WithoutALayoutNothingIsNoise) {
  FunctionInfo packed;
  packed.handle = 1;
  EXPECT_EQ(launches(packed, {kWeight, 1, 2, 3}, {kWeight, 1, 2, 4}).difference, Difference::kScalar);
  EXPECT_EQ(launches(packed, {kWeight, 1, 2, 3}, {kOther, 1, 2, 3}).difference, Difference::kPointer);
  EXPECT_EQ(launches(packed, {kWeight, 1, 2, 3}, {kOther, 1, 2, 3}).word, 0u);
}

TEST(Compare, StaticsMayBeNumberedInAnotherOrder) {
  // A stale pointer in padding comes first in one run, and with it its block.
  const FunctionInfo function = function_with(1, "f", {16, 8});
  const Comparison result = launches(function, {kOther, 1, kWeight}, {2, 1, kWeight});
  EXPECT_EQ(result.difference, Difference::kNone);
  EXPECT_EQ(result.noise, (std::vector<std::uint32_t>{1}));
}

// "void f<lambda, std::array<char*, 2>>(int, lambda, std::array<char*, 2>)", as PyTorch's elementwise kernels are.
constexpr char kLambda[] =
    "_ZN2at6native29vectorized_elementwise_kernelILi8EZZZNS0_18GeluCUDAKernelImplERNS_18TensorIteratorBaseENS0_"
    "8GeluTypeEENKUlvE0_clEvENKUlvE1_clEvEUlN3c104HalfEE_St5arrayIPcLm2EEEEviT0_T1_";
constexpr char kFunctor[] =
    "_ZN2at6native29vectorized_elementwise_kernelILi8ENS0_15CUDAFunctor_addIN3c104HalfEEESt5arrayIPcLm3EEEEviT0_T1_";

TEST(Compare, AnEmptyObjectsByteIsNoise) {
  const auto run = [](const char* name, std::uint64_t a, std::uint64_t b) {
    return launches(function_with(1, name, {4, 1, 16}), {5 | a << 32, 1, 2}, {5 | b << 32, 1, 2});
  };
  EXPECT_EQ(run(kLambda, 0x50, 0x90).noise, (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(run(kLambda, 0, 0x90).noise, (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(run(kFunctor, 0x50, 0x90).noise, (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(run(kLambda, 0, 1).difference, Difference::kScalar);  // could be a captured boolean
  constexpr char kEmpty[] = "_Z1fi23TrivialOffsetCalculatorILi1EjE3sum";
  constexpr char kCast[] = "_Z1fiN2at6native6memory15LoadWithoutCastE3sum";
  for (const char* name : {kEmpty, kCast}) {
    EXPECT_EQ(run(name, 0, 1).noise, (std::vector<std::uint32_t>{1})) << name;
    EXPECT_EQ(run(name, 0x50, 0x90).noise, (std::vector<std::uint32_t>{1})) << name;
  }
  EXPECT_EQ(run("f", 0x50, 0x90).difference, Difference::kScalar);
  EXPECT_EQ(run("_Z1fib3sum", 0x50, 0x90).difference, Difference::kScalar);  // int, bool, a plain class
  EXPECT_EQ(run("_Z1fi", 0x50, 0x90).difference, Difference::kScalar);       // the name knows fewer parameters
  // The number next to it is none.
  EXPECT_EQ(launches(function_with(1, kLambda, {4, 1, 16}), {5, 1, 2}, {6, 1, 2}).difference, Difference::kScalar);
}

// What one launch has in such a byte tells of all launches of the kernel.
TEST(Compare, AnEmptyObjectIsKnownByAnotherLaunch) {
  const auto run = [](const char* name, std::uint64_t elsewhere, bool second_run) {
    const FunctionInfo function = function_with(1, name, {4, 1, 16});
    const auto with = [&](std::uint64_t byte, std::uint64_t other) {
      RecordBuilder r;
      r.launch(function, {5 | byte << 32, 1, 2}).launch(function, {5 | other << 32, 1, 2});
      return r;
    };
    return comparison(with(0, second_run ? 0 : elsewhere), with(1, elsewhere)).difference;
  };
  for (const bool second_run : {false, true}) {
    EXPECT_EQ(run(kLambda, 0x90, second_run), Difference::kNone);
    EXPECT_EQ(run(kLambda, 1, second_run), Difference::kScalar);
    EXPECT_EQ(run("_Z1fib3sum", 0x90, second_run), Difference::kScalar);
  }
}

TEST(Compare, AddressesOfTheHostAreNoiseWhereTheyMeanNothing) {
  const auto run = [](const char* name, std::uint64_t a, std::uint64_t b) {
    return launches(function_with(1, name, {4, 8, 16}), {5, a, 1, 2}, {5, b, 1, 2}).difference;
  };
  constexpr char kPointer[] = "_Z1fiPKf3sum";
  for (const char* name : {kLambda, kPointer}) {
    EXPECT_EQ(run(name, kHeap, kHeap + 160), Difference::kNone);
    EXPECT_EQ(run(name, 0x55d000001000, 0x7ffd00001000), Difference::kNone);
    EXPECT_EQ(run(name, 0x7ffd99a3825c, 0x7ffdb408853c), Difference::kNone);  // of a float
    EXPECT_EQ(run(name, kHeap, kHeap + 1), Difference::kScalar);              // no address of an object
    EXPECT_EQ(run(name, 64, kHeap), Difference::kScalar);                     // a number
    EXPECT_EQ(run(name, 0, kHeap), Difference::kScalar);                      // null may be asked for
    EXPECT_EQ(run(name, 0x7f1234567000, kHeap), Difference::kScalar);         // could be the device's
    EXPECT_EQ(run(name, kWeight, kHeap), Difference::kScalar);                // is the device's
  }
  EXPECT_EQ(run("_Z1fil3sum", kHeap, kHeap + 160), Difference::kScalar);  // a number by its type
  EXPECT_EQ(run(kFunctor, kHeap, kHeap + 160), Difference::kScalar);      // may hold a number
}

// Other threads have their stacks and heaps elsewhere: what lies there is asked.
TEST(Compare, AddressesOfOtherThreadsAreNoiseIfTheHostHasDataThere) {
  constexpr std::uint64_t kOne = 0x7f1234567890, kAnother = 0x7f1300000040;
  const auto run = [&](const HostPlaces& host, std::uint64_t a, std::uint64_t b, const char* name = kLambda) {
    const auto with = [&](std::uint64_t value) {
      RecordBuilder r;
      r.launch(function_with(1, name, {4, 8, 16}), {5, value, 1, 2});
      return symbolise(r.record());
    };
    return compare(with(a), with(b), host);
  };
  const auto everywhere = [](HostPlace place) { return [place](std::uint64_t) { return place; }; };
  const HostPlaces data = everywhere(HostPlace::kData);
  EXPECT_EQ(run({}, kOne, kAnother).difference, Difference::kScalar);
  EXPECT_EQ(run(data, kOne, kAnother).difference, Difference::kNone);
  EXPECT_EQ(run(data, kOne, kAnother).noise, (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(run(data, kOne, kHeap).difference, Difference::kNone);
  for (const HostPlace place : {HostPlace::kNone, HostPlace::kReserved, HostPlace::kCode})
    EXPECT_EQ(run(everywhere(place), kOne, kAnother).difference, Difference::kScalar);
  const HostPlaces at_one = [&](std::uint64_t at) { return at == kOne ? HostPlace::kData : HostPlace::kReserved; };
  EXPECT_EQ(run(at_one, kOne, kAnother).difference, Difference::kScalar) << "the device's memory is reserved";
  EXPECT_EQ(run(at_one, kAnother, kOne).difference, Difference::kScalar);
  EXPECT_EQ(run(data, kOne, kAnother + 2).difference, Difference::kScalar) << "no address of an object";
  EXPECT_EQ(run(data, kOne, kAnother, "_Z1fil3sum").difference, Difference::kScalar) << "a number by its type";
  EXPECT_EQ(run(data, kOne, kAnother, kFunctor).difference, Difference::kScalar) << "may hold a number";
}

TEST(ParameterTypes, AreReadOffTheName) {
  using Types = std::vector<ParameterType>;
  constexpr auto kOtherType = ParameterType::kOther;
  EXPECT_EQ(parameter_types(kLambda), (Types{kOtherType, ParameterType::kClosure, ParameterType::kTemplate}));
  EXPECT_EQ(parameter_types(kFunctor), (Types{kOtherType, ParameterType::kTemplate, ParameterType::kTemplate}));
  EXPECT_EQ(parameter_types("_Z1fibPvPKfN2ns3sumE"),
            (Types{kOtherType, kOtherType, ParameterType::kPointer, ParameterType::kPointer, kOtherType}));
  EXPECT_EQ(parameter_types("_Z1fSt7complexIfEN3c107complexIdEE"), (Types{kOtherType, kOtherType}));
  EXPECT_EQ(parameter_types("_ZN8cublasLt19splitKreduce_kernelILi32ELi16EiffffLb0EfffLb1ELb0ELb0ELb0EEEvNS_"
                            "18cublasSplitKParamsIT4_EEPKT2_PKT8_PT7_PT3_PKS2_SF_PKT9_S6_PSG_PvlPS2_PiSL_SL_SF_SF_SF_"
                            "SF_SF_")
                .size(),
            21u);
  for (const char* name : {"", "plain_c_name", "_Z", "_Znot a name", "_Z1x"}) {
    EXPECT_TRUE(parameter_types(name).empty()) << name;
  }
}

}  // namespace
}  // namespace grape::program
