#include "compressor/families/search.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

namespace grape::families {
namespace {

using Values = std::vector<std::int64_t>;

constexpr std::size_t kMostVarying = 24;                    // numbers of which products are made
constexpr std::int64_t kMostValue = std::int64_t{1} << 50;  // products of it and a divisor do not overflow 128 bits

bool all_same(const Values& values) {
  return std::all_of(values.begin(), values.end(), [&](std::int64_t each) { return each == values.front(); });
}

bool in_range(const Values& values) {
  return std::all_of(values.begin(), values.end(),
                     [](std::int64_t each) { return each > -kMostValue && each < kMostValue; });
}

std::size_t count_different(Values values) {
  std::sort(values.begin(), values.end());
  return static_cast<std::size_t>(std::unique(values.begin(), values.end()) - values.begin());
}

// Sizes of tiles, vectors and blocks.
const Values& divisors() {
  static const Values all = [] {
    Values made;
    for (std::int64_t d = 2; d <= 64; ++d) made.push_back(d);
    for (std::int64_t d = 128; d <= 1 << 20; d *= 2) made.push_back(d);
    for (std::int64_t d = 96; d <= 3 << 16; d *= 2) made.push_back(d);
    std::sort(made.begin(), made.end());
    return made;
  }();
  return all;
}

// A formula without factors as (term, values) show it, by the number of constants that they had to show.
struct Fit {
  Formula formula;
  unsigned constants = 0;
};

std::optional<Fit> fit_linear(const Values& term, const Values& values) {
  const auto other =
      std::find_if(term.begin(), term.end(), [&](std::int64_t each) { return each != term.front(); }) - term.begin();
  if (other == static_cast<std::ptrdiff_t>(term.size())) return std::nullopt;
  const auto at = static_cast<std::size_t>(other);
  const std::int64_t run = term[at] - term[0], rise = values[at] - values[0];
  if (rise == 0 || rise % run != 0) return std::nullopt;
  Fit fit;
  fit.formula.slope = rise / run;
  const __int128 offset = values[0] - static_cast<__int128>(fit.formula.slope) * term[0];
  if (offset <= -kMostValue || offset >= kMostValue) return std::nullopt;
  fit.formula.offset = static_cast<std::int64_t>(offset);
  for (std::size_t i = 0; i < term.size(); ++i) {
    if (static_cast<__int128>(fit.formula.slope) * term[i] + offset != values[i]) return std::nullopt;
  }
  fit.constants = (fit.formula.slope != 1 ? 1U : 0U) + (offset != 0 ? 1U : 0U);
  return fit;
}

// floor((slope * t + offset) / divisor), for that slope and divisor. The offset is the one of a floor or a ceiling, or
// the members leave no choice. There are many divisors, slopes and offsets, and some always fit a few members: divisors
// that are no powers of two count twice, and so do slopes over large divisors and offsets that are not usual.
std::optional<Fit> fit_offset(const Values& term, const Values& values, std::int64_t slope, std::int64_t divisor) {
  __int128 low = -static_cast<__int128>(kMostValue) * divisor, high = -low;
  for (std::size_t i = 0; i < term.size(); ++i) {
    const __int128 least = static_cast<__int128>(values[i]) * divisor - static_cast<__int128>(slope) * term[i];
    low = std::max(low, least);
    high = std::min(high, least + divisor - 1);
    if (low > high) return std::nullopt;
  }
  Fit fit;
  fit.formula.slope = slope;
  fit.formula.divisor = divisor;
  const bool power = (divisor & (divisor - 1)) == 0;
  const unsigned of_slope = divisor <= 8 ? 1 : 2;
  fit.constants = (power ? 1U : 2U) + (slope != 1 ? of_slope : 0U);
  const auto with = [&](__int128 offset, unsigned constants) {
    fit.formula.offset = static_cast<std::int64_t>(offset);
    fit.constants += constants;
    return fit;
  };
  for (const std::int64_t usual : {std::int64_t{0}, divisor - 1}) {
    if (usual >= low && usual <= high) return with(usual, 0);
  }
  for (const std::int64_t seldom : {divisor - slope, -slope, divisor}) {
    if (seldom >= low && seldom <= high) return with(seldom, 1);
  }
  if (low != high) return std::nullopt;
  return with(low, 2);
}

// Only rising, or only falling, with the term: what the host left behind is not, and costs no search.
bool follows_in_order(const Values& term, const Values& values) {
  bool rises = true, falls = true;
  for (std::size_t i = 1; i < term.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      if (values[i] == values[k]) continue;
      if (term[i] == term[k]) return false;
      const bool up = (values[i] > values[k]) == (term[i] > term[k]);
      rises = rises && up;
      falls = falls && !up;
      if (!rises && !falls) return false;
    }
  }
  return true;
}

std::optional<Fit> fit_quotient(const Values& term, const Values& values) {
  const auto [least, most] = std::minmax_element(term.begin(), term.end());
  const __int128 run = *most - *least;
  const __int128 rise =
      values[static_cast<std::size_t>(most - term.begin())] - values[static_cast<std::size_t>(least - term.begin())];
  if (run == 0 || rise == 0 || !follows_in_order(term, values)) return std::nullopt;
  std::optional<Fit> best;
  for (const std::int64_t divisor : divisors()) {
    const __int128 about = rise * divisor / run;
    for (__int128 slope = about - 1; slope <= about + 1; ++slope) {
      if (slope == 0 || slope <= -kMostValue || slope >= kMostValue) continue;
      const auto by = static_cast<std::int64_t>(slope);
      if (std::gcd(by, divisor) != 1) continue;
      const std::optional<Fit> fit = fit_offset(term, values, by, divisor);
      if (fit && (!best || fit->constants < best->constants)) best = fit;
    }
  }
  return best;
}

// The same of values that rise by multiples of a step.
std::optional<Fit> fit_steps(const Values& term, const Values& values) {
  std::int64_t step = 0;
  for (const std::int64_t each : values) step = std::gcd(step, each - values.front());
  if (step <= 1) return std::nullopt;
  Values counts;
  const std::int64_t plus = (values.front() % step + step) % step;
  for (const std::int64_t each : values) counts.push_back((each - plus) / step);
  std::optional<Fit> fit = fit_quotient(term, counts);
  if (!fit) return std::nullopt;
  fit->formula.scale = step;
  fit->formula.plus = plus;
  fit->constants += 1U + (plus != 0 ? 1U : 0U);
  return fit;
}

std::optional<Fit> fit(const Values& term, const Values& values) {
  const std::size_t different = count_different(term);
  const auto enough = [different](const std::optional<Fit>& found) {
    return found && different >= found->constants + 2;
  };
  if (const auto linear = fit_linear(term, values); enough(linear)) return linear;
  if (different < 3) return std::nullopt;
  if (const auto quotient = fit_quotient(term, values); enough(quotient)) return quotient;
  if (const auto steps = fit_steps(term, values); enough(steps)) return steps;
  return std::nullopt;
}

// slope * t + second_slope * u + offset. Both differ, and not together.
std::optional<Fit> fit_sum(const Values& term, const Values& other, const Values& values) {
  const auto minus_first = [](const Values& all, std::size_t i) { return static_cast<__int128>(all[i]) - all.front(); };
  for (std::size_t i = 1; i < values.size(); ++i) {
    for (std::size_t k = i + 1; k < values.size(); ++k) {
      const __int128 t1 = minus_first(term, i), t2 = minus_first(term, k), u1 = minus_first(other, i),
                     u2 = minus_first(other, k), v1 = minus_first(values, i), v2 = minus_first(values, k);
      const __int128 determinant = t1 * u2 - t2 * u1;
      if (determinant == 0) continue;
      const __int128 slope = (v1 * u2 - v2 * u1) / determinant, second_slope = (t1 * v2 - t2 * v1) / determinant;
      const __int128 offset = values.front() - slope * term.front() - second_slope * other.front();
      if (slope == 0 || second_slope == 0) return std::nullopt;
      for (std::size_t m = 0; m < values.size(); ++m) {
        if (slope * term[m] + second_slope * other[m] + offset != values[m]) return std::nullopt;
      }
      Fit fit;
      fit.formula.slope = static_cast<std::int64_t>(slope);
      fit.formula.second_slope = static_cast<std::int64_t>(second_slope);
      fit.formula.offset = static_cast<std::int64_t>(offset);
      const bool one_scale = slope == second_slope || slope == -second_slope;
      fit.constants = 1U + (one_scale ? 0U : 1U) + (slope != 1 ? 1U : 0U) + (offset != 0 ? 1U : 0U);
      return fit;
    }
  }
  return std::nullopt;
}

// The values that have these forms; nothing where one has none.
std::optional<Values> values_in(Form form, const Values& forms) {
  Values values;
  for (const std::int64_t each : forms) {
    if (each < 0 || each > UINT32_MAX) return std::nullopt;
    const auto bits = static_cast<std::uint32_t>(each);
    float number = 0;
    std::memcpy(&number, &bits, sizeof number);
    const double value = std::nearbyint(form == Form::kInverse ? 1.0 / static_cast<double>(number) : number);
    if (!(std::fabs(value) < static_cast<double>(kMostValue))) return std::nullopt;
    values.push_back(static_cast<std::int64_t>(value));
    if (in_form(form, values.back()) != each) return std::nullopt;
  }
  return values;
}

}  // namespace

