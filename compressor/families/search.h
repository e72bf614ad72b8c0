// Finds formulas: exhaustively, the simplest first. A formula is right for every member, or it is none.
// Throws std::bad_alloc only.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compressor/families/formula.h"

namespace grape::families {

// The numbers of a family's members, prepared for a search. Not shared between threads.
class Search {
 public:
  // All with as many numbers; they outlive the search. Numbers that are the same in all members are constants, and in
  // no formula.
  explicit Search(const std::vector<Numbers>& members);

  // `values`: one per member; not all the same. A formula with k constants that the members had to show needs k + 2
  // members whose products differ. Formulas that were found before are tried as divisors: call it for divisors first,
  // or twice.
  std::optional<Formula> find(const std::vector<std::int64_t>& values);

 private:
  struct Term {
    std::array<std::uint16_t, 3> factors = {Formula::kNone, Formula::kNone, Formula::kNone};
    std::vector<std::int64_t> values;  // per member
  };
  // A formula, and how much of it the members had to show.
  struct Found {
    Formula formula;
    unsigned constants = 0;
  };

  void add_products();
  void add_term(const Term& term);
  std::optional<Found> find_integer(const std::vector<std::int64_t>& values) const;
  std::optional<Found> find_sum(const std::vector<std::int64_t>& values) const;
  std::optional<Found> find_bounded(const std::vector<std::int64_t>& values) const;
  std::optional<Found> find_in_form(Form form, const std::vector<std::int64_t>& values) const;
  std::optional<Found> find_divider(const std::vector<std::int64_t>& values) const;

  const std::vector<Numbers>& members_;
  std::vector<Term> terms_;
  std::vector<Formula> known_;  // integers
};

}  // namespace grape::families
