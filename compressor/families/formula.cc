#include "compressor/families/formula.h"

#include <algorithm>
#include <cstring>

namespace grape::families {
namespace {

using Wide = __int128;

std::optional<std::int64_t> narrow(Wide value) noexcept {
  if (value < INT64_MIN || value > INT64_MAX) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

Wide floor_divide(Wide value, std::int64_t divisor) noexcept {
  const Wide quotient = value / divisor;
  return quotient - (value % divisor < 0 ? 1 : 0);
}

std::int64_t bits_of(float value) noexcept {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

bool is_divisor(std::int64_t value) noexcept { return value >= 1 && value <= INT32_MAX; }

unsigned ceiling_of_log(std::int64_t value) noexcept {
  unsigned shift = 0;
  while ((std::int64_t{1} << shift) < value) ++shift;
  return shift;
}

// ATen/cuda/detail/IntegerDivider.cuh: 2^32 * (2^shift - d) / d + 1.
std::int64_t aten_multiplier(std::int64_t divisor) noexcept {
  const std::uint64_t above = (std::uint64_t{1} << ceiling_of_log(divisor)) - static_cast<std::uint64_t>(divisor);
  return static_cast<std::int64_t>(static_cast<std::uint32_t>((above << 32) / static_cast<std::uint64_t>(divisor) + 1));
}

// cutlass/fast_math.h, find_divisor: ceil(2^(31 + log) / d), and nothing for 1.
std::int64_t cutlass_multiplier(std::int64_t divisor) noexcept {
  if (divisor == 1) return 0;
  const std::uint64_t power = std::uint64_t{1} << (31 + ceiling_of_log(divisor));
  const auto by = static_cast<std::uint64_t>(divisor);
  return static_cast<std::int64_t>(static_cast<std::uint32_t>((power + by - 1) / by));
}

std::string term_of(const Formula& formula) {
  std::string text;
  for (const std::uint16_t factor : formula.factors) {
    if (factor != Formula::kNone) text += (text.empty() ? "n" : " * n") + std::to_string(factor);
  }
  return text;
}

}  // namespace

bool Formula::operator==(const Formula& other) const {
  return factors == other.factors && second == other.second && form == other.form && slope == other.slope &&
         second_slope == other.second_slope && offset == other.offset && divisor == other.divisor &&
         scale == other.scale && plus == other.plus && most == other.most;
}

std::optional<std::int64_t> in_form(Form form, std::int64_t value) noexcept {
  switch (form) {
    case Form::kInteger:
      return value;
    case Form::kFloat:
      return bits_of(static_cast<float>(value));
    case Form::kInverse:
      if (value == 0) return std::nullopt;
      return bits_of(1.0F / static_cast<float>(value));
    default:
      break;
  }
  if (!is_divisor(value)) return std::nullopt;
  switch (form) {
    case Form::kAtenMultiplier:
      return aten_multiplier(value);
    case Form::kAtenShift:
      return ceiling_of_log(value);
    case Form::kCutlassMultiplier:
      return cutlass_multiplier(value);
    default:
      return value == 1 ? 0 : ceiling_of_log(value) - 1;
  }
}

std::optional<std::int64_t> evaluate(const Formula& formula, const Numbers& numbers) noexcept {
  Wide term = 1;
  for (const std::uint16_t factor : formula.factors) {
    if (factor == Formula::kNone) continue;
    if (factor >= numbers.size()) return std::nullopt;
    const auto product = narrow(term * numbers[factor]);
    if (!product) return std::nullopt;
    term = *product;
  }
  Wide added = formula.offset;
  if (formula.second != Formula::kNone) {
    if (formula.second >= numbers.size()) return std::nullopt;
    added += static_cast<Wide>(formula.second_slope) * numbers[formula.second];
  }
  const auto inner = narrow(formula.slope * term + added);
  if (!inner) return std::nullopt;
  const auto value = narrow(formula.plus + formula.scale * floor_divide(*inner, formula.divisor));
  return value ? in_form(formula.form, std::min(*value, formula.most)) : std::nullopt;
}

std::string describe(const Formula& formula) {
  std::string text = term_of(formula);
  const auto with = [&text](std::int64_t plus) {
    if (plus != 0) text += (plus < 0 ? " - " : " + ") + std::to_string(plus < 0 ? -plus : plus);
  };
  if (formula.slope != 1) text = std::to_string(formula.slope) + " * " + text;
  if (formula.second != Formula::kNone) {
    const std::int64_t slope = formula.second_slope;
    text += slope < 0 ? " - " : " + ";
    if (slope != 1 && slope != -1) text += std::to_string(slope < 0 ? -slope : slope) + " * ";
    text += "n" + std::to_string(formula.second);
  }
  with(formula.offset);
  if (formula.divisor != 1) text = "floor((" + text + ") / " + std::to_string(formula.divisor) + ")";
  if (formula.scale != 1) text = std::to_string(formula.scale) + " * " + text;
  with(formula.plus);
  if (formula.most != Formula::kUnbounded) text = "min(" + std::to_string(formula.most) + ", " + text + ")";
  constexpr const char* kNames[] = {
      "", "float", "inverse", "aten multiplier", "aten shift", "cutlass multiplier", "cutlass shift"};
  const char* const name = kNames[static_cast<std::size_t>(formula.form)];
  return *name == 0 ? text : std::string(name) + "(" + text + ")";
}

}  // namespace grape::families