Search::Search(const std::vector<Numbers>& members) : members_(members) {
  for (std::size_t i = 0; !members.empty() && i < members.front().size() && i < Formula::kNone; ++i) {
    Term term;
    term.factors[0] = static_cast<std::uint16_t>(i);
    for (const Numbers& member : members) term.values.push_back(member[i]);
    if (terms_.size() < kMostVarying) add_term(term);
  }
  add_products();
}

// But for those that are constant, or the same as one before.
void Search::add_term(const Term& term) {
  if (all_same(term.values) || !in_range(term.values)) return;
  const auto same = [&](const Term& other) { return other.values == term.values; };
  if (std::none_of(terms_.begin(), terms_.end(), same)) terms_.push_back(term);
}

// Of numbers that do not follow from each other: strides are multiples of sizes.
void Search::add_products() {
  std::vector<Term> singles;
  for (const Term& term : terms_) {
    const auto follows = [&term](const Term& other) { return fit_linear(other.values, term.values).has_value(); };
    if (std::none_of(singles.begin(), singles.end(), follows)) singles.push_back(term);
  }
  std::vector<Term> shorter = singles;
  for (std::size_t factor = 1; factor < 3; ++factor) {
    const std::size_t before = terms_.size();
    for (const Term& term : shorter) {
      for (const Term& single : singles) {
        if (single.factors[0] < term.factors[factor - 1]) continue;  // each product once
        Term product = term;
        product.factors[factor] = single.factors[0];
        bool fits = true;
        for (std::size_t m = 0; m < product.values.size(); ++m) {
          fits = !__builtin_mul_overflow(product.values[m], single.values[m], &product.values[m]) && fits;
        }
        if (fits) add_term(product);
      }
    }
    shorter.assign(terms_.begin() + static_cast<std::ptrdiff_t>(before), terms_.end());
  }
}

