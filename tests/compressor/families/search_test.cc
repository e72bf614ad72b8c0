#include "compressor/families/search.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

namespace grape::families {
namespace {

using Values = std::vector<std::int64_t>;

Values values_of(const std::vector<Numbers>& members, const std::function<std::int64_t(const Numbers&)>& value) {
  Values values;
  for (const Numbers& member : members) values.push_back(value(member));
  return values;
}

std::vector<Numbers> lengths(const Values& all) {
  std::vector<Numbers> members;
  for (const std::int64_t length : all) members.push_back({length, 768, length, 12});
  return members;
}

// What is found, as text; "": nothing.
std::string found(const std::vector<Numbers>& members, const std::function<std::int64_t(const Numbers&)>& value) {
  const auto formula = Search(members).find(values_of(members, value));
  return formula ? describe(*formula) : "";
}

// The seven functions of the cached length that a decoding step of GPT-2 holds.
TEST(Search, TheFunctionsOfADecodingStep) {
  const std::vector<Numbers> members = lengths({19, 20, 22, 27});
  EXPECT_EQ(found(members, [](const Numbers& n) { return n[0]; }), "n0");
  EXPECT_EQ(found(members, [](const Numbers& n) { return n[0] + 1; }), "n0 + 1");
  EXPECT_EQ(found(members, [](const Numbers& n) { return 8 * (n[0] + 1); }), "8 * n0 + 8");
  EXPECT_EQ(found(members, [](const Numbers& n) { return 64 * (n[0] + 1); }), "64 * n0 + 64");
  EXPECT_EQ(found(members, [](const Numbers& n) { return 768 * n[0]; }), "768 * n0");
  EXPECT_EQ(found(members, [](const Numbers& n) { return (3 * n[0] + 3) / 4; }), "floor((3 * n0 + 3) / 4)");
}

TEST(Search, TooFewMembersShowNothing) {
  const auto affine = [](const Numbers& n) { return 8 * n[0] + 8; };
  EXPECT_EQ(found(lengths({19, 20, 22}), affine), "") << "two constants need four members";
  EXPECT_EQ(found(lengths({19, 20, 22, 22, 19}), affine), "") << "that differ";
  EXPECT_EQ(found(lengths({19, 20, 22}), [](const Numbers& n) { return n[0] + 1; }), "n0 + 1");
  EXPECT_EQ(found(lengths({19, 20}), [](const Numbers& n) { return n[0] + 1; }), "");
  EXPECT_EQ(found(lengths({19, 20}), [](const Numbers& n) { return n[0]; }), "n0");
}

TEST(Search, AFormulaThatIsWrongForOneMemberIsNone) {
  EXPECT_EQ(found(lengths({5, 6, 8, 11, 17}), [](const Numbers& n) { return n[0] == 11 ? 3 : n[0] * 2; }), "");
  EXPECT_EQ(found(lengths({5, 6, 8, 11, 17}), [](const Numbers& n) { return n[0] * n[0] * n[0] * n[0]; }), "")
      << "four factors";
}

TEST(Search, ProductsOfNumbers) {
  const std::vector<Numbers> members = {{3, 5, 7}, {4, 5, 9}, {5, 8, 7}, {7, 6, 2}, {9, 4, 3}};
  EXPECT_EQ(found(members, [](const Numbers& n) { return n[0] * n[2]; }), "n0 * n2");
  EXPECT_EQ(found(members, [](const Numbers& n) { return 4 * n[0] * n[1] * n[2]; }), "4 * n0 * n1 * n2");
  EXPECT_EQ(found(members, [](const Numbers& n) { return (n[0] * n[1] + 127) / 128; }), "") << "1 in all members";
  EXPECT_EQ(found(members, [](const Numbers& n) { return (n[0] * n[1] + 7) / 8; }), "floor((n0 * n1 + 7) / 8)");
}

TEST(Search, SumsAndDifferencesOfTwoNumbers) {
  const std::vector<Numbers> members = {{17, 5}, {13, 2}, {12, 1}, {16, 5}, {19, 3}};
  EXPECT_EQ(found(members, [](const Numbers& n) { return 128 * (n[0] - n[1]); }), "128 * n0 - 128 * n1");
  EXPECT_EQ(found(members, [](const Numbers& n) { return n[0] + n[1]; }), "n0 + n1");
  const std::vector<Numbers> few(members.begin(), members.begin() + 4);
  EXPECT_EQ(found(few, [](const Numbers& n) { return 128 * (n[0] - n[1]); }), "") << "two constants, two numbers";
  EXPECT_EQ(found(few, [](const Numbers& n) { return n[0] - n[1]; }), "n0 - n1");
  EXPECT_EQ(found(lengths({5, 6, 8, 11, 17}), [](const Numbers& n) { return n[0] * n[0] + n[0]; }), "")
      << "numbers that move together";
}

TEST(Search, AGridIsBoundedByTheDevice) {
  const std::vector<Numbers> members = lengths({100, 3000, 9000, 20000, 200000, 300000});
  const auto grid = [](const Numbers& n) { return std::min<std::int64_t>((n[0] + 127) / 128, 528); };
  EXPECT_EQ(found(members, grid), "min(528, floor((n0 + 127) / 128))");
  EXPECT_EQ(found(lengths({100, 3000, 9000, 20000, 200000}), grid), "") << "one at the bound may be anything";
}

TEST(Search, OffsetsOfAGeneratorRiseInSteps) {
  const std::vector<Numbers> members = lengths({1000, 700000, 1500000, 2900000, 7777777, 9999999, 20000000});
  EXPECT_EQ(found(members, [](const Numbers& n) { return 4 * ((n[0] - 1) / 1048576 + 1); }),
            "4 * floor((n0 + 1048575) / 1048576)");
}

TEST(Search, FloatsAndTheirInverses) {
  const auto bits = [](float value) {
    std::uint32_t word = 0;
    std::memcpy(&word, &value, sizeof word);
    return std::int64_t{word};
  };
  const std::vector<Numbers> members = lengths({65, 70, 90, 120});
  EXPECT_EQ(found(members, [&](const Numbers& n) { return bits(static_cast<float>(n[0])); }), "float(n0)")
      << "in one power of two their bits are affine";
  EXPECT_EQ(found(members, [&](const Numbers& n) { return bits(1.0F / static_cast<float>(n[0])); }), "inverse(n0)");
  EXPECT_EQ(found(members, [&](const Numbers& n) { return bits(static_cast<float>(8 * n[0])); }), "float(8 * n0)");
}

TEST(Search, DivisorsOfFoundFormulas) {
  const std::vector<Numbers> members = lengths({19, 21, 22, 40});
  Search search(members);
  const auto divisor = [](const Numbers& n) { return 12 * n[0] + 12; };
  const auto multiplier = [&](const Numbers& n) { return *in_form(Form::kAtenMultiplier, divisor(n)); };
  EXPECT_FALSE(search.find(values_of(members, multiplier))) << "of what, nobody knows yet";
  EXPECT_TRUE(search.find(values_of(members, divisor)));
  const auto formula = search.find(values_of(members, multiplier));
  ASSERT_TRUE(formula);
  EXPECT_EQ(describe(*formula), "aten multiplier(12 * n0 + 12)");
  EXPECT_EQ(found(members, [](const Numbers& n) { return *in_form(Form::kCutlassMultiplier, n[0]); }),
            "cutlass multiplier(n0)");
}

TEST(Search, NothingFollowsFromConstants) {
  EXPECT_EQ(found(lengths({7, 7, 7, 7}), [](const Numbers& n) { return n[1]; }), "");
  const std::vector<Numbers> members = lengths({7, 7, 7, 7});
  EXPECT_FALSE(Search(members).find({1, 2, 3, 4})) << "a counter of calls is in no signature";
  EXPECT_FALSE(Search(members).find({1, 2}));
  EXPECT_FALSE(Search({}).find({}));
}

}  // namespace
}  // namespace grape::families
