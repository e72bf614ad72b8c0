#include "compressor/families/formula.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace grape::families {
namespace {

std::uint32_t bits_of(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

Formula of(std::uint16_t number) {
  Formula formula;
  formula.factors[0] = number;
  return formula;
}

TEST(Formula, ProductsSlopesAndQuotients) {
  const Numbers numbers = {3, 17, -5};
  Formula formula = of(1);
  EXPECT_EQ(evaluate(formula, numbers), 17);
  formula.factors = {0, 1, 1};
  EXPECT_EQ(evaluate(formula, numbers), 3 * 17 * 17);
  formula = of(1);
  formula.slope = 3, formula.offset = 3, formula.divisor = 4;
  EXPECT_EQ(evaluate(formula, numbers), 13) << "ceil(51 / 4)";
  formula.scale = 4, formula.plus = 4;
  EXPECT_EQ(evaluate(formula, numbers), 56);
  formula.most = 50;
  EXPECT_EQ(evaluate(formula, numbers), 50);
  formula = of(2);
  formula.divisor = 2;
  EXPECT_EQ(evaluate(formula, numbers), -3) << "floor";
}

TEST(Formula, WhatOverflowsOrIsMissingHasNoValue) {
  Formula formula;
  formula.factors = {0, 0, 0};
  EXPECT_EQ(evaluate(formula, {std::int64_t{1} << 32}), std::nullopt);
  EXPECT_EQ(evaluate(of(1), {7}), std::nullopt);
  formula = of(0);
  formula.slope = INT64_MAX;
  EXPECT_EQ(evaluate(formula, {2}), std::nullopt);
  formula = of(0);
  for (const Form form : {Form::kInverse, Form::kAtenMultiplier, Form::kAtenShift, Form::kCutlassShift}) {
    formula.form = form;
    EXPECT_EQ(evaluate(formula, {0}), std::nullopt);
  }
}

TEST(Formula, Floats) {
  EXPECT_EQ(in_form(Form::kFloat, 768), bits_of(768.0F));
  EXPECT_EQ(in_form(Form::kInverse, 768), bits_of(1.0F / 768.0F));
}

// The pairs stand in for a division, so each must divide as one does.
TEST(Formula, MultipliersAndShiftsDivide) {
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    const std::uint32_t divisor = 1 + random() % (i % 2 == 0 ? 5000U : 0x7fffffffU);
    const std::uint32_t number = random() >> (1 + random() % 20);
    const auto aten = static_cast<std::uint64_t>(*in_form(Form::kAtenMultiplier, divisor));
    const auto shift = static_cast<unsigned>(*in_form(Form::kAtenShift, divisor));
    const std::uint64_t high = number * aten >> 32;
    ASSERT_EQ((high + number) >> shift, number / divisor) << number << " / " << divisor;
    const auto cutlass = static_cast<std::uint64_t>(*in_form(Form::kCutlassMultiplier, divisor));
    const auto right = static_cast<unsigned>(*in_form(Form::kCutlassShift, divisor));
    ASSERT_EQ(divisor == 1 ? number : (number * cutlass >> 32) >> right, number / divisor)
        << number << " / " << divisor;
  }
}

TEST(Formula, ReadsAsOneWritesIt) {
  Formula formula = of(2);
  EXPECT_EQ(describe(formula), "n2");
  formula.factors[1] = 3;
  formula.slope = 3, formula.offset = -1, formula.divisor = 4, formula.scale = 2, formula.plus = 5, formula.most = 99;
  EXPECT_EQ(describe(formula), "min(99, 2 * floor((3 * n2 * n3 - 1) / 4) + 5)");
  formula = of(0);
  formula.form = Form::kAtenMultiplier;
  EXPECT_EQ(describe(formula), "aten multiplier(n0)");
}

}  // namespace
}  // namespace grape::families