std::optional<Search::Found> Search::find_integer(const Values& values) const {
  std::optional<Found> best;
  for (const Term& term : terms_) {
    std::optional<Fit> found = fit(term.values, values);
    if (!found || (best && found->constants >= best->constants)) continue;
    found->formula.factors = term.factors;
    best = Found{found->formula, found->constants};
    if (best->constants == 0) break;
  }
  return best;
}

// A sum or a difference of two numbers: where a slice begins.
std::optional<Search::Found> Search::find_sum(const Values& values) const {
  std::optional<Found> best;
  for (const Term& term : terms_) {
    for (const Term& other : terms_) {
      const bool single = term.factors[1] == Formula::kNone && other.factors[1] == Formula::kNone;
      if (!single || other.factors[0] == term.factors[0]) continue;
      std::optional<Fit> found = fit_sum(term.values, other.values, values);
      if (!found || values.size() < found->constants + 3 || (best && found->constants >= best->constants)) continue;
      if (found->formula.slope < 0 && found->formula.second_slope > 0) continue;  // the other way round it reads better
      found->formula.factors = term.factors;
      found->formula.second = other.factors[0];
      best = Found{found->formula, found->constants};
    }
  }
  return best;
}

// min(most, ...): at least two members have the most, and the others show the rest.
std::optional<Search::Found> Search::find_bounded(const Values& values) const {
  const std::int64_t most = *std::max_element(values.begin(), values.end());
  if (std::count(values.begin(), values.end(), most) < 2) return std::nullopt;
  std::vector<Numbers> below;
  Values rest;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] == most) continue;
    below.push_back(members_[i]);
    rest.push_back(values[i]);
  }
  if (rest.size() < 2 || all_same(rest)) return std::nullopt;
  std::optional<Found> found = Search(below).find_integer(rest);
  if (!found) return std::nullopt;
  found->formula.most = most;
  ++found->constants;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (evaluate(found->formula, members_[i]) != values[i]) return std::nullopt;
  }
  return found;
}

std::optional<Search::Found> Search::find_in_form(Form form, const Values& forms) const {
  const std::optional<Values> values = values_in(form, forms);
  if (!values || all_same(*values)) return std::nullopt;
  std::optional<Found> found = find_integer(*values);
  if (found) found->formula.form = form;
  return found;
}

// Multipliers and shifts: of a formula that was found, or of a product. Which of them counts as a constant.
std::optional<Search::Found> Search::find_divider(const Values& values) const {
  if (count_different(values) < 3) return std::nullopt;
  constexpr Form kForms[] = {Form::kAtenMultiplier, Form::kAtenShift, Form::kCutlassMultiplier, Form::kCutlassShift};
  std::vector<Formula> divided = known_;
  for (const Term& term : terms_) {
    Formula plain;
    plain.factors = term.factors;
    divided.push_back(plain);
  }
  for (const Form form : kForms) {
    for (Formula each : divided) {
      each.form = form;
      bool same = true;
      for (std::size_t i = 0; same && i < values.size(); ++i) same = evaluate(each, members_[i]) == values[i];
      if (same) return Found{each, 1};
    }
  }
  return std::nullopt;
}

std::optional<Formula> Search::find(const Values& values) {
  if (values.size() != members_.size() || values.empty() || all_same(values) || !in_range(values)) return std::nullopt;
  std::optional<Found> best = find_integer(values);
  if (!best) best = find_sum(values);
  if (!best) best = find_bounded(values);
  const auto consider = [&best](const std::optional<Found>& found) {
    if (found && (!best || found->constants < best->constants)) best = found;
  };
  // The bits of floats rise in steps, as integers may.
  if (!best || best->constants != 0) {
    for (const Form form : {Form::kFloat, Form::kInverse}) consider(find_in_form(form, values));
    consider(find_divider(values));
  }
  if (!best) return std::nullopt;
  if (best->formula.form == Form::kInteger) known_.push_back(best->formula);
  return best->formula;
}

}  // namespace grape::families
