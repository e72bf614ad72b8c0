// A number of a program (a word's lane, a size of a grid, bytes of a block) as a function of the numbers in a call's
// signature. The grammar is small: what PyTorch's kernels, cuDNN's and CUTLASS' were seen to be handed
// (docs/FAMILIES.md). Core: no CUDA, no Python. Plain data; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace grape::families {

// Of a signature, in the same order in each member of its family: sizes, strides, offsets, bytes of storages, Python
// ints.
using Numbers = std::vector<std::int64_t>;

// How the value is handed over.
enum class Form : std::uint8_t {
  kInteger,
  kFloat,           // bits of the value as a float
  kInverse,         // bits of 1 / value, computed in float
  kAtenMultiplier,  // of at::cuda::detail::IntDivider for the value, and its shift
  kAtenShift,
  kCutlassMultiplier,  // of cutlass::FastDivmod for the value, and its shift
  kCutlassShift,
};

// form(min(most, plus + scale * floor((slope * t + second_slope * u + offset) / divisor))), with t the product of one
// to three numbers, and u another number, if there is one.
struct Formula {
  static constexpr std::uint16_t kNone = 0xffff;
  static constexpr std::int64_t kUnbounded = INT64_MAX;

  std::array<std::uint16_t, 3> factors = {kNone, kNone, kNone};  // indices of numbers; at least the first
  std::uint16_t second = kNone;
  Form form = Form::kInteger;
  std::int64_t slope = 1, second_slope = 0, offset = 0, divisor = 1;  // divisor > 0
  std::int64_t scale = 1, plus = 0, most = kUnbounded;

  bool operator==(const Formula& other) const;
};

// Nothing: a number is missing, something overflows, or the form has no such value.
std::optional<std::int64_t> evaluate(const Formula& formula, const Numbers& numbers) noexcept;

// The same from a value that the rest of the formula gave.
std::optional<std::int64_t> in_form(Form form, std::int64_t value) noexcept;

// "floor((3 * n2 + 3) / 4)", for reports and tests.
std::string describe(const Formula& formula);

}  // namespace grape::families
